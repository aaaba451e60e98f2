import { afterAll, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest';
import {
  BatchWorker,
  Connection,
  Dead,
  Inspector,
  JsonText,
  Operator,
  Queue,
  Release,
  Retry,
  type Task,
  type TaskResult,
  Worker,
  type WorkerOptions,
} from '../../src/index.js';
import { FaultyProxy } from '../support/proxy.js';
import {
  admin,
  connection,
  freshName,
  freshQueue,
  key,
  listeners,
  redisTargets,
  redisUrl,
  timePasses,
} from '../support/redis.js';
import { Server } from '../support/server.js';
import { allHeard } from '../support/stopped-clock.js';
import { until } from '../support/until.js';

const upTo = (n: number) => Array.from({ length: n }, (_, i) => i);
const inspector = new Inspector(connection);
const forever = (task: Task) =>
  new Promise<never>((_, reject) => {
    task.signal.addEventListener('abort', () => reject(task.signal.reason as Error));
  });

/** What workers tell on stderr. */
let told: string[] = [];
beforeAll(() => {
  vi.spyOn(console, 'error').mockImplementation((text: string) => told.push(text));
});
afterAll(() => vi.restoreAllMocks());

/** Works off what is due and returns what became of it. */
async function workOff(queue: Queue, handler: (task: Task) => unknown, options: WorkerOptions = {}) {
  const results: TaskResult[] = [];
  const worker = new Worker(queue, handler, { watch: false, onResult: (result) => results.push(result), ...options });
  return { summary: await worker.run(), results };
}

/** A gate that handlers wait at. */
function gate() {
  let open = () => {};
  const opened = new Promise<void>((resolve) => {
    open = resolve;
  });
  return { opened, open };
}

describe.concurrent('a worker', () => {
  it('hands each due job to its handler, oldest due first, and removes it', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_000).map((n) => ({ payload: { n }, at: 1_000 + n })));
    await queue.enqueue({ payload: 'later', in: '1h' });
    const seen: unknown[] = [];
    const { summary } = await workOff(queue, (task) => seen.push((task.json() as { n: number }).n));
    expect(seen).toEqual(upTo(1_000));
    expect(summary).toMatchObject({ acked: 1_000, retried: 0, circuitOpen: false });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, lease: 0, stats: { acked: 1_000 } });
  });

  it('gives the handler everything it needs', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { a: 1 }, id: 'a', at: 5, tries: 3 });
    const tasks: Task[] = [];
    await workOff(queue, (task) => {
      tasks.push(task);
      if (tasks.length === 1) throw new Retry(0);
    });
    await workOff(queue, (task) => tasks.push(task));
    expect(tasks).toMatchObject([
      { queue: queue.name, id: 'a', due: 5, attempt: 1, failures: 0, tries: 3, payload: Buffer.from('{"a":1}') },
      { queue: queue.name, id: 'a', attempt: 2, failures: 1, tries: 3 },
    ]);
    expect(tasks[0]?.signal.aborted).toBe(false);
  });

  it('runs as many handlers at the same time as `concurrency` says, and no more', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(40).map((n) => ({ payload: n })));
    let running = 0;
    let most = 0;
    await workOff(
      queue,
      async () => {
        most = Math.max(most, ++running);
        await until(() => most >= 7);
        running -= 1;
      },
      { concurrency: 7 },
    );
    expect(most).toBe(7);
  });

  it('holds only jobs that can start now or next', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_000).map((n) => ({ payload: n })));
    const { opened, open } = gate();
    const worker = new Worker(queue, () => opened, { watch: false, concurrency: 4 });
    const running = worker.run();
    let active = 0;
    await until(async () => {
      active = (await queue.counts()).active;
      return active >= 8;
    });
    expect(active).toBe(8);
    open();
    expect((await running).acked).toBe(1_000);
  });

  it('gives back prefetched jobs when its handlers become slow', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3_000).map((n) => ({ payload: n })));
    const { opened, open } = gate();
    let n = 0;
    const worker = new Worker(queue, () => (++n < 2_000 ? undefined : opened), { watch: true });
    const running = worker.run();
    await until(async () => n >= 2_000 && (await queue.counts()).active === 1);
    expect(await queue.counts()).toMatchObject({ pending: 1_000, meta: 0 });
    worker.stop();
    open();
    expect(await running).toMatchObject({ acked: 2_000 });
  });

  it('leaves a job to another worker while its own handlers are busy', async () => {
    const queue = freshQueue();
    const { opened, open } = gate();
    const seen: string[] = [];
    const busy = new Worker(queue, () => opened.then(() => seen.push('busy')), { watch: true });
    const running = busy.run();
    // While it waits: a busy worker need not listen anew when it learns that this is a cluster.
    await until(async () => (await listeners(queue.wakeChannel)) > 0);
    await queue.enqueue({ payload: 1 });
    await until(async () => (await queue.counts()).active === 1);
    await queue.enqueue({ payload: 2 });
    // The busy worker has heard of it, and would have asked for it by now.
    await allHeard(queue);
    const free = new Worker(queue, () => seen.push('free') && free.stop());
    expect(await free.run()).toMatchObject({ acked: 1 });
    expect(seen).toEqual(['free']);
    busy.stop();
    open();
    expect(await running).toMatchObject({ acked: 1 });
    // Each job once: the busy worker did not give it back, because it never had it.
    expect((await queue.counts()).stats.delivered).toBe(2);
  });

  it('gives a job that it took for its busy handlers to another worker', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const { opened, open } = gate();
    const busy = new Worker(queue, () => opened);
    const running = busy.run();
    await until(async () => (await queue.counts()).active === 2);
    const free = new Worker(queue, () => free.stop());
    expect(await free.run()).toMatchObject({ acked: 1 });
    busy.stop();
    open();
    expect(await running).toMatchObject({ acked: 1, released: 0 });
  });

  it('leaves jobs that fall due together to all workers that are free', async () => {
    const queue = freshQueue();
    const { opened, open } = gate();
    let started = 0;
    const handler = () => {
      started += 1;
      return opened;
    };
    const workers = upTo(6).map(() => new Worker(queue, handler));
    const running = workers.map((worker) => worker.run());
    await until(async () => (await listeners(queue.wakeChannel)) === 6);
    await queue.enqueue(upTo(6).map((n) => ({ payload: n })));
    // As many handlers as jobs, each of which runs until all have started.
    await until(() => started === 6);
    open();
    await until(async () => (await queue.counts()).payload === 0);
    for (const worker of workers) worker.stop();
    await Promise.all(running);
  });

  it('handles all that was due at its start, however slow its handlers are, if it does not watch', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    let n = 0;
    // Longer than a worker that watches would keep the second job.
    const { summary } = await workOff(
      queue,
      () => new Promise((resolve) => setTimeout(resolve, n++ === 0 ? 1_600 : 0)),
    );
    expect(summary).toMatchObject({ acked: 2 });
    expect((await queue.counts()).stats.delivered).toBe(2);
  });

  it('retries a failed job after the backoff until its tries are used up', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', tries: 3 });
    let n = 0;
    const worker = new Worker(
      queue,
      () => {
        throw new Error(`no luck ${++n}`);
      },
      { backoff: [10, 20], onResult: ({ outcome }) => outcome === 'dead' && worker.stop() },
    );
    expect(await worker.run()).toMatchObject({ retried: 2, dead: 1 });
    const [job] = await inspector.show(queue.name, ['a']);
    expect(job).toMatchObject({ state: 'dead', reason: 'failed', error: 'no luck 3', failures: 3, losses: 0 });
  });

  it('does what a handler throws: Dead, Retry or Release', async () => {
    const queue = freshQueue();
    await queue.enqueue(['dead', 'retry', 'release', 'later', 'text'].map((id) => ({ payload: id, id })));
    const { now } = await queue.counts();
    const { results, summary } = await workOff(queue, ({ id }) => {
      if (id === 'dead') throw new Dead('no such order');
      if (id === 'retry') throw new Retry('5m', 'too busy');
      if (id === 'release') throw new Release();
      if (id === 'later') throw new Release('10m');
      throw 'a text';
    });
    expect(summary).toMatchObject({ dead: 1, retried: 2, released: 2, acked: 0 });
    expect(Object.fromEntries(results.map(({ job, delayMs, error }) => [job.id, [delayMs, error]]))).toMatchObject({
      dead: [undefined, 'no such order'],
      retry: [300_000, 'too busy'],
      release: [undefined, undefined],
    });
    const jobs = await inspector.show(queue.name, ['dead', 'retry', 'release', 'later', 'text']);
    expect(jobs).toMatchObject([
      { state: 'dead', reason: 'refused', error: 'no such order' },
      { state: 'pending', failures: 1, error: 'too busy' },
      { state: 'pending', failures: 0 },
      { state: 'pending', failures: 0 },
      { state: 'pending', failures: 1, error: 'a text' },
    ]);
    const after = (await queue.counts()).now;
    for (const [i, ms] of [300_000, 1_000, 600_000].entries()) {
      const due = jobs[i + 1]?.due ?? 0;
      expect(due - now).toBeGreaterThanOrEqual(ms);
      expect(due - after).toBeLessThanOrEqual(ms);
    }
  });

  it('accepts a backoff that is a function of the failures', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const fails = () => Promise.reject(new Error('x'));
    const delays: (number | undefined)[] = [];
    for (let i = 0; i < 3; i++) {
      const { results } = await workOff(queue, fails, { backoff: (failures) => failures * 1_000 });
      delays.push(...results.map(({ delayMs }) => delayMs));
      await timePasses(queue.name, 10_000);
    }
    expect(delays).toEqual([1_000, 2_000, 3_000]);
  });

  it('counts a handler that returns false, or a promise of it, as failed, and no other value', async () => {
    for (const [value, failed] of [
      [false, 1],
      [0, 0],
      ['', 0],
      [null, 0],
      [undefined, 0],
      [{ ok: false }, 0],
    ] as const)
      for (const handler of [() => value, async () => value]) {
        const queue = freshQueue();
        await queue.enqueue({ payload: 1, id: 'a', tries: 1 });
        const { results } = await workOff(queue, handler);
        expect(results.map(({ outcome }) => outcome)).toEqual([failed ? 'dead' : 'acked']);
        const [job] = await inspector.show(queue.name, ['a']);
        expect(job?.error).toBe(failed ? 'the handler returned false' : undefined);
      }
  });

  it('survives a backoff that throws or returns no delay, and a handler that throws anything', async () => {
    const backoffs = [() => Number.NaN, () => 'soon' as never, () => JSON.parse('{')];
    const thrown = [Object.create(null), undefined, null, Symbol('s'), Object.assign(new Error('x'), { message: 7 })];
    for (const backoff of backoffs) {
      const queue = freshQueue();
      await queue.enqueue(thrown.map((_, i) => ({ payload: i })));
      const { summary, results } = await workOff(queue, (task) => Promise.reject(thrown[task.json() as number]), {
        backoff,
      });
      expect(summary).toMatchObject({ retried: 5, acked: 0 });
      for (const { delayMs } of results) expect(delayMs).toBeGreaterThan(11_000);
    }
  });

  it.sequential('starts no handler inside another, although all throw synchronously', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(500).map((n) => ({ payload: n })));
    const [usual, depths] = [Error.stackTraceLimit, new Set<number | undefined>()];
    Error.stackTraceLimit = 1_000;
    const throws = () => {
      const error = new Error('x');
      depths.add(error.stack?.split('\n').length);
      throw error;
    };
    const summary = await new Worker(queue, throws, { watch: false, maxFailures: 1_000, backoff: [60_000] }).run();
    Error.stackTraceLimit = usual;
    expect({ retried: summary.retried, deep: Math.max(...[...depths].map(Number)) > 50 }).toEqual({
      retried: 500,
      deep: false,
    });
  });

  it('does not take a released job again at once', async () => {
    const queue = freshQueue();
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
    ]);
    const { now } = await queue.counts();
    const { summary } = await workOff(queue, () => {
      throw new Release();
    });
    expect(summary).toMatchObject({ released: 2 });
    for (const job of await inspector.show(queue.name, ['a', 'b']))
      expect((job?.due ?? 0) - now).toBeGreaterThanOrEqual(1_000);
    expect(await queue.counts()).toMatchObject({ pending: 2, stats: { delivered: 2, released: 2 } });
  });

  it('handles as many jobs as its limit says, with a rate too', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((n) => ({ payload: n })));
    const { summary } = await workOff(queue, () => {}, { limit: 5, ratePerSecond: 2 });
    expect(summary).toMatchObject({ acked: 5, released: 0 });
    expect((await queue.counts()).stats.delivered).toBe(5);
  });

  it('takes no job twice while it waits for the rate', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(4).map((n) => ({ payload: n })));
    await workOff(queue, () => {}, { ratePerSecond: 1.2 });
    expect((await queue.counts()).stats.delivered).toBe(4);
  });

  it('without watch takes no job of any queue that fell due after its start', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await high.enqueue({ payload: 1 });
    const enqueue = async () => {
      // On a cluster the start is known no better than the first answer about `low` is quick.
      await low.enqueue({ payload: 'new', in: 300 });
      await until(async () => (await low.counts()).due === 1);
    };
    const worker = new Worker([high, low], enqueue, { watch: false });
    expect(await worker.run()).toMatchObject({ acked: 1 });
    expect((await low.counts()).pending).toBe(1);
  });

  it('whose beforeStart throws fails with that error, and gives everything back', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const beforeStart = () => {
      throw new Error('no idea');
    };
    await expect(workOff(queue, () => {}, { beforeStart })).rejects.toThrow('no idea');
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0 });
  });

  it('whose beforeStart rejects fails with that error, too', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const beforeStart = async () => Promise.reject(new Error('limiter down'));
    await expect(workOff(queue, () => {}, { beforeStart })).rejects.toThrow('limiter down');
    expect(await queue.counts()).toMatchObject({ pending: 2, active: 0 });
  });

  it('goes on when a handler throws an error that cannot be read', async () => {
    const queue = freshQueue();
    await queue.enqueue(['message', 'stack', 'name', 'proxy', 'cause'].map((payload) => ({ payload, tries: 1 })));
    const { proxy, revoke } = Proxy.revocable({}, {});
    revoke();
    const unreadable = (part: string) =>
      Object.defineProperty(new Error('x'), part, {
        get() {
          throw new Error('no');
        },
      });
    await workOff(queue, (job) => {
      throw job.json() === 'proxy' ? proxy : unreadable(String(job.json()));
    });
    expect(await queue.counts()).toMatchObject({ dead: 5, active: 0 });
  });

  it('starts no handler while the promise of beforeStart is pending', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
    const { opened, open } = gate();
    let n = 0;
    const beforeStart = () => (n === 1 ? opened.then(() => n++) : undefined);
    const running = workOff(queue, () => n++, { beforeStart });
    await until(async () => (await queue.counts()).stats.acked === 1);
    expect(n).toBe(1);
    open();
    expect((await running).summary.acked).toBe(2);
  });

  it('stops after `maxFailures` failures in a row, and gives the rest back', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(100).map((n) => ({ payload: n, at: 1_000 + n })));
    const { summary } = await workOff(
      queue,
      (task) => {
        if (task.json() !== 3) throw new Error('down');
      },
      { maxFailures: 5 },
    );
    expect(summary).toMatchObject({ acked: 1, retried: 8, circuitOpen: true });
    const { pending, active, meta } = await queue.counts();
    expect({ pending, active, meta }).toEqual({ pending: 99, active: 0, meta: 8 });
  });

  it('starts no more handlers than the rate allows', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10).map((n) => ({ payload: n })));
    const starts: number[] = [];
    await workOff(queue, () => starts.push(performance.now()), { ratePerSecond: 50, concurrency: 5 });
    // Ten starts have nine gaps of 20 ms; how late they are is not what is asked here. The handler is called, and looks at
    // the clock, a moment after its start.
    expect((starts.at(-1) as number) - (starts[0] as number)).toBeGreaterThanOrEqual(8 * 20);
  });

  it('serves several queues, the first one before the others', async () => {
    const [high, low] = [freshQueue(), freshQueue()];
    await low.enqueue(upTo(3).map((n) => ({ payload: `low ${n}` })));
    await high.enqueue(upTo(3).map((n) => ({ payload: `high ${n}` })));
    const seen: unknown[] = [];
    await new Worker([high, low], (task) => seen.push(task.json()), { watch: false }).run();
    expect(seen).toEqual(['high 0', 'high 1', 'high 2', 'low 0', 'low 1', 'low 2']);
  });

  it('without watch ends although its handlers enqueue new due jobs', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(50).map((n) => ({ payload: n })));
    const { summary } = await workOff(queue, () => queue.enqueue({ payload: 'again', in: 2 }));
    expect(summary.acked).toBe(50);
    expect((await queue.counts()).pending).toBe(50);
  });

  it('uses the lease and the backoff of the queue by default', async () => {
    const queue = freshQueue();
    await new Operator(connection).configure(queue.name, { lease: 123_000, backoff: [7_000], tries: 9 });
    await queue.enqueue({ payload: 1, id: 'a' });
    let ends = 0;
    const { results } = await workOff(queue, async (task) => {
      expect(task.tries).toBe(9);
      ends = Number(await admin.zscore(key(queue.name, 'active'), 'a'));
      throw new Error('x');
    });
    expect(ends - (await queue.counts()).now).toBeGreaterThan(110_000);
    expect(results[0]?.delayMs).toBe(7_000);
  });

  it('cannot run twice, and refuses invalid options', async () => {
    const queue = freshQueue();
    const worker = new Worker(queue, () => {}, { watch: false });
    await worker.run();
    await expect(worker.run()).rejects.toMatchObject({ code: 'usage' });
    for (const options of [
      { concurrency: 0 },
      { backoff: '5' },
      { backoff: [] },
      { leaseMs: 0 },
      { timeoutMs: Number.NaN },
      { ratePerSecond: 0 },
    ])
      expect(() => new Worker(queue, () => {}, options)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('a failure of a handler', () => {
  beforeEach(() => {
    told = [];
  });

  const failing = async (handler: () => unknown, options: WorkerOptions = {}) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', at: 1 });
    await new Worker(queue, handler, { watch: false, backoff: [60_000], ...options }).run();
    return queue.name;
  };

  it('is told once on stderr, with the stack and its causes', async () => {
    const name = await failing(() => {
      throw new Error('HTTP 500', { cause: new Error('connection refused') });
    });
    expect(told).toHaveLength(1);
    const [first, ...rest] = (told[0] as string).split('\n');
    expect(first).toBe(`delayq: ${name}: job "a" failed at attempt 1 (retry in 1m): Error: HTTP 500`);
    expect(rest[0]).toContain('worker.test.ts:');
    expect(rest).toContain('caused by: Error: connection refused');
  });

  it('that the handler wants is told in a line', async () => {
    const name = await failing(() => {
      throw new Dead('no such order');
    });
    expect(told).toEqual([`delayq: ${name}: job "a" failed at attempt 1 (dead): no such order`]);
  });

  it('with something that is no error is told', async () => {
    const name = await failing(() => Promise.reject('text'));
    expect(told).toEqual([`delayq: ${name}: job "a" failed at attempt 1 (retry in 1m): text`]);
  });

  it('cannot control the terminal', async () => {
    await failing(() => {
      throw new Error('\x1b[31mred\x9b');
    });
    expect(told[0]).toContain('Error: \\u001b[31mred\\u009b\n');
  });

  it('of a batch is told for each job, and its stack once', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(3).map((n) => ({ payload: n, id: `${n}`, at: 1 + n })));
    const fail = () => Promise.reject(new Error('no database'));
    await new BatchWorker(queue, fail, { watch: false, backoff: [60_000] }).run();
    expect(told.map((text) => text.split('\n').length > 1)).toEqual([true, false, false]);
    expect(told.map((text) => /job "(.)".*no database/.exec(text)?.[1])).toEqual(['0', '1', '2']);
  });

  it('is left to onResult, which gets what was thrown', async () => {
    const error = new Error('no');
    const results: TaskResult[] = [];
    await failing(() => Promise.reject(error), { onResult: (result) => results.push(result) });
    expect(results).toMatchObject([{ outcome: 'retried', error: 'no' }]);
    expect(results[0]?.thrown).toBe(error);
    expect(told).toEqual([]);
  });

  it('by too many releases is told, too', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await admin.hset(key(queue.name, 'meta'), 'a', '{"releases":1}');
    await new Worker(queue, () => Promise.reject(new Release()), { watch: false, maxReleases: 1 }).run();
    expect(told).toEqual([`delayq: ${queue.name}: job "a" is dead: it was released too often`]);
  });

  it('is not what success, release and a lost lease are', async () => {
    await failing(() => {});
    await failing(() => {
      throw new Release(60_000);
    });
    expect(told).toEqual([]);
  });
});

