import { describe, expect, it } from 'vitest';
import { BatchWorker, Connection, Operator, poll, Queue, type TakenJobs, Worker } from '../../src/internal.js';
import { Store } from '../../src/store/store.js';
import { afterwards, during } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';
import { admin, connection, freshName, freshQueue, key, listeners, redisUrl } from '../support/redis.js';
import { Server } from '../support/server.js';
import { STEP_MS, type StoppedClock, stopClock } from '../support/stopped-clock.js';

const HOUR_MS = 3_600_000;

/** What would not be heard would be found at this time after the last look, by the clock that stands still. */
const POLL_MS = 1_000;

const payloadsOf = ({ jobs }: TakenJobs) => jobs.map(({ payload }) => JSON.parse(String(payload)) as unknown);

/** The next jobs of a loop; undefined until they have come. */
function coming(loop: AsyncGenerator<TakenJobs>) {
  const next: { payloads: unknown[] | undefined; isOver: boolean } = { payloads: undefined, isOver: false };
  void loop.next().then(({ value, done = false }) => {
    Object.assign(next, { payloads: value && payloadsOf(value), isOver: done });
  });
  return next;
}

const isHeard = async (queue: Queue) => (await listeners(queue.wakeChannel)) > 0;

/** A queue as if the clock of its server were an hour ahead. */
class Early extends Queue {
  override async take(options: NonNullable<Parameters<Queue['take']>[0]> = {}) {
    const drained = await super.take(options);
    return { ...drained, now: drained.now + HOUR_MS, next: drained.next && drained.next + HOUR_MS };
  }
}

/** A queue with partitions, as a process sees it that does not know of them yet. */
async function parted(count: number, redis = new Connection(redisUrl)): Promise<Queue> {
  afterwards(() => redis.close());
  const { name } = freshQueue();
  const maker = new Operator(redis.address === connection.address ? connection : redis);
  for await (const _ of maker.partition(name, count));
  return new Queue(redis, name);
}

/** Jobs due a millisecond after another, the first `ago` ms ago, with ids of all partitions. */
const spread = (n: number, ago: number) =>
  Array.from({ length: n }, (_, i) => ({ id: `job-${i}`, payload: i, at: Date.now() - ago + i }));

async function takeAll(loop: AsyncIterable<TakenJobs>): Promise<unknown[]> {
  const seen: unknown[] = [];
  for await (const taken of loop) seen.push(...payloadsOf(taken));
  return seen;
}

