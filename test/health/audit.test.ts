import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Auditor, type Id, Inspector, Operator, Queue } from '../../src/index.js';
import { mend, PLACES } from '../../src/store/repair.js';
import { Store } from '../../src/store/store.js';
import { slowRuns } from '../support/property.js';
import { admin, connection, freshName, freshQueue, key } from '../support/redis.js';

const auditor = new Auditor(connection);
const id = fc.constantFrom('a', 'b', 'c', 'd');
const NOW = Date.now();
const score = fc.constantFrom(NOW + 3_600_000, NOW - 1_000, NOW / 1_000, 'inf', '-inf', 0, 1e15);
const lease = fc.constantFrom(`r ${NOW} ${NOW} me:1`, 'r', '', `r x ${NOW} me`, 'r inf inf me', `r ${NOW} ${NOW} `);
const record = fc.constantFrom('{"failures":1}', '{}', '[]', 'null', '', '{"reason":"orphaned"}', '{"tries":1e300}');

/** Anything that other software might do to a queue. */
const harm = fc.oneof(
  fc.tuple(fc.constant('zadd'), fc.constantFrom('pending', 'active', 'dead'), score, id),
  fc.tuple(fc.constant('hset'), fc.constant('payload'), id, fc.constantFrom('1', '{"x":2}')),
  fc.tuple(fc.constant('hset'), fc.constant('meta'), id, record),
  fc.tuple(fc.constant('hset'), fc.constant('lease'), id, lease),
  fc.tuple(
    fc.constant('hset'),
    fc.constant('lease'),
    id.map((one) => `old ${one}`),
    fc.constantFrom(String(NOW), String(NOW - 90_000_000), 'x'),
  ),
);

it('whatever other software did, a repaired queue is in order, and every payload can be delivered', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(harm, { minLength: 1, maxLength: 25, size: 'max' }), async (harms) => {
      const name = freshName();
      for (const [command, structure, ...args] of harms) await admin.call(command, key(name, structure), ...args);
      const payloads = await admin.hgetall(key(name, 'payload'));
      const find = async (mending: boolean) =>
        (await auditor.examine(name, { mend: mending, graceMs: 0 })).filter(({ check }) => !TOLD.includes(check));
      const found = await find(false);
      const mended = await find(true);
      // Mending one thing may put another right.
      expect(mended.length > 0).toBe(found.length > 0);
      expect(mended.filter(({ level }) => level !== 'ok')).toEqual([]);
      expect((await find(false)).filter(({ level }) => level !== 'ok')).toEqual([]);
      expect(await admin.hgetall(key(name, 'payload'))).toEqual(payloads);
      expect(await delivered(name)).toEqual(Object.keys(payloads).sort());
    }),
    slowRuns(300),
  );
}, 300_000);

/** What somebody is told who need not do anything about single ids. */
const TOLD = ['dead', 'no-drain', 'lag', 'unlisted', 'jobs'];

/** The ids of all jobs, when leases end, what waits falls due, and the dead are requeued. */
async function delivered(name: string): Promise<string[]> {
  for (const set of ['pending', 'active']) {
    for (const one of await admin.zrange(key(name, set), '0', '-1')) await admin.zadd(key(name, set), NOW - 1, one);
  }
  const dead: Id[] = [];
  for await (const ids of new Inspector(connection).ids(name, { states: ['dead'] })) dead.push(...ids);
  await new Operator(connection).requeue(name, dead);
  const ids: string[] = [];
  for (;;) {
    const { jobs, state } = await new Queue(connection, name).drain();
    ids.push(...jobs.map((job) => job.id));
    if (state === 'idle') return ids.sort();
  }
}

it('repairing changes nothing that is in order', async () => {
  const queue = freshQueue();
  await queue.enqueue(['a', 'b', 'c', 'd'].map((one, i) => ({ payload: i, id: one, ttl: '1d' })));
  await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead' });
  await queue.drain({ limit: 1 });
  const all = () =>
    Promise.all([
      ...['pending', 'active', 'dead'].map((set) => admin.zrange(key(queue.name, set), '0', '-1', 'WITHSCORES')),
      ...['payload', 'meta', 'lease', 'stats'].map((hash) => admin.hgetall(key(queue.name, hash))),
    ]);
  const before = await all();
  for (const place of PLACES) {
    const answers = await mend(Store.of(connection, 'delayq', queue.name), 0, place, ['a', 'b', 'c', 'd', 'nobody']);
    expect(answers).toEqual(Array(5).fill(undefined));
  }
  expect(await all()).toEqual(before);
});

it('names the key of the list of queues if other software uses it, and finds nothing else wrong', async () => {
  const [name, prefix] = [freshName(), freshName()];
  await admin.set(`${prefix}:queues`, 'x');
  await new Queue(connection, name, { prefix }).enqueue({ payload: 1, in: '1h' });
  const found = await new Auditor(connection, { prefix }).examine(name);
  const wrong = found.filter(({ level }) => level !== 'ok');
  expect(wrong).toMatchObject([
    { level: 'warn', check: 'unlisted', why: expect.stringContaining(`${prefix}:queues is no set`) },
  ]);
  await expect(new Inspector(connection, { prefix }).queues()).rejects.toMatchObject({
    why: expect.stringContaining(`${prefix}:queues`),
  });
  await admin.del(`${prefix}:queues`);
});
