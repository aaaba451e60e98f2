import { type Answer, DelayqError, type Job, type Nacked, type Queue } from '../../src/index.js';
import type { Clock } from '../../src/model/time.js';
import type { Drained } from '../../src/store/jobs.js';
import { PART_POLL_MS, POLL_MS } from '../../src/store/keys.js';

/** How long a call takes there and back, ms; and after which time without an answer it fails. */
const TRIP_MS = 1;
export const DEADLINE_MS = 5_000;

/** Lets everything happen that needs no time. */
async function settle(): Promise<void> {
  for (let n = 0; n < 4; n++) await new Promise(setImmediate);
}

/** A clock that a test moves: from timer to timer, and whatever follows from one happens before the next. */
export class SimulatedClock implements Clock {
  #now = 1_000;
  readonly #timers = new Set<{ readonly at: number; readonly act: () => void }>();

  now(): number {
    return this.#now;
  }

  after(ms: number, act: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, Math.ceil(ms)), act };
    this.#timers.add(timer);
    return () => this.#timers.delete(timer);
  }

  sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.after(ms, resolve));
  }

  async pass(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (await settle(); ; await settle()) {
      let next: { readonly at: number; readonly act: () => void } | undefined;
      for (const timer of this.#timers)
        if (timer.at <= end && timer.at < (next?.at ?? Number.POSITIVE_INFINITY)) next = timer;
      if (!next) break;
      this.#timers.delete(next);
      this.#now = Math.max(this.#now, next.at);
      next.act();
    }
    this.#now = end;
  }
}

/** A Redis whose clock differs, and which is silent at times: then calls reach it, but their answers are late. */
export class SimulatedServer {
  readonly clock: SimulatedClock;
  readonly offset: number;
  silentUntil = 0;
  /** The last time that it was silent, or failed a call, by the clock of the test. */
  troubledAt = 0;
  readonly #heard = new Set<{ channels: readonly string[]; heard: (channel: string, message: string) => void }>();
  readonly sharded = false;

  constructor(clock: SimulatedClock, offset: number) {
    this.clock = clock;
    this.offset = offset;
  }

  get time(): number {
    return this.clock.now() + this.offset;
  }

  async now(): Promise<number> {
    return this.call(() => this.time);
  }

