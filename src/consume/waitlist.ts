import { setImmediate as nextTurn } from 'node:timers/promises';
import { isPassing } from '../model/errors.js';
import type { Job } from '../model/job.js';
import type { Clock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { POLL_MS } from '../store/keys.js';
import { MAX_CALL } from '../store/script.js';
import { Source } from './source.js';
import type { UnderWay } from './under-way.js';
import type { Wakes } from './wakes.js';

/** The most takes in flight. */
const IN_FLIGHT = 2;

/** The pause before the next take when one has failed, and when too many bytes are in memory, ms. */
const RETRY_MS = 250;

/** How long a take may be silent before requests with other queues go on without it, ms. */
const SILENT_MS = 1_000;

/** What the waitlists of a Redis share. */
export interface WaitlistHost {
  readonly clock: Clock;
  readonly wakes: Wakes;
  /** The name in leases. */
  readonly consumer: string;
  readonly figures: { waiting: number };
  /** Aborts when the process stops: nothing is taken any more. */
  readonly signal: AbortSignal;
  /** Takes, and jobs on their way back: they end before the connection is closed. */
  readonly underWay: UnderWay;
  /** Whether there is memory for more jobs. */
  hasMemory(): boolean;
  /** Called when a take has failed. Returns how long to hold back this failure from those who can wait, ms. */
  failed(error: unknown): number;
  /** Makes the error for a request whose take is silent. */
  silent(): unknown;
}

/** What a request gets: jobs of one of its queues. */
export interface JobsOfQueue {
  /** The index of the queue in the request. */
  readonly queue: number;
  readonly jobs: readonly Job[];
  /** The time of Redis's clock, ms. */
  readonly now: number;
}

/** What a request asks for. Times are ms. */
export interface Wanted {
  readonly count: number;
  readonly leaseMs: number;
  /** How long to wait; 0: not at all. */
  readonly timeoutMs: number;
}

/**
 * A request for jobs of some queues. First asks their waitlists one after the other, so that the order of the queues is
 * their priority; then waits for the first jobs of any. A queue in trouble does not hold up the others: the request
 * fails only if none of them had a job.
 */
export class Request {
  readonly leaseMs: number;
  /** How many more jobs it wants. */
  count: number;
  mayWait: boolean;
  readonly #waitlists: readonly Waitlist[];
  readonly #end: (taken: readonly JobsOfQueue[]) => void;
  readonly #fail: (error: unknown) => void;
  readonly #host: WaitlistHost;
  readonly #cancelTimer: (() => void) | undefined;
  readonly #taken: JobsOfQueue[] = [];
  /** The first queue that has not yet answered that it is empty. */
  #next = 0;
  /** The only waitlist that may bring its jobs: a take for them is in flight. */
  #claimant: Waitlist | undefined;
  /** The queues that could not be used, and why the first of them could not. */
  readonly #lost = new Set<Waitlist>();
  #failure: unknown;
  /** It has its answer, or its client has gone. */
  isOver = false;
  /** Its time is over: it ends as soon as no take asks for its jobs. */
  isLate = false;

  /** Calls `end` with what it got, which may be nothing, or `fail`. */
  constructor(
    waitlists: readonly Waitlist[],
    { count, leaseMs, timeoutMs }: Wanted,
    host: WaitlistHost,
    end: (taken: readonly JobsOfQueue[]) => void,
    fail: (error: unknown) => void,
  ) {
    this.count = count;
    this.leaseMs = leaseMs;
    this.mayWait = timeoutMs > 0;
    this.#waitlists = waitlists;
    this.#host = host;
    host.figures.waiting++;
    this.#end = end;
    this.#fail = fail;
    this.#cancelTimer = this.mayWait ? host.clock.after(timeoutMs, () => this.expire()) : undefined;
    waitlists[0]?.join(this);
  }

  /** Called by a waitlist that has handed out all jobs that were there when the request came. */
  looked(waitlist: Waitlist): void {
    if (this.isOver || this.#waitlists[this.#next] !== waitlist) return;
    this.#next++;
    const next = this.#waitlists[this.#next];
    if (next) next.join(this);
    else if (!this.mayWait) this.expire();
  }

  /** Ends the wait. While takes fail, it is unknown whether there was a job. */
  expire(): void {
    this.isLate = true;
    if (this.isClaimed) return;
    const failure = this.#failure ?? this.#waitlists.find((waitlist) => waitlist.failure !== undefined)?.failure;
    if (failure !== undefined) this.fail(failure);
    else this.leave();
  }

  get isClaimed(): boolean {
    return this.#claimant !== undefined;
  }

  claim(waitlist: Waitlist): void {
    this.#claimant = waitlist;
  }

  /** Ends the claim of a waitlist that has no jobs for it. */
  unclaim(waitlist: Waitlist): void {
    if (this.#claimant !== waitlist) return;
    this.#claimant = undefined;
    if (this.isOver) return;
    if (this.isLate) this.expire();
    else for (const other of this.#waitlists) if (other !== waitlist) other.freed();
  }

  give(waitlist: Waitlist, jobs: readonly Job[], { now }: Drained): void {
    const queue = this.#waitlists.indexOf(waitlist);
    this.#taken.push({ queue, jobs, now });
    this.count -= jobs.length;
    this.#claimant = undefined;
    if (this.count === 0 || this.isLate || queue !== this.#next || queue === this.#waitlists.length - 1) {
      this.leave();
      return;
    }
    // Later queues may have more jobs, but the request does not wait for them.
    this.mayWait = false;
    for (const known of this.#waitlists) known.leave(this);
    this.looked(waitlist);
  }

  /** Whether it has other queues than the one that fails. */
  get hasOthers(): boolean {
    return this.#waitlists.length - this.#lost.size > 1;
  }

  /** Called by a waitlist whose queue cannot be used. */
  lost(waitlist: Waitlist, error: unknown): void {
    if (!this.hasOthers) {
      this.fail(this.#failure ?? error);
      return;
    }
    this.#failure ??= error;
    this.#lost.add(waitlist);
    waitlist.leave(this);
    this.looked(waitlist);
    this.unclaim(waitlist);
  }

  /** Ends it with an error, unless it has got jobs. */
  fail(error: unknown): void {
    if (this.#taken.length > 0) this.leave();
    else this.#over(() => this.#fail(error));
  }

  /** Takes no more jobs: the client may have gone. */
  leave(): void {
    this.#over(() => this.#end(this.#taken));
  }

  #over(tell: () => void): void {
    if (this.isOver) return;
    this.isOver = true;
    this.#host.figures.waiting--;
    this.#cancelTimer?.();
    for (const waitlist of this.#waitlists) waitlist.leave(this);
    tell();
  }
}

/**
 * The requests that wait for jobs of a queue, oldest first. One take asks for as many jobs as they want, and hands them
 * out in order. Without jobs, the waitlist sleeps until its {@link Source} says that it is time to look. A take claims
 * its requests, so that none gets jobs of two queues. Jobs for a client that has gone go to the next request, or back to
 * the queue.
 */
export class Waitlist {
  readonly #queue: Queue;
  readonly #host: WaitlistHost;
  readonly #release: (jobs: readonly Job[], leaseMs: number) => void;
  readonly #source: Source;
  readonly #waiting = new Set<Request>();
  /** Requests that need the answer of a take sent after they came. */
  #fresh = new Set<Request>();
  #inFlight = 0;
  #isPlanned = false;
  #cancelTimer = () => {};
  #channels: readonly string[] = [];
  /** While takes fail: why, and what cancels the end of all waits. */
  failure: unknown;
  #cancelFailing: (() => void) | undefined;
  /** A take in flight has had no answer for {@link SILENT_MS}. */
  #isSilent = false;

  /** `release` gives jobs back. */
  constructor(queue: Queue, host: WaitlistHost, release: (jobs: readonly Job[], leaseMs: number) => void) {
    this.#queue = queue;
    this.#host = host;
    this.#release = release;
    this.#source = new Source(host.clock);
  }

  get isIdle(): boolean {
    return this.#waiting.size === 0 && this.#inFlight === 0;
  }

  join(request: Request): void {
    if (this.#host.signal.aborted) request.expire();
    else if (this.#isSilent && request.hasOthers) request.lost(this, this.#host.silent());
    else {
      this.#waiting.add(request);
      this.#fresh.add(request);
      if (request.mayWait) this.#listen();
      this.#plan();
    }
  }

  leave(request: Request): void {
    this.#fresh.delete(request);
    if (!this.#waiting.delete(request) || this.#waiting.size > 0) return;
    this.#cancelTimer();
    this.#works();
    for (const channel of this.#channels) this.#host.wakes.off(channel, this.#heard);
    this.#channels = [];
  }

  /** A request that another waitlist had claimed can be claimed again. */
  freed(): void {
    if (this.failure === undefined && this.#wantsTake) this.#plan();
  }

  /** Ends all waits. */
  stop(): void {
    for (const request of [...this.#waiting]) request.expire();
  }

  #listen(): void {
    const { partitions } = this.#queue;
    if (this.#channels.length === partitions.length) return;
    this.#channels = partitions.map(({ wakeChannel }) => wakeChannel);
    for (const channel of this.#channels) this.#host.wakes.on(channel, this.#heard);
  }

  readonly #heard = (due: number): void => {
    if (this.#source.heard(due)) this.#plan();
  };

  get #wantsTake(): boolean {
    return this.#fresh.size > 0 || this.#source.isTime();
  }

  /** Decides after this turn of the event loop, in which others may come. */
  #plan(): void {
    if (this.#isPlanned || this.#waiting.size === 0) return;
    this.#isPlanned = true;
    setImmediate(() => {
      this.#isPlanned = false;
      if (this.#waiting.size > 0 && !this.#host.signal.aborted) this.#decide();
    });
  }

  /** Takes jobs if it is time for that, and sleeps otherwise. Called after whatever may change the answer. */
  #decide(): void {
    // Asking before its turn would get it a later one: there is no job now.
    if (this.#source.awaitsTurn) for (const request of this.#takeFresh()) request.looked(this);
    // One at a time asks for a turn. The end of a take decides again.
    else if (this.#wantsTake && this.#inFlight < (this.#source.held === 'limited' ? 1 : IN_FLIGHT)) {
      if (this.#host.hasMemory()) this.#host.underWay.add(this.#take());
      else this.#source.lookAt(this.#host.clock.now() + RETRY_MS);
    }
    this.#sleep();
  }

  /** Decides again when it is time to look: at once if that has come since the decision. */
  #sleep(): void {
    this.#cancelTimer();
    if (this.#waiting.size === 0) return;
    const ms = this.#source.at - this.#host.clock.now();
    // The end of a take, or of a claim, decides again.
    if (ms <= 0 && (this.#inFlight > 0 || [...this.#waiting].every(({ isClaimed }) => isClaimed))) return;
    this.#cancelTimer = this.#host.clock.after(Math.max(0, ms), () => this.#plan());
  }

  #takeFresh(): Set<Request> {
    const fresh = this.#fresh;
    this.#fresh = new Set();
    return fresh;
  }

  async #take(): Promise<void> {
    const asked = this.#claim();
    const [first] = asked;
    if (!first) return;
    const { clock, consumer } = this.#host;
    const { leaseMs } = first;
    const limit = Math.min(
      MAX_CALL,
      asked.reduce((sum, { count }) => sum + count, 0),
    );
    const fresh = this.#takeFresh();
    this.#inFlight++;
    this.#source.sent(clock.now() + POLL_MS);
    let isAnswered = false;
    // A process that stood still sees a timer before a reply that came meanwhile.
    const cancelSilence = clock.after(SILENT_MS, () => setImmediate(() => isAnswered || this.#silent()));
    let drained: Drained | undefined;
    let error: unknown;
    try {
      drained = await this.#queue.drain({ limit, leaseMs, by: consumer });
      isAnswered = true;
      // A client may have closed its connection meanwhile: that is read now, before its job is handed out.
      await nextTurn();
    } catch (caught) {
      error = caught;
    }
    isAnswered = true;
    cancelSilence();
    this.#isSilent = false;
    this.#inFlight--;
    if (drained) this.#answered(asked, fresh, leaseMs, drained);
    else this.#failed(asked, fresh, error);
  }

  #answered(asked: readonly Request[], fresh: ReadonlySet<Request>, leaseMs: number, drained: Drained): void {
    this.#works();
    this.#source.answered(drained);
    // Its partitions may be known by now.
    if (this.#channels.length > 0) this.#listen();
    this.#handOut(asked, leaseMs, drained);
    if (drained.state === 'more') this.#awaitNext(fresh);
    else for (const request of fresh) request.looked(this);
    this.#plan();
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
      if (count >= MAX_CALL) break;
    }
    return asked;
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
    for (const request of [...this.#waiting]) if (request.hasOthers) request.lost(this, this.#host.silent());
  }

  /** Takes do not fail any more. */
  #works(): void {
    this.#cancelFailing?.();
    this.#cancelFailing = this.failure = undefined;
  }

  /** Fails requests; long polls after a short hold, to avoid a retry storm. */
  #failed(asked: readonly Request[], fresh: ReadonlySet<Request>, error: unknown): void {
    const { clock } = this.#host;
    const holdMs = this.#host.failed(error);
    // Before the claims end: late requests must not hear that there was no job.
    for (const request of [...this.#waiting]) if (!request.mayWait || request.isLate) request.lost(this, error);
    if (this.#waiting.size > 0) {
      this.failure = error;
      this.#source.lookAt(clock.now() + RETRY_MS);
      this.#sleep();
      this.#cancelFailing ??= clock.after(isPassing(error) ? holdMs : 0, () => {
        this.#works();
        for (const request of [...this.#waiting]) request.lost(this, error);
      });
    }
    this.#awaitNext(fresh);
    for (const request of fresh) if (request.hasOthers) request.looked(this);
    for (const request of asked) request.unclaim(this);
  }
}
