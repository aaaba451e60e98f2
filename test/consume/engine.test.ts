import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isPassing, Leases, poll, type Queue } from '../../src/internal.js';
import { PART_POLL_MS, POLL_MS } from '../../src/store/keys.js';
import { slowRuns } from '../support/property.js';
import { DEADLINE_MS, SimulatedClock, SimulatedQueue, SimulatedServer } from '../support/simulated.js';

/** Steps that take no time in reality take this long here at most, ms: trips, lost races, a turn of others. */
const SOON_MS = 100;

/** After this time without trouble, whatever an outage has delayed is over, ms. */
const RECOVERED_MS = DEADLINE_MS + PART_POLL_MS + POLL_MS;

const LEASE_MS = 20_000;

type Event =
  | {
      readonly do: 'enqueue';
      readonly queue: number;
      readonly part: number;
      readonly in: number;
      readonly heard: boolean;
    }
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'silence'; readonly server: number; readonly ms: number }
  | { readonly do: 'busy'; readonly ms: number }
  | { readonly do: 'noise'; readonly queue: number };

const number = (max: number) => fc.integer({ min: 0, max });
const enqueue = fc.record({
  do: fc.constant('enqueue' as const),
  queue: number(2),
  part: number(3),
  in: fc.oneof(fc.constant(0), number(3_000)),
  heard: fc.boolean(),
});
const calm: fc.Arbitrary<Event>[] = [
  enqueue,
  fc.record({ do: fc.constant('pass' as const), ms: fc.oneof(number(20), number(300), number(3_000)) }),
  fc.record({ do: fc.constant('noise' as const), queue: number(2) }),
];
const trouble: fc.Arbitrary<Event>[] = [
  fc.record({ do: fc.constant('silence' as const), server: number(1), ms: fc.oneof(number(500), number(8_000)) }),
  fc.record({ do: fc.constant('busy' as const), ms: number(4_000) }),
];

const world = (events: fc.Arbitrary<Event>[]) =>
  fc.record({
    queues: fc.array(
      fc.record({ server: number(1), partitions: fc.constantFrom(1, 1, 3), perJobMs: fc.constantFrom(0, 0, 300) }),
      {
        minLength: 1,
        maxLength: 3,
      },
    ),
    ahead: fc.boolean(),
    batch: fc.constantFrom(1, 2, 250),
    events: fc.array(fc.oneof(...events), { maxLength: 40, size: 'max' }),
  });

type World = typeof world extends (events: never) => fc.Arbitrary<infer W> ? W : never;

/** Runs a consumer in a world, with a clock that is moved. */
class Run {
  readonly clock = new SimulatedClock();
  readonly servers = [new SimulatedServer(this.clock, 0), new SimulatedServer(this.clock, 3_600_000)] as const;
  readonly queues: SimulatedQueue[];
  readonly parts: readonly SimulatedQueue[];
  readonly leases = new Leases({ clock: this.clock });
  readonly stop = new AbortController();
  /** By id: when each job came, by the clock. */
  readonly came = new Map<string, number[]>();
  readonly world: World;
  /** Until when the consumer is busy. */
  busyUntil = 0;
  /** It leaves with the next jobs. */
  leaves = false;
  error: unknown;
  isOver = false;
  #made = 0;

  constructor(world: World) {
    this.world = world;
    this.queues = world.queues.map(({ server, partitions, perJobMs }, i) => {
      // A queue has partitions or limits.
      const queue = new SimulatedQueue(this.servers[server] as SimulatedServer, `q${i}`, perJobMs > 0 ? 1 : partitions);
      queue.perJobMs = perJobMs;
      return queue;
    });
    this.parts = this.queues.flatMap(({ all }) => all);
  }

