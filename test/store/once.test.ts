import { describe, expect, it } from 'vitest';
import { Connection, Operator, Queue } from '../../src/index.js';
import { Auditor, Inspector } from '../../src/internal.js';
import { shaOf } from '../../src/store/script.js';
import { Store } from '../../src/store/store.js';
import { afterwards, during } from '../support/afterwards.js';
import { tagsOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, key, redisTargets, redisUrl } from '../support/redis.js';

const operator = new Operator(connection);
const job = (id: string) => ({ id, payload: 1, onceFor: '1d' });
const IDS = Array.from({ length: 200 }, (_, i) => `o:${i}`);

async function grow(queue: string, count: number, by = operator): Promise<void> {
  for await (const _ of by.partition(queue, count));
}

/** A queue that remembers 200 ids. */
async function remembering(): Promise<Queue> {
  const queue = new Queue(connection, freshName());
  await queue.enqueue(IDS.map(job));
  await doAll(queue);
  return queue;
}

async function doAll(queue: Queue): Promise<void> {
  for (let jobs = (await queue.drain()).jobs; jobs.length > 0; jobs = (await queue.drain()).jobs)
    expect(new Set(await queue.ack(jobs))).toEqual(new Set(['held']));
}

/** A queue whose growth to 4 partitions is open, because a consumer holds jobs that must be moved. */
async function growing() {
  const queue = await remembering();
  await queue.enqueue(IDS.slice(0, 20).map((id) => job(`held:${id}`)));
  const { jobs } = await queue.drain();
  for await (const { active } of operator.partition(queue.name, 4)) if (active > 0) break;
  const { map } = Store.of(connection, 'delayq', queue.name);
  expect(map).toMatchObject({ from: 1, count: 4 });
  return { queue, jobs, mover: IDS.find((id) => map.ownerOf(id) > 0) as string };
}

/** A queue with what a connection knows that has learned nothing. */
function stranger(name: string): Queue {
  const other = new Connection(redisUrl);
  afterwards(() => other.close());
  return new Queue(other, name);
}

const outcomes = async (queue: Queue, ids = IDS) =>
  new Set((await queue.enqueue(ids.map(job))).map(({ outcome }) => outcome));

describe('the growth of a queue that remembers ids', () => {
  it('takes each to the partition where it belongs', async () => {
    const queue = await remembering();
    await grow(queue.name, 4);
    const { map } = Store.of(connection, 'delayq', queue.name);
    for (const [i, tag] of (await tagsOf(admin, queue.name)).entries()) {
      const ids = await admin.zrange(key(tag, 'done'), '0', '-1');
      expect(ids.sort()).toEqual(IDS.filter((id) => map.ownerOf(id) === i).sort());
    }
    expect(await outcomes(stranger(queue.name))).toEqual(new Set(['kept-done']));
    expect(await new Inspector(connection).inspect(queue.name)).toMatchObject({ remembered: 200, pending: 0 });
  });

  it('remembers while it is open, for callers who know of it and who do not, and jobs that are done then', async () => {
    const { queue, jobs } = await growing();
    const old = stranger(queue.name);
    expect(await outcomes(queue)).toEqual(new Set(['kept-done']));
    expect(await queue.ack(jobs)).toEqual(jobs.map(() => 'held'));
    const held = jobs.map(({ id }) => id);
    expect(await outcomes(queue, held)).toEqual(new Set(['kept-done']));
    expect(await outcomes(old, held)).toEqual(new Set(['kept-done']));
    await grow(queue.name, 4);
    expect(await outcomes(old, [...IDS, ...held])).toEqual(new Set(['kept-done']));
    expect(await queue.counts()).toMatchObject({ pending: 0, remembered: 220 });
  });

  it('shows until when, and frees no id before it is done', async () => {
    const { queue, jobs, mover } = await growing();
    expect(await new Inspector(connection).rememberedUntil(queue.name, mover)).toBeGreaterThan(Date.now());
    await expect(operator.cancel(queue.name, [mover])).rejects.toMatchObject({
      code: 'temporary',
      next: expect.stringContaining('growth'),
    });
    await queue.ack(jobs);
    await grow(queue.name, 4);
    expect(await operator.cancel(queue.name, [mover])).toEqual(['freed']);
    expect(await outcomes(queue, [mover])).toEqual(new Set(['created']));
  });

  it('goes on after the death of a grower, before and after each of its copies', async () => {
    for (const kind of ['refuse', 'cut'] as const) {
      for (const after of [0, 1]) {
        const queue = await remembering();
        const proxy = await during(FaultyProxy.start(...redisTargets));
        const redis = new Connection(proxy.url);
        afterwards(() => redis.close());
        const sha = shaOf('transfer/remember');
        const dying = new AbortController();
        // From its fault on, the grower gets no further.
        proxy.fault = { word: sha, kind, times: 1_000, after, before: () => dying.abort() };
        const run = new Operator(redis).partition(queue.name, 4);
        const dead = (async () => {
          for await (const _ of run) if (dying.signal.aborted) break;
        })();
        await new Promise((resolve) => dying.signal.addEventListener('abort', resolve));
        expect(await outcomes(stranger(queue.name))).toEqual(new Set(['kept-done']));
        redis.close();
        await dead.catch(() => {});
        await grow(queue.name, 4);
        expect(await outcomes(stranger(queue.name))).toEqual(new Set(['kept-done']));
        expect(await queue.counts()).toMatchObject({ pending: 0, remembered: 200 });
      }
    }
  });
});

describe('doctor', () => {
  it('names ids that are never free again', async () => {
    const queue = new Queue(connection, freshName());
    await queue.enqueue([job('a')]);
    await doAll(queue);
    await admin.zadd(key(queue.name, 'done'), 'inf', 'b');
    const auditor = new Auditor(connection);
    const what = '1 remembered id whose window never closes';
    const next = `delayq cancel ${queue.name} b  # its id is free again`;
    const expected = { check: 'endless-id', level: 'warn', what, next, count: 1, samples: ['b'] };
    expect(await auditor.examine(queue.name)).toContainEqual(expect.objectContaining(expected));
    await operator.cancel(queue.name, ['b'], ['pending', 'dead']);
    expect((await auditor.examine(queue.name)).map(({ check }) => check)).not.toContain('endless-id');
  });

  it('finds ids that are remembered where they do not belong, and moves them', async () => {
    const queue = new Queue(connection, freshName());
    await grow(queue.name, 4);
    const { map } = Store.of(connection, 'delayq', queue.name);
    const id = IDS.find((one) => map.ownerOf(one) > 0) as string;
    // Other software knows no partitions.
    const [payload, pending, meta] = ['payload', 'pending', 'meta'].map((name) => key(queue.name, name)) as string[];
    await admin.hset(payload as string, id, '1');
    await admin.hset(meta as string, id, '{"once":86400000}');
    await admin.zadd(pending as string, 1, id);
    await doAll(queue);
    const auditor = new Auditor(connection);
    expect(await auditor.examine(queue.name)).toContainEqual(
      expect.objectContaining({
        check: 'stray-id',
        level: 'warn',
        what: 'partition 0: 1 remembered id of other partitions',
      }),
    );
    expect(await auditor.examine(queue.name, { mend: true })).toContainEqual(
      expect.objectContaining({ check: 'stray-id', level: 'ok', mended: 1 }),
    );
    expect((await auditor.examine(queue.name)).map(({ check }) => check)).not.toContain('stray-id');
    expect(await outcomes(queue, [id])).toEqual(new Set(['kept-done']));
  });
});