  listen(channels: readonly string[], heard: (channel: string, message: string) => void) {
    const listener = { channels, heard };
    this.#heard.add(listener);
    return { alive: () => true, close: () => void this.#heard.delete(listener) };
  }

  publish(channel: string, due: number): void {
    for (const { channels, heard } of this.#heard) if (channels.includes(channel)) heard(channel, String(due));
  }

  silence(ms: number): void {
    this.silentUntil = Math.max(this.silentUntil, this.clock.now() + ms);
    this.troubledAt = this.silentUntil;
  }

  /** Runs a script. A process that is not answered in time does not know whether it has run. */
  call<T>(script: (isLost: boolean) => T, deadlineMs = DEADLINE_MS): Promise<T> {
    let isLost = false;
    return new Promise((resolve, reject) => {
      const cancel = this.clock.after(deadlineMs, () => {
        isLost = true;
        reject(new DelayqError('unknown', 'no answer in time'));
      });
      const wait = Math.max(0, this.silentUntil - this.clock.now());
      this.clock.after(wait + TRIP_MS, () => {
        const result = script(isLost);
        cancel();
        resolve(result);
      });
    });
  }
}

interface SimulatedJob {
  readonly id: string;
  due: number;
  /** Its lease, which ends by the clock of the server. `isLost`: no process knows of it, as the answer was lost. */
  lease: { readonly receipt: string; readonly isLost: boolean; end: number } | undefined;
}

/** A queue, or one of its partitions, that lives in the memory of the test: what {@link Queue} offers to consumers. */
export class SimulatedQueue {
  readonly name: string;
  readonly redis: SimulatedServer;
  readonly wakeChannel: string;
  readonly whole: SimulatedQueue;
  readonly pollMs: number;
  readonly jobs = new Map<string, SimulatedJob>();
  /** Its partitions, which the process knows after the first answer; none if it has one. */
  readonly #parts: readonly SimulatedQueue[];
  #isKnown = false;
  #receipts = 0;
  /** With a rate: the time between two jobs, ms, and when the next is allowed, by the clock of the server. */
  perJobMs = 0;
  allowedAt = 0;
  #turnAt = 0;
  /** How many calls came before the turn that the last answer gave their caller. */
  early = 0;
  /** Calls for jobs, and whether they have ended. */
  readonly calls: { isOver: boolean }[] = [];

  constructor(redis: SimulatedServer, name: string, partitions = 1, whole?: SimulatedQueue) {
    this.redis = redis;
    this.name = name;
    this.wakeChannel = name;
    this.whole = whole ?? this;
    this.pollMs = whole ? PART_POLL_MS : POLL_MS;
    const others = partitions > 1 ? Array.from({ length: partitions }, (_, i) => i) : [];
    this.#parts = others.map((i) => new SimulatedQueue(redis, `${name}/${i}`, 1, this));
  }

  /** All of them, whether the process knows them or not. */
  get all(): readonly SimulatedQueue[] {
    return this.#parts.length > 0 ? this.#parts : [this];
  }

  get partitions(): readonly SimulatedQueue[] {
    return this.#isKnown ? this.all : [this];
  }

  asQueue(): Queue {
    return this as unknown as Queue;
  }

  enqueue(id: string, inMs: number, heard: boolean): void {
    const due = this.redis.time + inMs;
    this.jobs.set(id, { id, due, lease: undefined });
    if (heard) this.redis.publish(this.wakeChannel, due);
  }

  async take({ limit = 250, leaseMs = 60_000, cutoff = Number.POSITIVE_INFINITY } = {}): Promise<Drained> {
    const call = { isOver: false };
    this.calls.push(call);
    if (this.redis.time < this.#turnAt) this.early++;
    try {
      const drained = await this.redis.call((isLost) => this.#take(limit, leaseMs, cutoff, isLost));
      this.#turnAt = drained.state === 'limited' ? (drained.next ?? 0) : 0;
      return drained;
    } finally {
      call.isOver = true;
    }
  }

  drain(options: { limit: number; leaseMs: number }): Promise<Drained> {
    return this.take(options);
  }

  #take(limit: number, leaseMs: number, cutoff: number, isLost: boolean): Drained {
    const now = this.redis.time;
    // Its reply reveals the others: it takes nothing.
    const hidden = this.whole === this && this.#parts.length > 0;
    this.#isKnown = true;
    const free = [...this.jobs.values()].filter(({ lease }) => !lease || lease.end <= now);
    const due = free.filter((job) => job.due <= Math.min(now, cutoff)).sort((a, b) => a.due - b.due);
    const isLimited = this.perJobMs > 0 && now < this.allowedAt && due.length > 0;
    const jobs = isLimited || hidden ? [] : due.slice(0, this.perJobMs > 0 ? 1 : limit);
    if (this.perJobMs > 0 && jobs.length > 0) this.allowedAt = now + this.perJobMs;
    const receipt = `${this.name} ${this.#receipts++}`;
    for (const job of jobs) job.lease = { receipt, isLost, end: now + leaseMs };
    const left = [...this.jobs.values()].filter((job) => !jobs.includes(job));
    const next = Math.min(...left.map(({ due, lease }) => (lease && lease.end > now ? lease.end : due)));
    const more = due.length > jobs.length && !hidden;
    const limited = more && this.perJobMs > 0;
    return {
      state: limited ? 'limited' : more ? 'more' : 'idle',
      ...{ now, next: limited ? this.allowedAt : Number.isFinite(next) ? next : undefined },
      jobs: jobs.map(({ id, due }) => ({ id, due, receipt, payload: Buffer.from('1') }) as unknown as Job),
      ...{ expired: 0, lost: 0, died: [], leaseMs, hasLimits: this.perJobMs > 0, texts: false, exists: true },
    };
  }

  #held(jobs: readonly { id: string; receipt: string }[]): SimulatedJob[] {
    const all = this.whole.all.flatMap((part) => [...part.jobs.values()]);
    return all.filter(({ id, lease }) => jobs.some((job) => job.id === id && job.receipt === lease?.receipt));
  }

  // Calls that settle jobs are repeated for as long as it takes.

  ackWithin(_: unknown, jobs: readonly { id: string; receipt: string }[]): Promise<Answer[]> {
    return this.redis.call(() => {
      for (const { id } of this.#held(jobs)) for (const part of this.whole.all) part.jobs.delete(id);
      return jobs.map(() => 'held' as const);
    }, Number.POSITIVE_INFINITY);
  }

  nackWithin(_: unknown, jobs: readonly { id: string; receipt: string }[]): Promise<Nacked[]> {
    return this.redis.call(() => {
      for (const job of this.#held(jobs)) job.lease = undefined;
      return jobs.map(() => ({ answer: 'pending' as const, delayMs: 0 }));
    }, Number.POSITIVE_INFINITY);
  }

  renew(jobs: readonly { id: string; receipt: string }[], leaseMs = 60_000): Promise<Answer[]> {
    return this.redis.call(() => {
      for (const { lease } of this.#held(jobs)) if (lease) lease.end = this.redis.time + leaseMs;
      return jobs.map(() => 'held' as const);
    });
  }
}
