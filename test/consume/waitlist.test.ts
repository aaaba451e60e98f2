import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UnderWay } from '../../src/consume/under-way.js';
import { Request, Waitlist } from '../../src/consume/waitlist.js';
import { Wakes } from '../../src/consume/wakes.js';
import type { Connection, Job } from '../../src/index.js';
import { POLL_MS } from '../../src/store/keys.js';
import { slowRuns } from '../support/property.js';
import { DEADLINE_MS, SimulatedClock, SimulatedQueue, SimulatedServer } from '../support/simulated.js';

/** Trips, lost races and turns of the event loop take this long here at most, ms. */
const SOON_MS = 100;

const HOLD_MS = 700;
const LEASES_MS = [60_000, 120_000] as const;

type Event =
  | {
      readonly do: 'ask';
      readonly queues: readonly number[];
      readonly count: number;
      readonly lease: number;
      readonly wait: number;
    }
  | { readonly do: 'enqueue'; readonly queue: number; readonly in: number; readonly heard: boolean }
  | { readonly do: 'pass'; readonly ms: number }
  | { readonly do: 'go'; readonly request: number }
  | { readonly do: 'silence'; readonly server: number; readonly ms: number };

const number = (max: number) => fc.integer({ min: 0, max });
const calm: fc.Arbitrary<Event>[] = [
  fc.record({
    do: fc.constant('ask' as const),
    queues: fc.uniqueArray(number(2), { minLength: 1, maxLength: 3 }),
    count: fc.integer({ min: 1, max: 3 }),
    lease: number(1),
    wait: fc.constantFrom(0, 500, 5_000, 60_000),
  }),
  fc.record({
    do: fc.constant('enqueue' as const),
    queue: number(2),
    in: fc.constantFrom(0, 0, 700),
    heard: fc.boolean(),
  }),
  fc.record({ do: fc.constant('pass' as const), ms: fc.oneof(number(20), number(300), number(3_000)) }),
  fc.record({ do: fc.constant('go' as const), request: number(20) }),
];
const silence = fc.record({
  do: fc.constant('silence' as const),
  server: number(1),
  ms: fc.oneof(number(500), number(8_000)),
});
const world = (events: fc.Arbitrary<Event>[]) =>
  fc.record({
    servers: fc.tuple(number(1), number(1), number(1)),
    rates: fc.tuple(...[0, 1, 2].map(() => fc.constantFrom(0, 0, 0, 300))),
    events: fc.array(fc.oneof(...events), { maxLength: 50, size: 'max' }),
  });

type World = typeof world extends (events: never) => fc.Arbitrary<infer W> ? W : never;

/** A request, and what became of it. */
interface Asked {
  readonly request: Request;
  readonly wanted: Extract<Event, { do: 'ask' }>;
  readonly since: number;
  readonly jobs: string[];
  endedAt: number | undefined;
  error: unknown;
  isGone: boolean;
}

/** Requests for jobs of three simulated queues. */
class Run {
  readonly clock = new SimulatedClock();
  readonly servers = [new SimulatedServer(this.clock, 0), new SimulatedServer(this.clock, 3_600_000)] as const;
  readonly queues: readonly SimulatedQueue[];
  readonly waitlists: readonly Waitlist[];
  readonly asked: Asked[] = [];
  readonly figures = { waiting: 0 };
  readonly #wakes = this.servers.map((server) => new Wakes(server as unknown as Connection, this.clock));
  #made = 0;

  constructor({ servers, rates }: World) {
    const stop = new AbortController();
    const host = {
      ...{ clock: this.clock, figures: this.figures, consumer: 'http', signal: stop.signal, underWay: new UnderWay() },
      ...{ hasMemory: () => true, failed: () => HOLD_MS, silent: () => new Error('silent') },
    };
    this.queues = servers.map((server, i) => {
      const queue = new SimulatedQueue(this.servers[server] as SimulatedServer, `q${i}`);
      queue.perJobMs = rates[i] ?? 0;
      return queue;
    });
    const release = (queue: SimulatedQueue) => (jobs: readonly Job[]) => void queue.nackWithin(undefined, jobs);
    this.waitlists = this.queues.map((queue, i) => {
      const wakes = this.#wakes[servers[i] as number] as Wakes;
      return new Waitlist(queue.asQueue(), { ...host, wakes }, release(queue));
    });
    this.#host = { ...host, wakes: this.#wakes[0] as Wakes };
  }

  readonly #host;