describe('a drain loop that watches', () => {
  it('looks when the job is due of which it has heard, not at its next poll', async () => {
    const queue = freshQueue();
    const { clockUntil, settledUntil } = stopClock(queue);
    await queue.enqueue({ payload: 'far', in: '1h' });
    let [calls, answered] = [0, 0];
    const onDrained: NonNullable<Parameters<typeof poll>[1]>['onDrained'] = (_, { now }) => {
      [calls, answered] = [calls + 1, now];
    };
    const loop = poll([queue], { watch: true, onDrained });
    const next = coming(loop);
    await settledUntil(async () => calls === 1 && (await isHeard(queue)));
    const at = answered + 300;
    await queue.enqueue({ payload: 'near', at });
    await settledUntil(async () => (await connection.now()) >= at);
    expect(await clockUntil(() => next.payloads)).toBe(300);
    expect([next.payloads, calls]).toEqual([['near'], 2]);
    await loop.return(undefined);
  });

  it('does not look again after a job if the answer said that nothing else is due', async () => {
    const [other, queue] = [freshQueue(), freshQueue()];
    const { clockUntil, settledUntil } = stopClock(other, queue);
    const asked: Queue[] = [];
    let answered = 0;
    const loop = poll([other, queue], {
      watch: true,
      onDrained: (of, { now }) => {
        asked.push(of);
        answered = now;
      },
    });
    const first = coming(loop);
    await settledUntil(async () => asked.length === 2 && (await isHeard(other)) && (await isHeard(queue)));
    for (const [n, next] of [first, undefined, undefined].entries()) {
      const at = answered + 200;
      await queue.enqueue({ payload: n, at });
      await settledUntil(async () => (await connection.now()) >= at);
      const come = next ?? coming(loop);
      expect(await clockUntil(() => come.payloads)).toBe(200);
      expect(come.payloads).toEqual([n]);
    }
    expect(asked).toEqual([other, queue, queue, queue, queue]);
    await loop.return(undefined);
  });

  it('asks only the queue that a message is about', async () => {
    const queues = [freshQueue(), freshQueue(), freshQueue()] as const;
    const { clockUntil, settledUntil } = stopClock(...queues);
    const asked: Queue[] = [];
    const loop = poll(queues, { watch: true, onDrained: (queue) => asked.push(queue) });
    const next = coming(loop);
    await settledUntil(async () => asked.length === 3 && (await Promise.all(queues.map(isHeard))).every(Boolean));
    await queues[1].enqueue({ payload: 1 });
    expect(await clockUntil(() => next.payloads)).toBeLessThan(POLL_MS);
    expect([next.payloads, asked]).toEqual([[1], [...queues, queues[1]]]);
    await loop.return(undefined);
  });

  it('understands messages about a queue by the clock of its own server', async () => {
    const [there, here] = [new Early(connection, freshName()), freshQueue()];
    const { clockUntil, settledUntil } = stopClock(there, here);
    const answered = new Map<Queue, number>();
    const loop = poll([there, here], { watch: true, onDrained: (of, { now }) => answered.set(of, now) });
    const next = coming(loop);
    await settledUntil(async () => answered.size === 2 && (await isHeard(there)));
    // As enqueue does, which tells the time of the server.
    await admin.hset(key(there.name, 'payload'), 'a', '1');
    await admin.zadd(key(there.name, 'pending'), 0, 'a');
    await admin.publish(there.wakeChannel, String(answered.get(there)));
    // By the clock of the other server it would be due in an hour, and only the next poll would find it.
    expect(await clockUntil(() => next.payloads)).toBeLessThan(POLL_MS);
    expect(next.payloads).toEqual([1]);
    await loop.return(undefined);
  });

  it('is woken by each server', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const [near, far] = [freshQueue(), new Queue(redis, 'far')];
    const { clockUntil, settledUntil } = stopClock(near, far);
    for (const queue of [near, far]) {
      let asked = 0;
      const loop = poll([near, far], { watch: true, onDrained: () => asked++ });
      const next = coming(loop);
      await settledUntil(async () => asked === 2 && (await isHeard(near)));
      await settledUntil(async () => Number(await server.admin.publish(far.wakeChannel, 'no number')) > 0);
      await queue.enqueue({ payload: queue.name });
      expect(await clockUntil(() => next.payloads)).toBeLessThan(POLL_MS);
      expect(next.payloads).toEqual([queue.name]);
      await loop.return(undefined);
    }
  });

  it('with `ahead` does not miss a job that is enqueued while its consumer is busy', async () => {
    const queue = freshQueue();
    const { clockUntil, settledUntil } = stopClock(queue);
    const loop = poll([queue], { batch: 1, watch: true, ahead: true, leaseMs: 0 });
    const next = async () => {
      const one = coming(loop);
      expect(await clockUntil(() => one.payloads)).toBeLessThan(POLL_MS);
      return one.payloads;
    };
    const first = coming(loop);
    await settledUntil(() => isHeard(queue));
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    await clockUntil(() => first.payloads);
    expect([first.payloads, await next()]).toEqual([[1], [2]]);
    // By then a call without jobs has been answered, too.
    await queue.enqueue({ payload: 3 });
    expect(await next()).toEqual([3]);
    await loop.return(undefined);
  });

  it('does not miss a job that is enqueued while its first answer is on its way', async () => {
    let go = () => {};
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    let answered = 0;
    class Late extends Queue {
      override async take(options: Parameters<Queue['take']>[0]) {
        const drained = await super.take(options);
        answered += 1;
        await held;
        return drained;
      }
    }
    const queue = new Late(connection, freshName());
    const { settled, settledUntil, clockUntil } = stopClock(queue);
    const loop = poll([queue], { watch: true });
    const next = coming(loop);
    await settledUntil(async () => answered > 0 && (await isHeard(queue)));
    await queue.enqueue({ payload: 1 });
    await settled();
    go();
    expect(await clockUntil(() => next.payloads)).toBeLessThan(POLL_MS);
    expect(next.payloads).toEqual([1]);
    await loop.return(undefined);
  });

  it('polls an idle queue once a second', async () => {
    const queue = freshQueue();
    const { pass, settledUntil } = stopClock(queue);
    let calls = 0;
    const stop = new AbortController();
    const next = coming(poll([queue], { watch: true, signal: stop.signal, onDrained: () => calls++ }));
    await settledUntil(() => calls === 1);
    await pass(3_500);
    expect(calls).toBe(4);
    stop.abort();
    await settledUntil(() => next.isOver);
  });

  it('goes on polling after a message that is no time', async () => {
    const queue = freshQueue();
    const { clockUntil, settledUntil } = stopClock(queue);
    const loop = poll([queue], { watch: true });
    const next = coming(loop);
    await settledUntil(() => isHeard(queue));
    expect(await admin.publish(queue.wakeChannel, 'no number')).toBe(1);
    await admin.hset(key(queue.name, 'payload'), 'a', '1');
    await admin.zadd(key(queue.name, 'pending'), 0, 'a');
    expect(await clockUntil(() => next.payloads)).toBe(POLL_MS);
    expect(next.payloads).toEqual([1]);
    await loop.return(undefined);
  });

  it('ends in time, in the middle of a poll interval', async () => {
    const queue = freshQueue();
    const { clockUntil } = stopClock(queue);
    const next = coming(poll([queue], { watch: true, forMs: 200 }));
    expect(await clockUntil(() => next.isOver)).toBe(200);
  });

  it('takes a retry when it is due', async () => {
    const queue = freshQueue();
    const { clockUntil, settledUntil } = stopClock(queue);
    const answered = { now: 0, at: 0 };
    let settled = 0;
    const attempts: number[] = [];
    const fails = () => {
      attempts.push(performance.now());
      throw new Error('again');
    };
    const worker = new Worker(queue, fails, {
      backoff: [500],
      onDrained: (_, { now }) => Object.assign(answered, { now, at: performance.now() }),
      onResult: () => {
        settled += 1;
      },
    });
    const running = worker.run();
    await settledUntil(() => isHeard(queue));
    await queue.enqueue({ payload: 1, id: 'a' });
    await clockUntil(() => settled === 1);
    const due = Number(await admin.zscore(key(queue.name, 'pending'), 'a'));
    await settledUntil(async () => (await connection.now()) >= due);
    // On a machine that is very busy, the next poll comes before.
    const ms = Math.min(POLL_MS, Math.ceil((due - answered.now) / STEP_MS) * STEP_MS);
    const at = answered.at + ms;
    await clockUntil(() => attempts.length === 2);
    expect(attempts[1]).toBe(at);
    worker.stop();
    await running;
  });
});