  async consume(watch: boolean): Promise<void> {
    const { ahead, batch } = this.world;
    const { leases, clock } = this;
    const queues = this.queues.map((queue) => queue.asQueue() as Queue);
    try {
      const loop = poll(queues, { watch, ahead, batch, leases, clock, leaseMs: LEASE_MS, signal: this.stop.signal });
      for await (const { jobs } of loop) {
        for (const { id } of jobs) this.came.set(id, [...(this.came.get(id) ?? []), clock.now()]);
        if (this.busyUntil > clock.now()) await clock.sleep(this.busyUntil - clock.now());
        if (this.leaves) {
          await leases.release(jobs);
          break;
        }
        await leases.ack(jobs.map((job) => ({ job })));
      }
    } catch (error) {
      this.error = error;
    }
    this.isOver = true;
  }

  async act(event: Event): Promise<void> {
    if (event.do === 'pass') await this.clock.pass(event.ms);
    else if (event.do === 'silence') this.servers[event.server]?.silence(event.ms);
    else if (event.do === 'busy') this.busyUntil = this.clock.now() + event.ms;
    else {
      const { all } = this.queues[event.queue % this.queues.length] as SimulatedQueue;
      if (event.do === 'noise') for (const part of all) part.redis.publish(part.wakeChannel, Number.NaN);
      else all[event.part % all.length]?.enqueue(`job-${this.#made++}`, event.in, event.heard);
    }
    this.check();
  }

  /** What must be true at each moment. */
  check(): void {
    for (const part of [...this.queues, ...this.parts]) {
      const open = part.calls.filter(({ isOver }) => !isOver);
      expect(open.length, 'calls in flight').toBeLessThanOrEqual(this.world.ahead ? 2 : 1);
      expect(part.early, 'calls before their turns').toBe(0);
    }
  }

  /** Jobs under a lease whose answer was not lost. */
  get held(): number {
    const isHeld = ({ lease }: { lease: { isLost: boolean } | undefined }) => lease?.isLost === false;
    return this.parts.reduce((sum, { jobs }) => sum + [...jobs.values()].filter(isHeld).length, 0);
  }

  get left(): number {
    return this.parts.reduce((sum, { jobs }) => sum + jobs.size, 0);
  }

  async end(): Promise<void> {
    this.stop.abort();
    this.leases.giveUpAfter(0);
    await this.clock.pass(DEADLINE_MS + 1_000);
    expect(this.isOver).toBe(true);
    this.leases.close();
  }
}

