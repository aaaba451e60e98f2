import { describe, expect, it, vi } from 'vitest';
import { troubleTeller } from '../../src/consume/trouble.js';
import {
  BatchWorker,
  type BatchWorkerOptions,
  Operator,
  type Queue,
  Release,
  type SettingsChange,
  type Task,
} from '../../src/index.js';
import { Circuit } from '../../src/worker/circuit.js';
import { afterwards } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { ManualClock } from '../support/manual-clock.js';
import { connection, freshQueue } from '../support/redis.js';
import { stopClock } from '../support/stopped-clock.js';

describe('a circuit', () => {
  /** A circuit that opens after three failures, on a clock of the test. */
  const made = () => {
    const clock = new ManualClock();
    const events: string[] = [];
    const running: number[] = [];
    const listener = {
      onOpen: (why: string) => events.push(`open: ${why}`),
      onClose: () => events.push('closed'),
      onReady: () => events.push('ready'),
      startedSince: (time: number) => running.filter((started) => started > time).length,
    };
    const circuit = new Circuit(3, listener, clock);
    const fail = (started = clock.now()) => circuit.failed(started, 'down');
    return { circuit, clock, events, running, fail };
  };

  it('opens after so many failures in a row, which a success ends', () => {
    const { circuit, events, fail } = made();
    for (const ends of [fail, fail, () => circuit.succeeded(), fail, fail]) ends();
    expect([circuit.calls > 1_000_000, events]).toEqual([true, []]);
    fail();
    expect([circuit.calls, circuit.isOpen, events]).toEqual([0, true, ['open: down']]);
  });

  it('then lets one call start after 1 s, 2 s, 4 s … at most 30 s, until one succeeds', () => {
    const { circuit, clock, events, fail } = made();
    for (let n = 0; n < 3; n++) fail();
    const pauses: number[] = [];
    for (let n = 0; n < 7; n++) {
      let ms = 0;
      for (; circuit.calls === 0; ms += 500) clock.pass(500);
      pauses.push(ms);
      expect(circuit.calls).toBe(1);
      fail();
    }
    expect(pauses).toEqual([1_000, 2_000, 4_000, 8_000, 16_000, 30_000, 30_000]);
    clock.pass(30_000);
    circuit.succeeded();
    expect([circuit.calls > 1_000_000, events.at(-1)]).toEqual([true, 'closed']);
    // The next time it begins with a short pause.
    for (let n = 0; n < 3; n++) fail();
    clock.pass(1_000);
    expect(circuit.calls).toBe(1);
  });

  it('lets no second call start while one is tried, and counts no failure of a call that had started before', () => {
    const { circuit, clock, running, fail } = made();
    const before = clock.now();
    clock.pass(10);
    for (let n = 0; n < 3; n++) fail();
    clock.pass(600);
    fail(before);
    clock.pass(400);
    running.push(before);
    expect(circuit.calls).toBe(1);
    running.push(clock.now());
    expect(circuit.calls).toBe(0);
  });

  it('pauses for as long as before when a call gave its job back', () => {
    const { circuit, clock, fail } = made();
    for (let n = 0; n < 3; n++) fail();
    for (let n = 0; n < 3; n++) {
      clock.pass(1_000);
      expect(circuit.calls).toBe(1);
      circuit.released(clock.now());
      expect(circuit.calls).toBe(0);
    }
  });
});

