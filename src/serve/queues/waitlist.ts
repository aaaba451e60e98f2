import { setImmediate as nextTurn } from 'node:timers/promises';
import type { Wakes } from '../../consume/wakes.js';
import { type Drained, isPassing, type Job, type Queue } from '../../index.js';
import type { Figures } from '../http/figures.js';
import type { Memory } from '../http/memory.js';
import { unavailable } from '../http/refusal.js';
import { Health } from './health.js';
import type { JobSource, Request } from './request.js';

/** The most jobs of a take. */
const MAX_JOBS = 250;

/** The most takes in flight. */
const IN_FLIGHT = 2;

/** The longest time between two takes while requests wait, ms: delivery relies on this alone. */
const POLL_MS = 1_000;

/** The pause before the next take when one has failed, and when too many bytes are in memory, ms. */
const RETRY_MS = 250;

/** How long a take may be silent before requests with other queues go on without it, ms. */
const SILENT_MS = 1_000;

/** What the waitlists of a Redis share. */
export interface Shared {
  readonly wakes: Wakes;
  readonly health: Health;
  readonly memory: Memory;
  /** The name in leases. */
  readonly consumer: string;
  readonly figures: Figures;
  /** Aborts when the server stops: nothing is taken any more. */
  readonly signal: AbortSignal;
  /** Takes, and jobs on their way back: they end before the connection is closed. */
  readonly underWay: Set<Promise<void>>;
}

/**
 * The requests that wait for jobs of a queue, oldest first. One take asks for as many jobs as they want, and hands them
 * out in order. Without jobs, the waitlist sleeps until the next due time, at most a poll interval; the wake channel
 * only shortens the sleep. A take claims its requests, so that none gets jobs of two queues. Jobs for a client that has
 * gone go to the next request, or back to the queue.
 */
export class Waitlist implements JobSource {
  readonly #queue: Queue;
  readonly #shared: Shared;
  readonly #release: (jobs: readonly Job[], leaseMs: number) => void;
  readonly #waiting = new Set<Request>();
  /** Requests that need the answer of a take sent after they came. */
  #fresh = new Set<Request>();
  #inFlight = 0;
  #isPlanned = false;
  /** A take was skipped: no request was free, or two takes were in flight. */
  #isMissed = false;
  /** When to look next, by the monotonic clock, ms; and the timer for that. */
  #lookAt = Number.POSITIVE_INFINITY;
  #timer: NodeJS.Timeout | undefined;
  /**
   * While due jobs wait for the rate of the queue: when it is this waitlist's turn, by the monotonic clock, ms. Asking
   * early gets a later turn, and loses what the rate allows until then.
   */
  #turnAt: number | undefined;
  /** The clock of the queue's server minus the monotonic clock, ms. Before the first answer, all messages are news. */
  #clockOffset = Number.POSITIVE_INFINITY;
  #channels: readonly string[] = [];
  /** While takes fail: ends all waits. */
  #failing: NodeJS.Timeout | undefined;
  failure: unknown;
  /** A take in flight has had no answer for {@link SILENT_MS}. */
  #isSilent = false;

  /** `release` gives jobs back. */
  constructor(queue: Queue, shared: Shared, release: (jobs: readonly Job[], leaseMs: number) => void) {
    this.#queue = queue;
    this.#shared = shared;
    this.#release = release;
  }

  get isIdle(): boolean {
    return this.#waiting.size === 0 && this.#inFlight === 0;
  }

  join(request: Request): void {
    if (this.#shared.signal.aborted) {
      request.expire();
      return;
    }
    if (this.#isSilent && request.hasOthers) {
      request.lost(this, unavailable());
      return;
    }
    this.#waiting.add(request);
    this.#fresh.add(request);
    if (request.mayWait) this.#listen();
    this.#plan();
  }

