import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Job, Queue } from '../../src/index.js';
import type { Drained } from '../../src/store/jobs.js';
import { Flow } from '../../src/worker/flow.js';
import { ManualClock } from '../support/manual-clock.js';
import { slowRuns } from '../support/property.js';
import { connection } from '../support/redis.js';

const EVENTS = [
  'fetched',
  'empty',
  'ended',
  'slow',
  'pass',
  'surplus',
  'open',
  'close',
  'full',
  'free',
  'drained',
  'stop',
];

it('a worker starts or gives back each job once, fetches one batch at a time, and ends', () => {
  const queue = new Queue(connection, 'flowing');
  const world = fc.record({
    concurrency: fc.integer({ min: 1, max: 4 }),
    batch: fc.integer({ min: 1, max: 4 }),
    watch: fc.boolean(),
    hasLimits: fc.boolean(),
    events: fc.array(fc.constantFrom(...EVENTS), { maxLength: 60, size: 'max' }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
  });
  fc.assert(
    fc.property(world, ({ concurrency, batch, watch, hasLimits, events, share }) => {
      const clock = new ManualClock();
      const circuit = { isOpen: false, calls: Number.MAX_SAFE_INTEGER };
      const throttle = { calls: Number.MAX_SAFE_INTEGER, mayStart: () => throttle.calls > 0 };
      /** Jobs that were fetched, and neither handled nor given back since. */
      const held = new Set<Job>();
      const running: (readonly Job[])[] = [];
      let fetching = 0;
      let made = 0;
      let isOver = false;
      const limits = { circuit, throttle, held: () => held.size, isGivingBack: () => false };
      const flow = new Flow({ concurrency, batch, watch }, limits, clock);
      const leave = (jobs: readonly Job[]) => {
        for (const job of jobs) expect(held.delete(job)).toBe(true);
      };
      const goOn = () => {
        for (let steps = 0; ; steps++) {
          expect(steps).toBeLessThan(1_000);
          const action = flow.next();
          if (!action) return;
          if (action.do === 'end') {
            isOver = true;
            return;
          }
          if (action.do === 'giveBack') leave(action.jobs);
          else if (action.do === 'fetch') {
            expect([fetching, flow.isStopped]).toEqual([0, false]);
            fetching = flow.batch;
          } else {
            expect(action.jobs.length).toBeLessThanOrEqual(batch);
            running.push(action.jobs);
            expect(running.length).toBeLessThanOrEqual(concurrency);
          }
        }
      };
      const fetched = (count: number, state: Drained['state']) => {
        if (fetching === 0) return;
        const jobs = Array.from({ length: count }, () => ({ id: `${made++}`, payload: Buffer.from('1') }) as Job);
        for (const job of jobs) held.add(job);
        fetching = 0;
        flow.answered(queue, { state, hasLimits } as Drained);
        leave(flow.fetched({ queue, jobs, since: clock.now(), leaseMs: 60_000 }));
      };
      const end = (ms: number) => {
        const jobs = running.shift();
        if (!jobs) return;
        flow.ended();
        leave(jobs);
        flow.ran(ms);
      };
      const acts: Record<string, () => void> = {
        fetched: () => fetched(Math.ceil(fetching * share), 'more'),
        empty: () => fetched(Math.floor(fetching * share), 'idle'),
        ended: () => end(1),
        slow: () => end(5_000),
        pass: () => clock.pass(600),
        surplus: () => leave(flow.surplus()),
        open: () => Object.assign(circuit, { isOpen: true, calls: running.length > 0 ? 0 : 1 }),
        close: () => Object.assign(circuit, { isOpen: false, calls: Number.MAX_SAFE_INTEGER }),
        full: () => Object.assign(throttle, { calls: 0 }),
        free: () => Object.assign(throttle, { calls: Number.MAX_SAFE_INTEGER }),
        drained: () => {
          if (fetching > 0) flow.drained();
          fetching = 0;
        },
        stop: () => leave(flow.stop()),
      };
      goOn();
      for (const event of events) {
        acts[event]?.();
        goOn();
        expect(isOver && running.length + fetching + held.size > 0).toBe(false);
      }
      // Whatever has happened, the run ends when there are no more jobs, and no job is left behind.
      for (const event of ['free', 'close', 'empty', 'drained']) {
        acts[event]?.();
        goOn();
      }
      for (let n = 0; !isOver && n < 1_000; n++) {
        for (const event of ['ended', 'drained']) {
          acts[event]?.();
          goOn();
        }
      }
      expect([isOver, held.size]).toEqual([true, 0]);
    }),
    slowRuns(2_000, 5),
  );
});

/** The flow of one handler at a time, which is about to fetch. `mayStart`: whether the throttle lets it start any. */
function flowing(mayStart: boolean) {
  const clock = new ManualClock();
  const throttle = { calls: 1, mayStart: () => mayStart };
  const limits = { circuit: { calls: 1, isOpen: false }, throttle, held: () => 0, isGivingBack: () => false };
  const flow = new Flow({ concurrency: 1, batch: 1, watch: true }, limits, clock);
  const queue = new Queue(connection, 'prefetched');
  let made = 0;
  const fetches = (count: number) => {
    expect(flow.next()?.do).toBe('fetch');
    const jobs = Array.from({ length: count }, () => ({ id: `${made++}`, payload: Buffer.from('1') }) as Job);
    flow.answered(queue, { state: 'more' } as Drained);
    flow.fetched({ queue, jobs, since: clock.now(), leaseMs: 60_000 });
  };
  return { clock, flow, fetches, surplus: () => flow.surplus().map(({ id }) => id) };
}

describe('prefetched jobs', () => {
  it('are given back when they have waited for a second, but for those that start next', () => {
    const { clock, fetches, surplus } = flowing(false);
    fetches(5);
    clock.pass(999);
    expect(surplus()).toEqual([]);
    clock.pass(1);
    expect(surplus()).toEqual(['2', '3', '4']);
    expect(surplus()).toEqual([]);
  });

  it('are all given back after a second if none will start soon', () => {
    const { clock, flow, fetches, surplus } = flowing(true);
    fetches(3);
    expect(flow.next()).toMatchObject({ do: 'start', jobs: [{ id: '0' }] });
    clock.pass(999);
    expect(surplus()).toEqual([]);
    clock.pass(1);
    expect(surplus()).toEqual(['1', '2']);
  });

  it('wait for a second each, counted from their own fetch', () => {
    const { clock, fetches, surplus } = flowing(false);
    fetches(1);
    clock.pass(600);
    fetches(3);
    clock.pass(600);
    expect(surplus()).toEqual([]);
    clock.pass(400);
    expect(surplus()).toEqual(['2', '3']);
  });
});