describe.concurrent('a lease', () => {
  it('is renewed while the handler runs', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const end = async () => Number(await admin.zscore(key(queue.name, 'active'), 'a'));
    const { summary } = await workOff(
      queue,
      async () => {
        const first = await end();
        await until(async () => (await end()) > first + 1_000);
      },
      { leaseMs: 500 },
    );
    expect(summary).toMatchObject({ acked: 1, lost: 0 });
    expect((await queue.counts()).stats.lost).toBe(undefined);
  });

  it('that was lost aborts the handler, whose job is neither removed nor given back (failures 12)', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    let reason = '';
    const { summary } = await workOff(
      queue,
      async (task) => {
        await timePasses(queue.name, 5_000);
        expect((await queue.drain({ leaseMs: 60_000 })).jobs).toMatchObject([{ attempt: 2 }]);
        await forever(task).catch((error: Error) => {
          reason = error.message;
          throw error;
        });
      },
      // With one job its loop is over: it would take the job back itself otherwise.
      { leaseMs: 1_000, limit: 1 },
    );
    expect(summary).toMatchObject({ lost: 1, acked: 0, retried: 0, released: 0 });
    expect(reason).toContain('lease lost');
    expect(await queue.counts()).toMatchObject({ active: 1, pending: 0, payload: 1 });
  });

  it('that was superseded lets the handler run to its end, which is not a failure', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 'old', id: 'a' });
    const { summary } = await workOff(
      queue,
      async (task) => {
        await queue.enqueue({ payload: 'new', id: 'a', in: '1h' }, { ifExists: 'replace' });
        expect((await queue.counts()).lease).toBe(1);
        // A renewal has heard of it, and has removed the mark.
        await until(async () => (await queue.counts()).lease === 0);
        expect(task.signal.aborted).toBe(false);
      },
      { leaseMs: 300 },
    );
    expect(summary).toMatchObject({ superseded: 1, lost: 0, acked: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, lease: 0 });
  });
});