describe('a consumer of simulated queues', () => {
  it('gets each job once, and soon after it is due if it heard of it, else at the next poll', async () => {
    await fc.assert(
      fc.asyncProperty(world(calm), async (given) => {
        const run = new Run(given);
        void run.consume(true);
        // It has asked once, knows the partitions, and hears all channels.
        await run.clock.pass(2 * POLL_MS);
        const expected = new Map<string, number>();
        let n = 0;
        for (const event of given.events) {
          if (event.do === 'enqueue') {
            const queue = run.queues[event.queue % run.queues.length] as SimulatedQueue;
            const poll = queue.all.length > 1 ? PART_POLL_MS : POLL_MS;
            if (queue.perJobMs === 0)
              expected.set(`job-${n}`, run.clock.now() + (event.heard ? event.in : Math.max(event.in, poll)));
            n++;
          }
          await run.act(event);
        }
        const limited = run.queues.some(({ perJobMs }) => perJobMs > 0) ? 300 * n : 0;
        await run.clock.pass(PART_POLL_MS + 3_000 + limited + SOON_MS);
        expect(run.came.size).toBe(n);
        for (const [id, times] of run.came) {
          expect(times, id).toHaveLength(1);
          const by = expected.get(id);
          if (by !== undefined) expect(times[0], id).toBeLessThanOrEqual(by + SOON_MS);
        }
        await run.end();
        expect([run.left, run.error]).toEqual([0, undefined]);
      }),
      slowRuns(1_000, 25),
    );
  });

  it('asks no more often than the poll interval, the due times, the messages and the rate call for', async () => {
    await fc.assert(
      fc.asyncProperty(world(calm), async (given) => {
        const run = new Run(given);
        void run.consume(true);
        await run.clock.pass(2 * POLL_MS);
        const calls = () => run.parts.reduce((sum, part) => sum + part.calls.length, 0);
        const [before, began] = [calls(), run.clock.now()];
        let enqueued = 0;
        for (const event of given.events) {
          if (event.do === 'enqueue') enqueued++;
          await run.act(event);
        }
        const passed = run.clock.now() - began;
        const polls = run.parts.length * (passed / POLL_MS + 2);
        // Each job: a look when it is due, a take; queues with priority and one partition in turn before each batch.
        const each = 4 + run.queues.length;
        expect(calls() - before).toBeLessThanOrEqual(polls + each * enqueued);
        await run.end();
      }),
      slowRuns(500, 25),
    );
  });

  it('loses no job and holds none for nobody, whatever is silent, late or busy', async () => {
    await fc.assert(
      fc.asyncProperty(world([...calm, ...trouble]), async (given) => {
        const run = new Run(given);
        void run.consume(true);
        for (const event of given.events) await run.act(event);
        const n = given.events.filter((event) => event.do === 'enqueue').length;
        const quiet = Math.max(
          0,
          run.busyUntil - run.clock.now(),
          ...run.servers.map((one) => one.troubledAt - run.clock.now()),
        );
        await run.clock.pass(quiet + RECOVERED_MS + LEASE_MS + 2 * 300 * n);
        expect(run.left, 'jobs left').toBe(0);
        expect(run.came.size).toBe(n);
        await run.end();
        expect(run.error).toBeUndefined();
      }),
      slowRuns(1_000, 25),
    );
  });

  it('gives back all that it does not handle when it is stopped at any moment', async () => {
    await fc.assert(
      fc.asyncProperty(world([...calm, ...trouble]), number(40), fc.boolean(), async (given, at, leaves) => {
        const run = new Run(given);
        void run.consume(true);
        for (const event of given.events.slice(0, at)) await run.act(event);
        run.leaves = leaves;
        if (leaves) {
          // It leaves one queue while a call for another is under way.
          run.servers[1].silence(2_000);
          for (const queue of [0, 1, 2])
            for (const part of [0, 1, 2]) await run.act({ do: 'enqueue', queue, part, in: 0, heard: true });
          await run.clock.pass(300);
        }
        run.stop.abort();
        run.leases.giveUpAfter(0);
        const quiet = Math.max(
          0,
          run.busyUntil - run.clock.now(),
          ...run.servers.map((one) => one.troubledAt - run.clock.now()),
        );
        await run.clock.pass(quiet + DEADLINE_MS + 2_000);
        expect(run.isOver).toBe(true);
        expect(run.held).toBe(0);
        if (run.error !== undefined) expect(isPassing(run.error)).toBe(true);
        run.leases.close();
        await run.clock.pass(LEASE_MS);
        const now = run.servers.map(({ time }) => time);
        for (const part of run.parts)
          for (const { lease } of part.jobs.values())
            expect(lease && lease.end > (now[run.servers.indexOf(part.redis)] ?? 0)).toBeFalsy();
      }),
      slowRuns(1_000, 25),
    );
  });

  it('that does not watch ends, and has taken all that was due when it began', async () => {
    await fc.assert(
      fc.asyncProperty(world([enqueue, ...trouble]), async (given) => {
        const run = new Run(given);
        for (const event of given.events) if (event.do === 'enqueue') await run.act(event);
        const due = run.parts.flatMap((part) => [...part.jobs.values()].filter((job) => job.due <= part.redis.time));
        void run.consume(false);
        for (const event of given.events) if (event.do !== 'enqueue') await run.act(event);
        await run.clock.pass(8_000 + DEADLINE_MS + 4_000 + 1_000 * given.events.length);
        expect(run.isOver).toBe(true);
        if (run.error === undefined) for (const { id } of due) expect(run.came.get(id), id).toHaveLength(1);
        else expect(isPassing(run.error)).toBe(true);
        run.leases.close();
      }),
      slowRuns(500, 25),
    );
  });
});
