import { describe, expect, it } from 'vitest';
import { Connection, Inspector, type NewJob, Operator, Queue, Transfer } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq, linesOf } from '../support/cli.js';
import { key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

/** A server of its own, which may be emptied, and a producer that keeps running. */
async function producer() {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  return {
    ...{ server, redis },
    queue: new Queue(redis, 'q'),
    transfer: new Transfer(redis),
    operator: new Operator(redis),
    queues: () => new Inspector(redis).queues(),
    cli: (...args: string[]) => delayq(args, { env: { DELAYQ_REDIS_URL: server.url } }),
  };
}

type Living = Awaited<ReturnType<typeof producer>>;

async function all<T>(list: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const one of list) found.push(one);
  return found;
}

async function* stream(): AsyncGenerator<NewJob> {
  yield { payload: 1 };
}

const parcel = { id: Buffer.from('a'), state: 'pending', score: '0', record: undefined } as const;

/** Ways to create the first key of the queue q. */
const ways: [string, (living: Living) => Promise<unknown>][] = [
  ['a job', ({ queue }) => queue.enqueue({ payload: 1 })],
  ['jobs in one go', ({ queue }) => Promise.all([1, 2, 3].map((payload) => queue.enqueue({ payload })))],
  ['many jobs', ({ queue }) => queue.enqueue(Array.from({ length: 600 }, (_, payload) => ({ payload })))],
  ['a stream of jobs', ({ queue }) => all(queue.enqueue(stream()))],
  ['a replacement', ({ queue }) => queue.enqueue({ payload: 1, id: 'a' }, { ifExists: 'replace' })],
  [
    'what a drain that was stopped puts back',
    async ({ queue, server }) => {
      await queue.enqueue({ payload: 1 });
      const { jobs } = await queue.drain({ leaseMs: 0 });
      await server.admin.flushall();
      await queue.putBack(jobs);
    },
  ],
  ['an import', ({ transfer }) => transfer.restore('q', [{ ...parcel, payload: Buffer.from('1') }])],
  [
    'a move',
    async ({ redis, transfer }) => {
      await new Queue(redis, 'from').enqueue({ payload: 1, id: 'a' });
      expect(await transfer.move('from', ['a'], { to: 'q' })).toEqual(['moved']);
    },
  ],
  [
    'jobs of other software',
    async ({ server, transfer }) => {
      await server.admin.zadd('theirs', 1, 'a');
      await server.admin.hset('values', 'a', '1');
      await all(transfer.adopt('q', { zset: 'theirs', hash: 'values', unit: 's' }));
    },
  ],
  ['settings', ({ operator }) => operator.configure('q', { tries: 3 })],
];

describe('a producer that keeps running lists its queue again (failures 41)', () => {
  it.each(ways)('with %s, after Redis came back empty', async (_, way) => {
    const living = await producer();
    await way(living);
    expect(await living.queues()).toContain('q');
    await living.server.end('SIGKILL');
    await living.server.run();
    await way(living);
    expect(await living.queues()).toContain('q');
  });

  it('after it was purged and forgotten: inspect, check and metrics show its jobs', async () => {
    const { cli, queue, queues } = await producer();
    await queue.enqueue({ payload: 1 });
    expect(await cli('purge', '--forget', '--yes', 'q')).toMatchObject({ code: 0 });
    expect(await queues()).toEqual([]);
    await queue.enqueue({ payload: 1, at: Date.now() - 3_600_000 });
    expect((await cli('inspect', '--json')).stdout).toContain('"queue":"q"');
    expect((await cli('metrics')).stdout).toContain('queue="q"');
    expect(await cli('check')).toMatchObject({ code: 2, stdout: expect.stringMatching(/CRITICAL.*q/) });
  });

  it.each([
    [
      'of other software that came first',
      async ({ server }: Living) => {
        await server.admin.zadd(key('q', 'pending'), 0, 'a');
        await server.admin.hset(key('q', 'payload'), 'a', '1');
      },
    ],
    [
      'that is paused, and its drains have asked',
      async ({ operator }: Living) => {
        await operator.pause('q');
      },
    ],
  ])('also one %s', async (_, first) => {
    const living = await producer();
    await living.queue.enqueue({ payload: 1 });
    await living.server.admin.flushall();
    await first(living);
    await living.queue.drain();
    expect(await living.server.admin.exists(key('q', 'stats'))).toBe(1);
    await living.queue.enqueue({ payload: 2 });
    expect(await living.queues()).toEqual(['q']);
  });

  it('in the middle of many lines, before it reports them as enqueued', async () => {
    const { server, queues } = await producer();
    const bulk = begin(['enqueue', 'q', '-'], { env: { DELAYQ_REDIS_URL: server.url } });
    const told = (n: number) => until(() => linesOf(bulk.stdout).length === n);
    bulk.child.stdin?.write('1\n2\n');
    await told(2);
    await server.admin.flushall();
    bulk.child.stdin?.write('3\n');
    await told(3);
    expect(await queues()).toEqual(['q']);
    bulk.child.stdin?.end();
    expect(await bulk.ended).toMatchObject({ code: 0 });
  });

  it('if it is forgotten during an enqueue', async () => {
    const { operator, queue, queues } = await producer();
    for (let i = 0; i < 200; i++) {
      await queue.enqueue({ payload: 1, id: 'a' });
      await operator.cancel('q', ['a']);
      await Promise.all([operator.forget('q'), queue.enqueue({ payload: 1, id: 'a' })]);
      expect(await queues()).toEqual(['q']);
      await operator.cancel('q', ['a']);
    }
  });
});