describe.concurrent('a handler that takes too long', () => {
  it('is aborted, and its job has failed', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { summary, results } = await workOff(queue, forever, { timeoutMs: 50 });
    expect(summary).toMatchObject({ retried: 1 });
    expect(results[0]?.error).toBe('timed out after 50ms');
  });

  it('and does not end after that is abandoned, and its slot is free', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 'stuck' }, { payload: 'next' }]);
    const seen: unknown[] = [];
    const { summary } = await workOff(
      queue,
      (task) => {
        seen.push(task.json());
        return task.json() === 'stuck' ? new Promise(() => {}) : undefined;
      },
      { timeoutMs: 50, abandonMs: 50 },
    );
    expect(seen).toEqual(['stuck', 'next']);
    expect(summary).toMatchObject({ retried: 1, acked: 1 });
  });
});

describe.concurrent('a worker at the end of its block (await using)', () => {
  it('stops, and is waited for', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { opened, open } = gate();
    let state = 'waiting';
    const worker = new Worker(queue, async () => {
      state = 'started';
      await opened;
      state = 'ended';
    });
    const run = worker.run();
    await until(() => state === 'started');
    const disposed = worker[Symbol.asyncDispose]();
    open();
    await disposed;
    expect(state).toBe('ended');
    expect(await queue.counts()).toMatchObject({ active: 0, stats: { acked: 1 } });
    expect(await run).toMatchObject({ acked: 1 });
  });

  it('leaves its error to the run, and need not have run', async () => {
    await new Worker(freshQueue(), () => {})[Symbol.asyncDispose]();
    const queue = freshQueue();
    await admin.set(key(queue.name, 'pending'), 'wrong type');
    const worker = new Worker(queue, () => {});
    const run = worker.run();
    run.catch(() => {});
    await worker[Symbol.asyncDispose]();
    await expect(run).rejects.toMatchObject({ code: 'config' });
  });

  it('closes a connection', async () => {
    const redis = new Connection(redisUrl);
    await redis.connect();
    await redis[Symbol.asyncDispose]();
    await expect(redis.now()).rejects.toMatchObject({ code: 'usage' });
  });
});