describe('a drain that watches a queue with partitions', () => {
  /** Until the wake channels of all are surely heard, they are polled as often as a queue: then they wait for long. */
  async function waits(queue: Queue, count: number, { clockUntil, pass }: StoppedClock): Promise<void> {
    await clockUntil(async () => {
      const { partitions } = queue;
      return partitions.length === count && (await Promise.all(partitions.map(isHeard))).every(Boolean);
    });
    await pass(2_500, 50);
  }

  it('looks at all of them every 5 s while it is idle', async () => {
    const queue = await parted(16);
    const clock = stopClock(queue);
    const stop = new AbortController();
    let calls = 0;
    const next = coming(poll([queue], { watch: true, signal: stop.signal, onDrained: () => calls++ }));
    await waits(queue, 16, clock);
    const before = calls;
    await clock.pass(25_000, 250);
    expect(calls - before).toBe(5 * 16);
    stop.abort();
    await clock.settledUntil(() => next.isOver);
  });

  it('hears of jobs that are due before its next poll, in each of them', async () => {
    const queue = await parted(16);
    const clock = stopClock(queue);
    const stop = new AbortController();
    const seen: unknown[] = [];
    let answered = 0;
    const onDrained = (_: Queue, { now }: { now: number }) => {
      answered = now;
    };
    const running = (async () => {
      for await (const taken of poll([queue], { watch: true, signal: stop.signal, leaseMs: 0, onDrained }))
        seen.push(...payloadsOf(taken));
    })();
    await waits(queue, 16, clock);
    const { map } = Store.of(queue.redis, 'delayq', queue.name);
    const jobs = queue.partitions.map((_, i) => ({ id: map.newIdOf(i), payload: i, at: answered - i }));
    await new Queue(connection, queue.name).enqueue(jobs);
    expect(await clock.clockUntil(() => seen.length === 16)).toBeLessThan(POLL_MS);
    stop.abort();
    await running;
  });

  it('hands out a batch that is not full once the job it waited for has gone from another partition', async () => {
    const queue = await parted(2);
    const clock = stopClock(queue);
    const handled: string[] = [];
    const answered = { now: 0, at: 0 };
    const worker = new BatchWorker(queue, (tasks) => void handled.push(...tasks.map(({ id }) => id)), {
      batch: 9,
      onDrained: (_, { now }) => Object.assign(answered, { now, at: performance.now() }),
    });
    const running = worker.run();
    await waits(queue, 2, clock);
    const { map } = Store.of(queue.redis, 'delayq', queue.name);
    const [first, second] = [map.newIdOf(0), map.newIdOf(1)];
    // Half a second from now, by the clock that stands.
    const at = answered.now + Math.ceil(performance.now() - answered.at) + 500;
    await clock.settledUntil(async () => (await connection.now()) >= at);
    const producer = new Queue(connection, queue.name);
    for (const id of [first, second]) await producer.enqueue({ id, payload: id, at });
    // It has heard of both.
    await clock.settled();
    await new Operator(connection).cancel(queue.name, [second]);
    expect(handled).toEqual([]);
    expect(await clock.clockUntil(() => handled.length > 0)).toBeLessThan(POLL_MS);
    expect(handled).toEqual([first]);
    worker.stop();
    await running;
  });

  it('is not held up by a frozen node, which has some of them, and takes their jobs when it is back', async () => {
    const cluster = await during(Cluster.start({ nodeTimeoutMs: 60_000 }));
    const queue = await parted(16, new Connection(cluster.url));
    await queue.counts();
    const owners = await Promise.all(queue.partitions.map(({ wakeChannel }) => cluster.ownerOf(wakeChannel)));
    const frozen = cluster.nodes.find((node) => node !== owners[0]) as Server;
    afterwards(() => frozen.signal('SIGCONT'));
    const mine = owners.flatMap((owner, i) => (owner === frozen ? [i] : []));
    const awake = [...owners.keys()].filter((i) => !mine.includes(i));
    expect(mine.length).toBeGreaterThan(3);
    // Those that will answer.
    const { clockUntil, advance } = stopClock(...awake.map((i) => queue.partitions[i] as Queue));
    const handled: number[] = [];
    const troubles: unknown[] = [];
    const worker = new Worker([queue], ({ payload }) => handled.push(Number(payload)), {
      concurrency: 10,
      onTrouble: (error) => troubles.push(error),
    });
    const running = worker.run();
    const to = (store: readonly number[]) =>
      store.map((i) => ({ id: Store.of(queue.redis, 'delayq', queue.name).map.newIdOf(i), payload: i }));
    await queue.enqueue(to([...owners.keys()]));
    await clockUntil(() => handled.length === 16);
    // Not yet due: it will be while the node is frozen.
    await queue.enqueue(to(mine).map((job) => ({ ...job, in: 1_000 })));
    frozen.signal('SIGSTOP');
    const waited: number[] = [];
    // Until the first call has failed by its deadline, and others after it.
    for (let after = 0; after < 5; after += troubles.length > 0 ? 1 : 0) {
      const before = handled.length;
      await queue.enqueue(to(awake));
      waited.push(await clockUntil(() => handled.length === before + awake.length));
      advance(500);
    }
    expect(Math.max(...waited)).toBeLessThan(POLL_MS);
    frozen.signal('SIGCONT');
    await clockUntil(() => mine.every((i) => handled.slice(16).includes(i)));
    await clockUntil(async () => (await queue.counts()).active === 0);
    worker.stop();
    await running;
  });
});