  leave(request: Request): void {
    this.#fresh.delete(request);
    if (!this.#waiting.delete(request) || this.#waiting.size > 0) return;
    clearTimeout(this.#timer);
    clearTimeout(this.#failing);
    this.#timer = this.#failing = this.failure = undefined;
    for (const channel of this.#channels) this.#shared.wakes.off(channel, this.#dueAt);
    this.#channels = [];
  }

  freed(): void {
    if (this.#isMissed) this.#plan();
  }

  /** Ends all waits. */
  stop(): void {
    for (const request of [...this.#waiting]) request.expire();
  }

  #listen(): void {
    const { partitions } = this.#queue;
    if (this.#channels.length === partitions.length) return;
    this.#channels = partitions.map(({ wakeChannel }) => wakeChannel);
    for (const channel of this.#channels) this.#shared.wakes.on(channel, this.#dueAt);
  }

  /** Looks when a job is due, ms by the clock of the server; NaN if a message is no time. */
  readonly #dueAt = (due: number): void => {
    const at = due - this.#clockOffset;
    if (!(at < this.#lookAt)) return;
    if (at <= performance.now()) this.#plan();
    else this.#sleepUntil(at);
  };

  #sleepUntil(at: number): void {
    this.#lookAt = at;
    clearTimeout(this.#timer);
    // Rounded up, because timers fire early, and asking too early means asking twice.
    this.#timer = setTimeout(() => this.#plan(), Math.ceil(at - performance.now()));
  }

  /** Takes after this turn of the event loop, in which others may come. */
  #plan(): void {
    this.#isMissed = this.#inFlight >= (this.#turnAt === undefined ? IN_FLIGHT : 1);
    if (this.#isPlanned || this.#isMissed || this.#waiting.size === 0) return;
    this.#isPlanned = true;
    setImmediate(() => {
      this.#isPlanned = false;
      if (this.#waiting.size === 0 || this.#shared.signal.aborted) return;
      const { memory } = this.#shared;
      if (this.#turnAt !== undefined && performance.now() < this.#turnAt) this.#awaitTurn(this.#turnAt);
      else if (memory.used >= memory.limit) this.#sleepUntil(performance.now() + RETRY_MS);
      else tracked(this.#shared.underWay, this.#take());
    });
  }

  /** Waits for the turn of this waitlist: before that it gets no job. */
  #awaitTurn(at: number): void {
    const fresh = this.#fresh;
    this.#fresh = new Set();
    for (const request of fresh) request.looked(this);
    if (this.#waiting.size > 0) this.#sleepUntil(at);
  }

  async #take(): Promise<void> {
    const asked = this.#claim();
    const [first] = asked;
    this.#isMissed = !first;
    if (!first) return;
    const { leaseMs } = first;
    const limit = Math.min(
      MAX_JOBS,
      asked.reduce((sum, { count }) => sum + count, 0),
    );
    const fresh = this.#fresh;
    this.#fresh = new Set();
    this.#inFlight++;
    this.#sleepUntil(performance.now() + POLL_MS);
    let isAnswered = false;
    // A process that stood still sees a timer before a reply that came meanwhile.
    const silent = setTimeout(() => setImmediate(() => isAnswered || this.#silent()), SILENT_MS);
    let drained: Drained;
    try {
      drained = await this.#queue.drain({ limit, leaseMs, by: this.#shared.consumer }).finally(() => {
        isAnswered = true;
        clearTimeout(silent);
      });
      // A client may have closed its connection meanwhile: that is read now, before its job is handed out.
      await nextTurn();
    } catch (error) {
      this.#inFlight--;
      // Before the claims end: late requests must not hear that there was no job.
      this.#failed(error);
      this.#awaitNext(fresh);
      for (const request of fresh) if (request.hasOthers) request.looked(this);
      for (const request of asked) request.unclaim(this);
      return;
    } finally {
      this.#isSilent = false;
    }
    this.#inFlight--;
    this.#learn(drained);
    this.#handOut(asked, leaseMs, drained);
    if (drained.state === 'more') this.#awaitNext(fresh);
    else for (const request of fresh) request.looked(this);
    if (drained.state === 'more' || this.#isMissed) this.#plan();
  }

  #awaitNext(fresh: ReadonlySet<Request>): void {
    for (const request of fresh) if (this.#waiting.has(request)) this.#fresh.add(request);
  }

  /** Claims requests for the next take: the first free one, and those after it with the same lease. */
  #claim(): Request[] {
    const asked: Request[] = [];
    let count = 0;
    for (const request of this.#waiting) {
      if (request.isClaimed || request.leaseMs !== (asked[0] ?? request).leaseMs) continue;
      request.claim(this);
      asked.push(request);
      count += request.count;
      if (count >= MAX_JOBS) break;
    }
    return asked;
  }

  #learn({ now, state, next = Number.POSITIVE_INFINITY }: Drained): void {
    clearTimeout(this.#failing);
    this.#failing = this.failure = undefined;
    this.#clockOffset = now - performance.now();
    const at = next - this.#clockOffset;
    this.#turnAt = state === 'limited' ? Math.min(at, performance.now() + POLL_MS) : undefined;
    if (this.#waiting.size === 0) return;
    // Its partitions may be known by now.
    if (this.#channels.length > 0) this.#listen();
    if (at < this.#lookAt) this.#sleepUntil(at);
  }

  #handOut(asked: readonly Request[], leaseMs: number, drained: Drained): void {
    const { jobs } = drained;
    let given = 0;
    const give = (request: Request) => {
      const some = jobs.slice(given, given + request.count);
      given += some.length;
      request.give(this, some, drained);
    };
    for (const request of asked) {
      if (given < jobs.length && this.#waiting.has(request)) give(request);
      else request.unclaim(this);
    }
    if (given === jobs.length) return;
    for (const request of this.#waiting) {
      if (given < jobs.length && !request.isClaimed && request.leaseMs === leaseMs) give(request);
    }
    if (given < jobs.length) this.#release(jobs.slice(given), leaseMs);
  }

  /** Releases requests with other queues. Jobs that the take brings for them go to others, or back. */
  #silent(): void {
    this.#isSilent = true;
    for (const request of [...this.#waiting]) if (request.hasOthers) request.lost(this, unavailable());
  }

  /** Fails requests; long polls after a short hold, to avoid a retry storm. */
  #failed(error: unknown): void {
    this.#shared.health.failed(error);
    for (const request of [...this.#waiting]) if (!request.mayWait || request.isLate) request.lost(this, error);
    if (this.#waiting.size === 0) return;
    this.failure = error;
    this.#sleepUntil(performance.now() + RETRY_MS);
    this.#failing ??= setTimeout(
      () => {
        this.#failing = this.failure = undefined;
        for (const request of [...this.#waiting]) request.lost(this, error);
      },
      isPassing(error) ? Health.holdMs() : 0,
    );
  }
}

/** Keeps a promise in a set until it is settled. */
export function tracked(set: Set<Promise<void>>, promise: Promise<void>): void {
  set.add(promise);
  promise.finally(() => set.delete(promise));
}
