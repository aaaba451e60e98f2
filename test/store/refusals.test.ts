import { expect, it } from 'vitest';
import { Queue } from '../../src/index.js';
import { queueKeys } from '../../src/store/keys.js';
import { run, SCRIPTS } from '../../src/store/script.js';
import { openGrowth } from '../support/partitions.js';
import { admin, connection, freshName, key } from '../support/redis.js';

/** The scripts that touch no keys of a queue. */
const FOREIGN = ['transfer/erase', 'http/take', 'http/put'];
const OF_QUEUES = SCRIPTS.filter((name) => !FOREIGN.includes(name));

/** Arguments with which each does something. */
const ARGS: Record<string, (string | number)[]> = {
  'jobs/enqueue': ['keep', 'new', '1', '+0'],
  'jobs/drain': [10, 'receipt', 'me', 1_000],
  'jobs/ack': ['held', 'receipt'],
  'jobs/nack': ['retry', '', 0, 0, 'held', 'receipt', '', '', ''],
  'jobs/renew': [1_000, 'held', 'receipt'],
  'jobs/remove': ['', 'any', 'new', '1', '+0', '', 'waiting'],
  'inspect/inspect': [0],
  'inspect/list': ['p', '-inf', 'inf', 10],
  'inspect/show': ['waiting'],
  'edit/cancel': ['pad', 'waiting'],
  'edit/reschedule': ['+0', 0, 'waiting'],
  'edit/requeue': ['+0', 0, 'dead'],
  'edit/bury': ['', 'waiting'],
  'edit/purge': ['pad', 100],
  'edit/pause': ['inf'],
  'edit/config': ['tries', '7'],
  'edit/settings': ['99999999999999', 'tries', '7'],
  'transfer/hold': ['pd', 'token', 'move:other', 1_000, 'waiting'],
  'transfer/restore': ['new', 'p', '0', '', '1', ''],
  'transfer/end': ['held', 'receipt', 'm'],
  'transfer/advance': ['1 0/8', 'tags', ''],
  'transfer/adopt': ['id', '0', '1', '0', ''],
  'repair/repair': ['pending', 'mend', 1, 0, 'waiting'],
};

/** What stands in all keys of a queue. */
async function contentsOf(name: string) {
  const sets = await Promise.all(
    ['pending', 'active', 'dead'].map((set) => admin.zrange(key(name, set), '0', '-1', 'WITHSCORES')),
  );
  const hashes = await Promise.all(
    ['lease', 'payload', 'meta', 'stats', 'config'].map((hash) => admin.hgetall(key(name, hash))),
  );
  return [...sets, ...hashes];
}

async function grown(): Promise<string> {
  const name = freshName();
  const queue = new Queue(connection, name);
  await queue.enqueue([
    { id: 'held', payload: 1 },
    { id: 'dead', payload: 2 },
  ]);
  const { jobs } = await queue.drain();
  await queue.nack(
    jobs.filter(({ id }) => id === 'dead'),
    { mode: 'dead' },
  );
  await queue.enqueue({ id: 'waiting', payload: 3 });
  await openGrowth(admin, name, 4);
  return name;
}

it.each(OF_QUEUES)('%s of a client that knows no partitions is refused, and changes nothing', async (script) => {
  const name = await grown();
  const before = await contentsOf(name);
  const called = run(connection, script, queueKeys('delayq', name), ARGS[script] ?? []);
  await expect(called).rejects.toMatchObject({ code: 'config', why: expect.stringMatching(/^LAYOUT .*1 0\/4 from 1/) });
  expect(await contentsOf(name)).toEqual(before);
});