describe('a drain whose servers answer in time', () => {
  /** A connection that counts how often it asks for the time. */
  class Asking extends Connection {
    asked = 0;

    override now(key?: string): Promise<number> {
      this.asked += 1;
      return super.now(key);
    }
  }

  it('takes from all queues what was due when it began, although the first answer comes late', async () => {
    const redis = new Asking(redisUrl);
    afterwards(() => redis.close());
    const second = new Queue(redis, freshName());
    class Late extends Queue {
      override async take(options: Parameters<Queue['take']>[0]) {
        const drained = await super.take(options);
        const { due } = await second.counts();
        await second.enqueue({ payload: 'late', in: 1 });
        while ((await second.counts()).due === due);
        return drained;
      }
    }
    const first = new Late(redis, freshName());
    stopClock(first, second);
    for (const queue of [first, second]) await queue.enqueue({ payload: queue.name });
    redis.asked = 0;
    const seen: unknown[] = [];
    for await (const taken of poll([first, second])) seen.push(...payloadsOf(taken));
    expect(seen).toEqual([first.name, second.name]);
    // The answers tell the time.
    expect(redis.asked).toBe(0);
  });

  it('takes the oldest jobs first although they are all in one partition', async () => {
    const queue = await parted(16);
    await queue.enqueue(spread(500, 60_000));
    const old = Array.from({ length: 250 }, (_, i) => ({ payload: -i - 1, at: Date.now() - 3_600_000 + i }));
    await queue.enqueue(old);
    stopClock(queue);
    const seen = await takeAll(poll([queue], { leaseMs: 0 }));
    expect(seen.slice(0, 250)).toEqual(old.map(({ payload }) => payload));
    expect(seen).toHaveLength(750);
  });

  it('of one job at a time follows the order of the whole queue', async () => {
    const queue = await parted(16);
    await queue.enqueue(spread(100, 60_000));
    stopClock(queue);
    const seen = await takeAll(poll([queue], { batch: 1, leaseMs: 60_000 }));
    expect(seen).toEqual(Array.from({ length: 100 }, (_, i) => i));
  });

  it('gives way to a queue before it', async () => {
    const [first, second] = [freshQueue(), await parted(16)];
    await second.enqueue(spread(400, 60_000));
    stopClock(first, second);
    let taken = 0;
    for await (const { queue, jobs } of poll([first, second], { watch: true, leaseMs: 0 })) {
      taken += jobs.length;
      if (queue === first) break;
      await first.enqueue({ payload: 1 });
    }
    // One batch, and the job of the first queue.
    expect(taken).toBeLessThanOrEqual(51);
  });
});

describe('a batch worker', () => {
  it('hands out full batches of one queue as long as there are enough jobs', async () => {
    const [a, b] = [freshQueue(), freshQueue()];
    await a.enqueue(Array.from({ length: 1_250 }, (_, n) => n).map((n) => ({ payload: n })));
    await b.enqueue([0, 1, 2].map((n) => ({ payload: n })));
    stopClock(a, b);
    const sizes: [string, number][] = [];
    await new BatchWorker([a, b], (tasks) => sizes.push([tasks[0]?.queue ?? '', tasks.length]), {
      watch: false,
      batch: 600,
    }).run();
    expect(sizes).toEqual([
      [a.name, 600],
      [a.name, 600],
      [a.name, 50],
      [b.name, 3],
    ]);
  });
});