describe.concurrent('a worker that is stopped', () => {
  it('lets running handlers finish and gives the rest back (failures 15)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((n) => ({ payload: n })));
    const { opened, open } = gate();
    let n = 0;
    const worker = new Worker(
      queue,
      () => {
        n += 1;
        return opened;
      },
      { concurrency: 3 },
    );
    const running = worker.run();
    await until(() => n === 3);
    worker.stop();
    await until(async () => (await queue.counts()).active === 3);
    open();
    expect(await running).toMatchObject({ acked: 3, released: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 17, active: 0, meta: 0 });
  });

  it.sequential('aborts handlers at the end of grace and gives their jobs back, counting nothing (failures 15)', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: 'heeds' }, { payload: 'does not' }]);
    const stop = new AbortController();
    let n = 0;
    const worker = new Worker(
      queue,
      (task) => {
        n += 1;
        return task.json() === 'heeds' ? forever(task) : new Promise(() => {});
      },
      { concurrency: 2, graceMs: 50, abandonMs: 50, signal: stop.signal },
    );
    const running = worker.run();
    await until(() => n === 2);
    stop.abort();
    expect(await running).toMatchObject({ released: 2, retried: 0 });
    expect(await queue.counts()).toMatchObject({ pending: 2, due: 2, active: 0, meta: 0 });
  });

  it('before it has started takes nothing', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { summary } = await workOff(queue, () => {}, { signal: AbortSignal.abort() });
    expect(summary.acked).toBe(0);
    expect((await queue.counts()).pending).toBe(1);
  });

  it('by its own handler ends after that handler', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n })));
    const worker = new Worker(queue, () => worker.stop());
    expect(await worker.run()).toMatchObject({ acked: 1 });
    expect(await queue.counts()).toMatchObject({ pending: 4, active: 0 });
  });
});