describe('a worker whose handlers all fail', () => {
  /**
   * A run of a worker on a stopped clock, up to the time at which the circuit has opened. Its handlers fail while the
   * service is down.
   */
  const failing = async (
    jobs: number,
    { batch = 1, limits, ...options }: BatchWorkerOptions & { readonly limits?: SettingsChange } = {},
    handler?: (task: Task) => unknown,
  ) => {
    const queue = freshQueue();
    if (limits) await new Operator(connection).configure(queue.name, limits);
    await queue.enqueue(upTo(jobs).map((n) => ({ payload: n, at: 1_000 + n })));
    const clock = stopClock(queue);
    const service = { isDown: true };
    const told: string[] = [];
    const starts: { readonly at: number; readonly jobs: number; readonly active: Promise<number> }[] = [];
    const handle = (tasks: Task[]) => {
      starts.push({ at: performance.now(), jobs: tasks.length, active: queue.counts().then(({ active }) => active) });
      if (service.isDown) throw new Error('down');
      return handler?.(tasks[0] as Task);
    };
    const onTrouble = troubleTeller((what) => told.push(what));
    const worker = new BatchWorker(queue, handle, { maxFailures: 5, onResult: () => {}, onTrouble, batch, ...options });
    const running = worker.run();
    afterwards(() => {
      worker.stop();
      return running;
    });
    const settled = () => clock.settledUntil(async () => (await queue.counts()).active === 0);
    await clock.clockUntil(() => starts.length >= 5);
    await settled();
    const before = starts.length;
    return {
      queue,
      ...clock,
      settled,
      service,
      told,
      starts,
      before,
      tries: () => starts.slice(before),
      worker,
      running,
    };
  };
  const OPENED = '5 failures in a row: one job at a time is tried until one succeeds';

  it('tries one job at a time, holds no other, and goes on at full speed once one succeeds', async () => {
    const { queue, pass, settledUntil, settled, service, told, starts, before, tries } = await failing(100, {
      concurrency: 4,
    });
    // And what was running when it opened.
    expect(before).toBeLessThanOrEqual(5 + 3);
    expect(told).toEqual([OPENED]);
    await pass(16_000, 100);
    await settled();
    const times = [starts[4], ...tries()].map((start) => start?.at ?? 0);
    expect(times).toHaveLength(1 + 4);
    for (const [i, at] of times.slice(1).entries()) {
      expect(at - (times[i] as number)).toBeGreaterThanOrEqual(1_000 * 2 ** i);
      expect(at - (times[i] as number)).toBeLessThan(1_000 * 2 ** i + 500);
    }
    expect(await Promise.all(tries().map(({ active }) => active))).toEqual([1, 1, 1, 1]);
    expect((await queue.counts()).stats).toMatchObject({ retried: before + 4 });
    service.isDown = false;
    await pass(16_000, 100);
    await settledUntil(async () => (await queue.counts()).stats.acked === 100 - before - 4);
    expect(told).toEqual([OPENED, expect.stringMatching(/^handlers work again after 3\ds$/)]);
    expect(Math.max(...(await Promise.all(tries().map(({ active }) => active))))).toBeGreaterThan(1);
  });

  it.each([
    ['a batch', { batch: 10 }, [10, 10]],
    ['a rate', { ratePerSecond: 100, concurrency: 3 }, [1, 1]],
  ])('with %s tries it once at a time', async (_, options, sizes) => {
    const { queue, pass, clockUntil, service, tries } = await failing(200, options);
    await pass(3_900, 100);
    expect(tries().map(({ jobs }) => jobs)).toEqual(sizes);
    service.isDown = false;
    await clockUntil(async () => ((await queue.counts()).stats.acked ?? 0) > 100);
  });

  it.each([{ rate: { jobs: 1, perMs: 1 } }, { maxActive: 3 }])(
    'tries one of a queue with limits: %j',
    async (limits) => {
      const asked: unknown[] = [];
      const onDrained = (queue: Queue) => asked.push(queue);
      const options = { concurrency: 4, onDrained, limits };
      const { queue, pass, clockUntil, settled, service, tries } = await failing(100, options);
      const before = asked.length;
      await pass(3_900, 100);
      await settled();
      expect(tries()).toHaveLength(2);
      expect(asked.length - before).toBeLessThan(10);
      service.isDown = false;
      await clockUntil(async () => ((await queue.counts()).stats.acked ?? 0) > 50);
    },
  );

  it('ends at once when it is stopped in a pause, and has not failed', async () => {
    const { queue, worker, running } = await failing(50, { concurrency: 4 });
    worker.stop();
    expect(await running).toMatchObject({ circuitOpen: false });
    expect(await queue.counts()).toMatchObject({ active: 0, payload: 50 });
  });

  it('ends in time in a pause, and says that it is open', async () => {
    const { pass, running } = await failing(50, { forMs: 5_000 });
    // The pause that begins after 3 s takes 4 s.
    await pass(5_200, 100);
    expect(await running).toMatchObject({ circuitOpen: true });
  });

  it('handles as many jobs as its limit says: those that were given back untried do not count', async () => {
    const { service, pass, before, running } = await failing(100, { limit: 30, concurrency: 4 });
    service.isDown = false;
    await pass(1_100, 100);
    expect(await running).toMatchObject({ acked: 30 - before, retried: before, circuitOpen: false });
  });

  it('learns nothing from a handler that gives its job back, and pauses before the next', async () => {
    const { service, pass, told, tries } = await failing(20, {}, () => {
      throw new Release();
    });
    service.isDown = false;
    await pass(3_900, 100);
    expect(tries()).toHaveLength(3);
    expect(told).toEqual([OPENED]);
  });

  it('tells it on stderr, and that handlers work again, unless it has an onTrouble', async () => {
    const stderr = vi.spyOn(console, 'error').mockImplementation(() => {});
    afterwards(() => stderr.mockRestore());
    const { clockUntil, service } = await failing(10, { onTrouble: undefined });
    service.isDown = false;
    await clockUntil(() => stderr.mock.calls.length > 1);
    expect(stderr.mock.calls.flat()).toEqual([
      `delayq: ${OPENED}\n  why:  down`,
      expect.stringMatching(/^delayq: handlers work again after 1\S*s$/),
    ]);
  });
});