  async act(event: Event): Promise<void> {
    if (event.do === 'pass') await this.clock.pass(event.ms);
    else if (event.do === 'silence') this.servers[event.server]?.silence(event.ms);
    else if (event.do === 'enqueue') this.queues[event.queue]?.enqueue(`job-${this.#made++}`, event.in, event.heard);
    else if (event.do === 'go') {
      const asked = this.asked[event.request];
      if (!asked || asked.endedAt !== undefined) return;
      asked.isGone = true;
      asked.request.leave();
    } else this.#ask(event);
    for (const { calls, early } of this.queues) {
      expect(calls.filter(({ isOver }) => !isOver).length, 'takes in flight').toBeLessThanOrEqual(2);
      expect(early, 'takes before their turns').toBe(0);
    }
  }

  #ask(wanted: Extract<Event, { do: 'ask' }>): void {
    const { queues, count, lease, wait } = wanted;
    const asked = { wanted, since: this.clock.now(), jobs: [] as string[], endedAt: undefined, error: undefined };
    const end = (own: Asked) => {
      expect(own.endedAt, 'ends once').toBeUndefined();
      own.endedAt = this.clock.now();
    };
    const own: Asked = Object.assign(asked, {
      isGone: false,
      request: new Request(
        queues.map((i) => this.waitlists[i] as Waitlist),
        { count, leaseMs: LEASES_MS[lease] as number, timeoutMs: wait },
        this.#host,
        (taken) => {
          end(own);
          for (const { queue, jobs } of taken) {
            const from = this.queues[queues[queue] as number] as SimulatedQueue;
            // The answer to a client that has gone cannot be written.
            if (own.isGone) void from.nackWithin(undefined, jobs);
            else own.jobs.push(...jobs.map(({ id }) => id));
            if (!own.isGone) void from.ackWithin(undefined, jobs);
          }
        },
        (error) => {
          end(own);
          own.error = error;
        },
      ),
    });
    this.asked.push(own);
  }

  /** What must be true in the end. */
  async end(): Promise<void> {
    const quiet = Math.max(0, ...this.servers.map(({ troubledAt }) => troubledAt - this.clock.now()));
    await this.clock.pass(quiet + 60_000 + DEADLINE_MS + HOLD_MS + SOON_MS);
    const given = this.asked.flatMap(({ jobs }) => jobs);
    expect(new Set(given).size, 'each job once').toBe(given.length);
    for (const { jobs, wanted, endedAt } of this.asked) {
      expect(jobs.length).toBeLessThanOrEqual(wanted.count);
      expect(endedAt, 'has ended').toBeDefined();
    }
    expect(this.figures.waiting).toBe(0);
    for (const { jobs } of this.queues)
      for (const { id, lease } of jobs.values()) expect(lease?.isLost ?? true, `${id} is held by nobody`).toBe(true);
    for (const wakes of this.#wakes) wakes.close();
  }
}

describe('requests for jobs of simulated queues', () => {
  it('end in time, each with jobs of its own, and leave no job behind, whatever is silent or gone', async () => {
    await fc.assert(
      fc.asyncProperty(world([...calm, silence]), async (given) => {
        const run = new Run(given);
        for (const event of given.events) await run.act(event);
        await run.end();
        for (const { since, wanted, endedAt = 0, error } of run.asked) {
          // Each queue may be silent until the call under way fails, and the next one.
          const longest = wanted.wait + wanted.queues.length * 2 * (DEADLINE_MS + HOLD_MS) + SOON_MS;
          expect(endedAt - since).toBeLessThanOrEqual(longest);
          if (run.servers.every(({ troubledAt }) => troubledAt === 0)) expect(error).toBeUndefined();
        }
      }),
      slowRuns(1_000, 15),
    );
  });

  it('get a job as soon as it is due if their queue heard of it, else at the next poll', async () => {
    await fc.assert(
      fc.asyncProperty(world(calm), async (given) => {
        const run = new Run(given);
        for (const event of given.events) await run.act(event);
        await run.end();
        run.asked.length = 0;
        const [queue] = run.queues as [SimulatedQueue];
        for (const job of [...queue.jobs.keys()]) queue.jobs.delete(job);
        const ask = { do: 'ask', queues: [0], count: 1, lease: 0, wait: 60_000 } as const;
        for (const heard of [true, false]) {
          await run.act(ask);
          await run.clock.pass(2.5 * POLL_MS);
          await run.act({ do: 'enqueue', queue: 0, in: 300, heard });
          await run.clock.pass(300 + (heard ? 0 : POLL_MS) + SOON_MS);
          expect(run.asked.at(-1)?.jobs).toHaveLength(1);
          await run.clock.pass(POLL_MS);
        }
        await run.end();
      }),
      slowRuns(300, 15),
    );
  });
});