describe.concurrent('a batch worker', () => {
  it('settles a batch as one', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(25).map((n) => ({ payload: n, at: 1_000 + n })));
    let n = 0;
    const worker = new BatchWorker(
      queue,
      () => {
        if (n++ === 1) throw new Error('bad batch');
      },
      { batch: 10, watch: false },
    );
    expect(await worker.run()).toMatchObject({ acked: 15, retried: 10 });
    expect(await queue.counts()).toMatchObject({ pending: 10, payload: 10, meta: 10 });
  });

  it.sequential('with a batch of 10,000 asks Redis for no more than one call can take (failures 25)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(10_500).map((n) => ({ payload: n })));
    const sizes: number[] = [];
    await new BatchWorker(queue, (tasks) => sizes.push(tasks.length), { batch: 10_000, watch: false }).run();
    expect([sizes[0], sizes.reduce((sum, size) => sum + size)]).toEqual([10_000, 10_500]);
  });

  it.sequential('with large payloads makes batches of about 16 MiB, and prefetches no more (failures 39)', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(40).map(() => ({ payload: JsonText.from('x'.repeat(1024 * 1024)) })));
    const sizes: number[] = [];
    let [taken, settled, most] = [0, 0, 0];
    const handler = async (tasks: Task[]) => {
      sizes.push(tasks.length);
      const started = performance.now();
      // Until the buffer is full as well; but a handler that takes a second is slow, and gets nothing ahead.
      await until(() => taken === 40 || taken - settled >= tasks.length + 16 || performance.now() > started + 900);
    };
    const onDrained: WorkerOptions['onDrained'] = (_, { jobs }) => {
      taken += jobs.length;
      most = Math.max(most, taken - settled);
    };
    const onResult = () => {
      settled += 1;
    };
    await new BatchWorker(queue, handler, { batch: 100, watch: false, onDrained, onResult }).run();
    expect(sizes.reduce((sum, size) => sum + size)).toBe(40);
    expect(Math.max(...sizes)).toBeLessThanOrEqual(17);
    expect(most).toBeLessThanOrEqual(34);
  });
});

