import { describe, expect, it } from 'vitest';
import { Connection, Leases, poll, Queue, type Taken } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { ownTime } from '../support/own-time.js';
import { admin, connection, freshName, freshQueue, key, listeners } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const payloadsOf = ({ jobs }: Taken) => jobs.map(({ payload }) => JSON.parse(String(payload)) as unknown);

/** Enqueues a job to a queue that a loop watches. By then the loop has heard of it. */
async function enqueueHeard(queue: Queue, payload: number): Promise<void> {
  let heard = false;
  const listener = connection.listen([queue.wakeChannel], (_, due) => {
    heard ||= Number(due) > 0;
  });
  await until(async () => (await listeners(queue.wakeChannel)) > 1);
  await queue.enqueue({ payload });
  await until(() => heard);
  listener.close();
}

const HOUR_MS = 3_600_000;

/** A queue as if the clock of its server were an hour ahead. */
class Early extends Queue {
  override async take({ cutoff, ...options }: NonNullable<Parameters<Queue['take']>[0]> = {}) {
    const drained = await super.take({ ...options, cutoff: cutoff && cutoff - HOUR_MS });
    return { ...drained, now: drained.now + HOUR_MS, next: drained.next && drained.next + HOUR_MS };
  }
}

describe('a drain loop', () => {
  it('asks the first queue again before each batch', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await high.enqueue({ payload: 'high 1' });
    await low.enqueue([{ payload: 'low 1' }, { payload: 'low 2' }]);
    const seen: unknown[] = [];
    for await (const batch of poll([high, low], { batch: 1, watch: true, forMs: 3_000 })) {
      seen.push(...payloadsOf(batch));
      if (seen.length === 2) await high.enqueue({ payload: 'high 2' });
      if (seen.length === 4) break;
    }
    expect(seen).toEqual(['high 1', 'low 1', 'high 2', 'low 2']);
  });

  it('with `ahead` takes no more than its limit, in order, and holds the leases from the start', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 10 }, (_, i) => ({ payload: i, at: 1_000 + i })));
    const leases = new Leases();
    const seen: unknown[] = [];
    let most = 0;
    for await (const taken of poll([queue], { batch: 2, limit: 7, ahead: true, leases })) {
      await until(() => leases.size > taken.jobs.length || seen.length > 3 || seen.length === 0);
      most = Math.max(most, leases.size);
      seen.push(...payloadsOf(taken));
      await leases.ack(taken.jobs);
    }
    expect({ seen, held: leases.size }).toEqual({ seen: [0, 1, 2, 3, 4, 5, 6], held: 0 });
    expect(most).toBeGreaterThan(2);
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
    leases.close();
  });

  it('with `ahead` yields after a stop the jobs it had taken by then', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 10 }, (_, i) => ({ payload: i, at: 1_000 + i })));
    const stop = new AbortController();
    const seen: unknown[] = [];
    for await (const taken of poll([queue], { batch: 2, leaseMs: 0, ahead: true, signal: stop.signal })) {
      seen.push(...payloadsOf(taken));
      if (seen.length === 4) stop.abort();
    }
    const { pending } = await queue.counts();
    expect(seen).toEqual(Array.from({ length: 10 - pending }, (_, i) => i));
  });

  it('that watches notices a job that falls due before its next poll', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'far', in: '1h' });
    const stop = new AbortController();
    let calls = 0;
    const loop = poll([queue], { watch: true, signal: stop.signal, onDrained: () => calls++ });
    const first = loop.next();
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    await queue.enqueue({ payload: 'near', in: 300 });
    const { value } = await first;
    expect(payloadsOf(value as Taken)).toEqual(['near']);
    // By polling alone it would have looked once a second.
    expect(calls).toBeLessThan(8);
    const second = loop.next();
    stop.abort();
    expect(await second).toEqual({ done: true, value: undefined });
  });

  it('does not look again after a job if the answer said that nothing else is due', async () => {
    const [other, queue] = [freshQueue(), freshQueue()];
    await queue.enqueue([200, 400, 600].map((delay) => ({ payload: delay, in: delay })));
    const calls = new Map<Queue, number>([[other, 0]]);
    const onDrained = (of: Queue) => calls.set(of, (calls.get(of) ?? 0) + 1);
    const seen: unknown[] = [];
    const loop = poll([other, queue], { watch: true, forMs: 900, onDrained });
    for await (const taken of loop) seen.push(...payloadsOf(taken));
    expect(seen).toEqual([200, 400, 600]);
    // One look at the start, one for each job, one at the end. The other queue had nothing to look for in between.
    expect(calls.get(queue)).toBeLessThanOrEqual(5);
    expect(calls.get(other)).toBeLessThanOrEqual(2);
  });

  it('asks only the queue that a message is about', async () => {
    const queues = [freshQueue(), freshQueue(), freshQueue()] as const;
    const asked: Queue[] = [];
    const loop = poll(queues, { watch: true, forMs: 20_000, onDrained: (queue) => asked.push(queue) });
    const next = loop.next();
    // After the second round the times are known, and the next polls are a second away.
    await until(() => asked.length >= 6);
    for (const { wakeChannel } of queues)
      await until(async () => Number(await admin.publish(wakeChannel, 'no number')) > 0);
    asked.length = 0;
    await queues[1].enqueue({ payload: 1 });
    expect(payloadsOf((await next).value as Taken)).toEqual([1]);
    expect(asked).toEqual([queues[1]]);
    await loop.return(undefined);
  });

  it('understands messages about a queue by the clock of its own server', async () => {
    const [there, here] = [new Early(connection, freshName()), freshQueue()];
    let asked = 0;
    const loop = poll([there, here], { watch: true, onDrained: () => asked++ });
    const next = loop.next();
    await until(() => asked >= 2);
    await until(async () => Number(await admin.publish(there.wakeChannel, 'no number')) > 0);
    await until(() => asked >= 4);
    const now = ownTime();
    // As enqueue does, which tells the time of the server.
    await admin.hset(key(there.name, 'payload'), 'a', '1');
    await admin.zadd(key(there.name, 'pending'), 0, 'a');
    await admin.publish(there.wakeChannel, String(Date.now() + HOUR_MS));
    expect(payloadsOf((await next).value as Taken)).toEqual([1]);
    // By the clock of the other server it would be due in an hour, and only the next poll would find it.
    expect(now()).toBeLessThan(500);
    await loop.return(undefined);
  });

  it('without `watch` takes what was due at the start by the clock of each server', async () => {
    const [here, there] = [freshQueue(), new Early(connection, freshName())];
    for (const queue of [here, there]) await queue.enqueue([{ payload: queue.name }, { payload: 'late', in: 1_000 }]);
    const seen: unknown[] = [];
    for await (const taken of poll([here, there])) {
      seen.push(...payloadsOf(taken));
      await until(async () => (await there.counts()).due > 1 || seen.length > 1);
    }
    expect(seen).toEqual([here.name, there.name]);
  });

  it('ends in time, in the middle of a poll interval', async () => {
    const started = performance.now();
    const now = ownTime();
    for await (const _ of poll([freshQueue()], { watch: true, forMs: 200 }));
    expect(performance.now() - started).toBeGreaterThanOrEqual(200);
    expect(now()).toBeLessThan(900);
  });

  it('that does not watch makes one call if one is enough', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    let calls = 0;
    const seen: unknown[] = [];
    for await (const taken of poll([queue], { onDrained: () => calls++ })) seen.push(...payloadsOf(taken));
    expect({ seen, calls }).toEqual({ seen: [1, 2], calls: 1 });
  });

  it('with `ahead` does not miss a job that is enqueued while its consumer is busy', async () => {
    const queue = freshQueue();
    const stop = new AbortController();
    const loop = poll([queue], { batch: 1, watch: true, ahead: true, leaseMs: 0, signal: stop.signal });
    const next = async () => payloadsOf((await loop.next()).value as Taken)[0];
    const first = next();
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    expect([await first, await next()]).toEqual([1, 2]);
    // By now a call without jobs has been answered, too.
    await enqueueHeard(queue, 3);
    const now = ownTime();
    expect(await next()).toBe(3);
    // By polling alone it would have taken a second.
    expect(now()).toBeLessThan(700);
    stop.abort();
    await loop.next();
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
    const loop = poll([queue], { watch: true });
    const next = loop.next();
    await until(() => answered > 0);
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    await enqueueHeard(queue, 1);
    const now = ownTime();
    go();
    expect(payloadsOf((await next).value as Taken)).toEqual([1]);
    expect(now()).toBeLessThan(700);
    await loop.return(undefined);
  });

  it('goes on polling after a message that is no time', async () => {
    const queue = freshQueue();
    const loop = poll([queue], { watch: true, forMs: 5_000 });
    const next = loop.next();
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    await admin.hset(key(queue.name, 'payload'), 'a', '1');
    await admin.zadd(key(queue.name, 'pending'), 0, 'a');
    expect(payloadsOf((await next).value as Taken)).toEqual([1]);
    await loop.return(undefined);
  });

  it('that watches an idle queue polls about once a second', async () => {
    const queue = freshQueue();
    let calls = 0;
    for await (const _ of poll([queue], { watch: true, forMs: 3_500, onDrained: () => calls++ }));
    expect(calls).toBeGreaterThan(1);
    expect(calls).toBeLessThan(7);
  });

  it('that is stopped while Redis is frozen ends without an answer, and gives back the jobs of a late one (failures 15)', async () => {
    const own = await during(Server.start());
    const redis = new Connection(own.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue([1, 2, 3].map((n) => ({ payload: n })));
    const stop = new AbortController();
    const leases = new Leases();
    const loop = poll([queue], { watch: true, signal: stop.signal, leases });
    own.signal('SIGSTOP');
    const taken = loop.next();
    stop.abort();
    leases.giveUpAfter(0);
    await expect(taken).rejects.toMatchObject({ code: 'unknown', next: expect.stringContaining('delivered again') });
    own.signal('SIGCONT');
    await until(async () => (await queue.counts()).stats.delivered === 3);
    await until(async () => (await queue.counts()).pending === 3);
    leases.close();
  });

  it('wakes when the lease of another consumer expires', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    await queue.drain({ leaseMs: 400 });
    for await (const { jobs } of poll([queue], { watch: true, forMs: 10_000 })) {
      expect(jobs).toMatchObject([{ attempt: 2 }]);
      break;
    }
  });
});

it('the clock of Redis is read in ms', async () => {
  expect(Math.abs((await connection.now()) - Date.now())).toBeLessThan(5_000);
});