describe.concurrent('a worker and a Redis in trouble', () => {
  const through = async (name: string) => {
    const proxy = await FaultyProxy.start(...redisTargets);
    const redis = new Connection(proxy.url);
    return {
      proxy,
      queue: new Queue(redis, name),
      close: async () => {
        redis.close();
        await proxy.stop();
      },
    };
  };

  it.each(['ack or drain', 'nack'])('loses nothing when the replies of %s are lost (failures 8)', async (which) => {
    const queue = freshQueue();
    await queue.enqueue(upTo(60).map((n) => ({ payload: n, id: `j${n}` })));
    const { proxy, queue: faulty, close } = await through(queue.name);
    const seen: string[] = [];
    const worker = new Worker(
      faulty,
      (task) => {
        seen.push(task.id);
        if (seen.length === 20) proxy.fault = { word: which === 'nack' ? 'retry' : 'EVAL', kind: 'cut', times: 2 };
        if (which === 'nack' && task.failures === 0) throw new Retry(0);
      },
      { concurrency: 3, leaseMs: 2_000, maxFailures: 1_000 },
    );
    const running = worker.run();
    await until(async () => {
      const { pending, active } = await queue.counts();
      return pending + active === 0;
    });
    worker.stop();
    await running;
    expect(proxy.struck).toBeGreaterThan(0);
    expect(new Set(seen).size).toBe(60);
    const { stats, payload, dead } = await queue.counts();
    expect({ payload, dead, acked: stats.acked }).toEqual({ payload: 0, dead: 0, acked: 60 });
    await close();
  });

  it('survives a restart of Redis while its handlers run', async () => {
    const server = await Server.start({ args: ['--appendonly', 'yes', '--appendfsync', 'always'] });
    const redis = new Connection(server.url);
    const queue = new Queue(redis, freshName());
    await queue.enqueue(upTo(6).map((n) => ({ payload: n })));
    const { opened, open } = gate();
    const troubles: (string | undefined)[] = [];
    let n = 0;
    const worker = new Worker(queue, () => (++n === 3 ? opened : undefined), {
      leaseMs: 10_000,
      onTrouble: (error) => troubles.push(error?.code),
    });
    const running = worker.run();
    await until(() => n === 3);
    await server.end('SIGKILL');
    open();
    await until(() => troubles.length > 0);
    await server.run();
    // Jobs that a drain took whose reply died with Redis come after their lease.
    await until(() => n >= 6, 90_000);
    await until(async () => (await queue.counts()).payload === 0);
    worker.stop();
    expect((await running).lost).toBe(0);
    expect(troubles.at(-1)).toBe(undefined);
    redis.close();
    await server.stop();
  }, 150_000);

  it('settles 1,000 jobs at once although replies are lost again and again', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(1_000).map((n) => ({ payload: n, id: `j${n}`, at: 1_000 + n })));
    const { proxy, queue: faulty, close } = await through(queue.name);
    // Only one of the acks names this job.
    proxy.fault = { word: 'j700', kind: 'cut', times: 3 };
    const summary = await new BatchWorker(faulty, () => {}, { batch: 1_000, watch: false }).run();
    expect({ summary, struck: proxy.struck }).toMatchObject({ summary: { acked: 1_000, lost: 0 }, struck: 3 });
    expect((await queue.counts()).payload).toBe(0);
    await close();
  });

  it('throws an error that does not pass, and its jobs are delivered again', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(5).map((n) => ({ payload: n })));
    const { opened, open } = gate();
    let n = 0;
    const running = new Worker(
      queue,
      () => {
        n += 1;
        return opened;
      },
      { concurrency: 1 },
    ).run();
    await until(() => n === 1);
    await admin.rename(key(queue.name, 'lease'), key(queue.name, 'aside'));
    await admin.set(key(queue.name, 'lease'), 'no hash');
    open();
    await expect(running).rejects.toMatchObject({ code: 'config' });
    await admin.rename(key(queue.name, 'aside'), key(queue.name, 'lease'));
    expect((await queue.counts()).payload).toBe(5);
  });
});
