import { isUtf8 } from 'node:buffer';
import type {
  Answer,
  Buried,
  Cancelled,
  Edited,
  Finished,
  Nacked,
  Outcome,
  Purged,
  Requeued,
  Rescheduled,
} from '../../src/index.js';
import type { EventType } from '../../src/model/event.js';
import { LONGEST_MS } from '../../src/model/time.js';
import type { Restored } from '../../src/store/transfer.js';

/** A job as it is enqueued. */
export interface Given {
  /** A character for each byte. */
  readonly id: string;
  readonly payload: string;
  readonly in: number;
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly deliveries?: number | undefined;
  readonly ttl: number | undefined;
  /** How long its id is remembered after it has ended, ms. */
  readonly onceFor?: number | undefined;
  /** When it was made, as its producer says. */
  readonly created?: number | undefined;
  readonly attributes: Readonly<Record<string, string>>;
}

interface ModelJob {
  state: 'pending' | 'active' | 'dead';
  /** The score in the set of its state. */
  score: number;
  /** Due time at its last delivery. */
  due: number;
  payload: string;
  receipt: string;
  /** The consumer of its last lease. */
  by: string;
  failures: number;
  losses: number;
  releases: number;
  first: number | undefined;
  failed: number | undefined;
  reason: string | undefined;
  error: string | undefined;
  given: Given;
}

/** A job as a drain returns it. */
interface Taken {
  readonly id: string;
  readonly due: number;
  readonly attempt: number;
  readonly failures: number;
  readonly tries: number;
  readonly payload: string;
  readonly attributes: Readonly<Record<string, string>>;
  readonly deliveries: number | undefined;
  readonly created: number | undefined;
  readonly expires: number | undefined;
}

/** An entry of the stream that gets the jobs. */
export interface Entry extends Pick<Taken, 'id' | 'due' | 'payload' | 'attributes'> {
  /** How many entries were added before it. */
  readonly place: number;
}

/** A recurring job. */
export interface Definition {
  readonly rev: string;
  /** A character for each byte. */
  readonly payload: string;
  readonly overlap: 'allow' | 'skip';
  /** What its jobs are enqueued with. */
  readonly given: Omit<Given, 'id' | 'payload' | 'in'>;
  /** Its next occurrence, ms; Infinity: paused. */
  next: number;
  /** The id of the last job that was made. */
  last: string;
}

/** What a drain makes of a recurring job that it has met. */
export interface Firing {
  readonly id: string;
  readonly rev: string;
  /** The occurrence that the drain was told. */
  readonly at: number;
  readonly next: number;
  readonly jobs: readonly { readonly id: string; readonly due: number }[];
  /** How many occurrences make no job. */
  readonly skipped: number;
}

/** An event, without its time. Missing: nothing is said of it. */
export interface Told {
  readonly type: EventType;
  readonly id: string;
  readonly by?: string | undefined;
  readonly attempt?: number | undefined;
  readonly due?: number | undefined;
  readonly reason?: string | undefined;
  readonly error?: string | undefined;
}

/** What is kept of a job that is done. */
interface Kept {
  at: number;
  readonly due: number;
  readonly by: string;
  readonly attempts: number;
}

/** Upper limits of the buckets of lateness, ms. */
const LATE = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000];

/** What a job has before its first attempt. */
const FRESH = {
  receipt: '',
  by: '',
  failures: 0,
  losses: 0,
  releases: 0,
  first: undefined,
  failed: undefined,
  reason: undefined,
  error: undefined,
};

/** In which order a purge takes them. */
const ORDER = ['active', 'dead', 'pending'] as const;

type State = 'more' | 'idle' | 'paused' | 'limited' | 'full' | 'unacked' | 'occurs';

/** A time as cjson writes it: with 14 digits. */
const written = (ms: number) => Number(ms.toPrecision(14));

/** Whether a handler can receive an id. */
const canBeGiven = (id: string) => isUtf8(Buffer.from(id, 'latin1')) && !id.includes('\0');

/** A queue in plain code. The scripts must behave like it. */
export class Model {
  readonly jobs = new Map<string, ModelJob>();
  /** 'receipt id' of superseded leases whose holder has not asked yet. */
  readonly superseded = new Set<string>();
  readonly stats: Record<string, number> = {};
  /** The failures in a row. */
  failures?: {
    done: number;
    since: number;
    n: number;
    at: number;
    again: number;
    kinds: Record<string, number>;
    error?: string;
  };
  /** Until when each id is remembered, ms. */
  readonly done = new Map<string, number>();
  /** How many ids whose windows were over by `now` the last call may have left in `done`. */
  left = { now: Number.NEGATIVE_INFINITY, ids: 0 };
  /** The entries of its stream, how many were ever added, and for each group how many it has read, and not acked. */
  readonly stream = { entries: [] as Entry[], added: 0 };
  readonly groups = new Map<string, { read: number; pending: number[] }>();
  /** The events since {@link Model.told} was called. */
  #events: Told[] = [];
  /** Jobs that are done, and kept, and whether one was added since it was last compared. */
  readonly finished = new Map<string, Kept>();
  hasKept = false;
  /** Recurring jobs by their ids. */
  readonly every = new Map<string, Definition>();
  /** Tokens at a time. Undefined: it is full. */
  bucket: { tokens: number; at: number } | undefined;
  config: {
    tries?: number;
    maxLost?: number;
    ttl?: number;
    backoff?: string;
    lease?: number;
    rate?: { jobs: number; perMs: number };
    burst?: number;
    maxActive?: number;
    onceFor?: number;
    text?: 1;
    events?: number;
    eventTypes?: readonly EventType[];
    keepDone?: number;
    maxDone?: number;
  } = {};
  /** Until when the queue is paused, ms. */
  pausedUntil: number | undefined;

  #failed(now: number, kind: string, again: number): void {
    const { acked = 0, removed = 0 } = this.stats;
    if (this.failures?.done !== acked + removed)
      this.failures = { done: acked + removed, since: now, n: 0, at: now, again: 0, kinds: {} };
    this.failures.n += 1;
    this.failures.at = now;
    this.failures.again = Math.max(this.failures.again, again);
    this.failures.kinds[kind] = (this.failures.kinds[kind] ?? 0) + 1;
    if (kind === '') delete this.failures.error;
    else this.failures.error = kind;
  }

  #tell(type: EventType, id: string, more: Omit<Told, 'type' | 'id'> = {}): void {
    const { events, eventTypes } = this.config;
    if (events !== undefined && (eventTypes?.includes(type) ?? true)) this.#events.push({ type, id, ...more });
  }

  /** Returns the events since the last call. */
  told(): Told[] {
    return this.#events.splice(0);
  }

  /** Sets what is to be kept. What is off keeps nothing. */
  observe(how: Pick<Model['config'], 'events' | 'eventTypes' | 'keepDone' | 'maxDone'>): void {
    Object.assign(
      this.config,
      { events: undefined, eventTypes: undefined, keepDone: undefined, maxDone: undefined },
      how,
    );
    if (this.config.keepDone === undefined) this.finished.clear();
  }

  #count(name: string, n = 1): void {
    if (n > 0) this.stats[name] = (this.stats[name] ?? 0) + n;
  }

  #sorted(state: ModelJob['state'], upTo: number): [string, ModelJob][] {
    return [...this.jobs]
      .filter(([, job]) => job.state === state && job.score <= upTo)
      .sort(([a, x], [b, y]) => x.score - y.score || (a < b ? -1 : 1));
  }

  /** Whether a job is dead, of whose failures or losses `limit` is its own limit, and `ofQueue` that of the queue. */
  #isSpent(n: number, { given, failures, losses }: ModelJob, limit: 'tries' | 'maxLost', ofQueue: number): boolean {
    const both = given.deliveries;
    if (both !== undefined && failures + losses >= both) return true;
    const own = given[limit];
    return own === undefined ? both === undefined && n >= ofQueue : n >= own;
  }

  #bury(id: string, job: ModelJob, now: number, reason: string, by?: string): void {
    Object.assign(job, { state: 'dead', score: now, reason });
    const attempt = job.failures + job.losses + (reason === 'released' ? 1 : 0);
    this.#tell('dead', id, { by, attempt, reason, error: job.error });
    this.#count('dead');
  }

  /** Lets time pass; a negative time: the clock goes back. */
  pass(ms: number): void {
    for (const [id, until] of this.done) this.done.set(id, until - ms);
    for (const kept of this.finished.values()) kept.at -= ms;
    for (const definition of this.every.values()) definition.next -= ms;
    if (this.bucket) this.bucket.at -= ms;
    if (this.failures) {
      this.failures.since -= ms;
      this.failures.at -= ms;
      if (this.failures.again > 0) this.failures.again -= ms;
    }
    if (this.pausedUntil !== undefined) this.pausedUntil -= ms;
    for (const job of this.jobs.values()) {
      job.score -= ms;
      job.due -= ms;
      if (job.first !== undefined) job.first -= ms;
      if (job.failed !== undefined) job.failed -= ms;
    }
  }

  get #burst(): number {
    const { rate = { jobs: 0, perMs: 1 }, burst } = this.config;
    return burst ?? Math.max(1, (rate.jobs / rate.perMs) * 100);
  }

  /** How many tokens the bucket has now; a clock that has gone back adds none. */
  tokens(now: number): number {
    const { rate } = this.config;
    if (!rate) return Number.POSITIVE_INFINITY;
    if (!this.bucket) return this.#burst;
    const { tokens, at } = this.bucket;
    return Math.min(this.#burst, tokens + Math.max(0, now - at) * (rate.jobs / rate.perMs));
  }

  /** How many jobs of consumers are active; an expired lease does not count, even before it is taken back. */
  live(now: number): number {
    return [...this.jobs.values()].filter(({ state, score }) => state === 'active' && score > now && score < Infinity)
      .length;
  }

  /** Whether the id of a job that has ended is still taken. */
  remembers(now: number, id: string): boolean {
    return (this.done.get(id) ?? 0) > now;
  }

  /** The window of a job begins: it has ended. */
  #ended(now: number, id: string, { given }: ModelJob): void {
    const window = given.onceFor ?? this.config.onceFor;
    // Another one with this id may be remembered for longer.
    if (window !== undefined) this.done.set(id, Math.max(now + window, this.done.get(id) ?? 0));
  }

  /**
   * What a call makes of `done`: if it adds ids, it removes twice as many whose windows are over, at least 2; otherwise up
   * to `otherwise`.
   */
  sweeping<T>(now: number, otherwise: number, act: () => T): T {
    const before = new Map(this.done);
    const over = [...before.values()].filter((until) => until <= now).length;
    const result = act();
    const added = [...this.done].filter(([id, until]) => before.get(id) !== until).length;
    this.left = { now, ids: Math.max(0, over - (added > 0 ? Math.max(2, 2 * added) : otherwise)) };
    return result;
  }

  enqueue(
    now: number,
    jobs: readonly Given[],
    mode: 'keep' | 'replace' | 'back',
  ): { outcomes: Outcome[]; begun: boolean } {
    const before = { ...this.stats };
    const outcomes = this.sweeping(now, 100, () => jobs.map((given) => this.#enqueue(now, given, mode)));
    if (outcomes.every((outcome) => outcome.startsWith('kept'))) this.left = { now, ids: Number.POSITIVE_INFINITY };
    const begun = ['enqueued', 'replaced', 'kept'].some((name) => name in this.stats && !(name in before));
    return { outcomes, begun };
  }

  #enqueue(now: number, given: Given, mode: 'keep' | 'replace' | 'back', as: EventType = 'enqueued'): Outcome {
    const old = this.jobs.get(given.id);
    if (!old && mode !== 'back' && this.remembers(now, given.id)) {
      this.#count('kept');
      return 'kept-done';
    }
    if (old && mode !== 'replace') {
      this.#count('kept');
      return old.state === 'dead' ? 'kept-dead' : 'kept';
    }
    if (old?.state === 'active') this.superseded.add(`${old.receipt} ${given.id}`);
    if (mode === 'back') this.done.delete(given.id);
    const score = now + given.in;
    this.finished.delete(given.id);
    this.jobs.set(given.id, { ...FRESH, state: 'pending', score, due: score, payload: given.payload, given });
    this.#count(old ? 'replaced' : 'enqueued');
    this.#tell(old ? 'replaced' : mode === 'back' ? 'returned' : as, given.id, { due: score });
    return old ? 'replaced' : 'created';
  }

  /** `start`: how many jobs the caller can start now. `occurs`: whether it makes the jobs of recurring ones. */
  drain(
    now: number,
    limit: number,
    leaseMs: number | undefined,
    receipt: string,
    {
      start = Number.POSITIVE_INFINITY,
      occurs = true,
      by = 'me',
      room = Number.POSITIVE_INFINITY,
    }: { start?: number | undefined; occurs?: boolean; by?: string; room?: number } = {},
  ): { state: State; jobs: Taken[] } {
    if ((this.pausedUntil ?? now) > now) return { state: 'paused', jobs: [] };
    if (occurs && this.occurring(now).length > 0) return { state: 'occurs', jobs: [] };
    return this.sweeping(now, 0, () => this.#take(now, limit, leaseMs, { receipt, by }, { start, room }));
  }

  /** A group of the stream, which is made when it first reads, takes the next `n` entries. */
  read(name: string, n: number): void {
    const { entries, added } = this.stream;
    const group = this.groups.get(name) ?? { read: added - entries.length, pending: [] };
    this.groups.set(name, group);
    for (; n > 0 && group.read < added; n--) group.pending.push(group.read++);
  }

  /** A group acks the first `n` entries that it has read. */
  ackEntries(name: string, n: number): void {
    this.groups.get(name)?.pending.splice(0, n);
  }

  /** Moves due jobs into the stream, after it has removed what all groups have acked. */
  handOver(now: number, limit: number, maxUnacked: number, how: { occurs?: boolean; by?: string } = {}) {
    const { stream } = this;
    const before = this.#unacked;
    const room = Math.max(0, maxUnacked - before.unacked);
    const { state, jobs } = this.drain(now, limit, 0, '', { ...how, room });
    if (state === 'paused' || state === 'occurs') return { state, count: 0 };
    const acked = [...this.groups.values()].map(({ read, pending: [first = read] }) => first);
    if (acked.length > 0) stream.entries = stream.entries.filter(({ place }) => place >= Math.min(...acked));
    for (const { id, due, payload, attributes } of jobs)
      stream.entries.push({ id, due, payload, attributes, place: stream.added++ });
    return { state, count: jobs.length, unacked: before.unacked + jobs.length, slowest: before.slowest };
  }

  /** How many entries the slowest group has not acked; without a group, how many there are. */
  get #unacked() {
    const { entries, added } = this.stream;
    const all = [...this.groups]
      .sort()
      .map(([name, { read, pending }]) => [name, added - read + pending.length] as const);
    const [slowest, unacked] = all.reduce((a, b) => (b[1] > a[1] ? b : a), all[0] ?? ['', entries.length]);
    return { slowest, unacked };
  }

  #take(
    now: number,
    limit: number,
    leaseMs: number | undefined,
    holder: { receipt: string; by: string },
    { start, room }: { start: number; room: number },
  ): { state: State; jobs: Taken[] } {
    for (const [id, job] of this.#sorted('active', now).slice(0, limit)) {
      job.losses += 1;
      this.#tell('lost', id, { by: job.by, attempt: job.failures + job.losses, due: job.due });
      this.#count('lost');
      this.#failed(now, 'lease expired', now);
      if (this.#isSpent(job.losses, job, 'maxLost', this.config.maxLost ?? 20))
        this.#bury(id, job, now, 'lost', job.by);
      else Object.assign(job, { state: 'pending', score: job.due });
    }
    const { maxActive = Number.POSITIVE_INFINITY } = this.config;
    const tokens = this.tokens(now);
    const places = maxActive - this.live(now);
    const isLimited = this.config.rate !== undefined || this.config.maxActive !== undefined;
    const may = isLimited ? Math.max(0, Math.min(limit, Math.floor(tokens), places, start)) : limit;
    const taken: Taken[] = [];
    const scores: number[] = [];
    for (const [id, job] of this.#sorted('pending', now).slice(0, may === 0 ? 0 : Math.min(limit, room))) {
      if (taken.length === may) break;
      if (!canBeGiven(id)) {
        this.#bury(id, job, now, 'bad id');
        continue;
      }
      const ttl = job.given.ttl ?? this.config.ttl;
      if (ttl !== undefined && (job.first ?? job.score) + ttl < now) {
        this.jobs.delete(id);
        this.#ended(now, id, job);
        this.#count('expired');
        this.#tell('expired', id, { due: job.score });
        continue;
      }
      const { failures, losses, payload, given } = job;
      const { attributes, deliveries, created } = given;
      const own = given.tries ?? deliveries ?? this.config.tries ?? 5;
      const tries = Math.min(own, deliveries ?? own);
      // Drains tell whole ms.
      const due = Math.floor(job.score);
      const expires =
        given.ttl === undefined || given.ttl === LONGEST_MS
          ? undefined
          : (job.first === undefined ? due : written(job.first)) + given.ttl;
      const counts = { attempt: 1 + failures + losses, failures, tries };
      taken.push({ id, due, ...counts, payload, attributes, deliveries, created, expires });
      this.#count('delivered');
      const of = { by: holder.by, attempt: counts.attempt, due: job.score };
      this.#tell(leaseMs === 0 ? 'removed' : 'delivered', id, of);
      const late = now - job.score;
      this.#count(`late:${LATE.find((most) => late <= most) ?? 'inf'}`);
      scores.push(job.score);
      if (leaseMs === 0) {
        this.jobs.delete(id);
        this.#ended(now, id, job);
        this.#count('removed');
      } else
        Object.assign(job, {
          state: 'active',
          due: job.score,
          score: now + (leaseMs ?? this.config.lease ?? 60_000),
          ...holder,
        });
    }
    this.#count('late:sum', Math.floor(scores.reduce((sum, score) => sum - score, now * scores.length)));
    if (this.config.rate) this.bucket = { tokens: tokens - taken.length, at: now };
    const isBusy = start === taken.length && (start === 0 || (this.tokens(now) < 1 && this.#burst < 2));
    return { state: this.#stateAfter(now, isLimited && isBusy, taken.length === room), jobs: taken };
  }

  #stateAfter(now: number, isBusy: boolean, isUnacked: boolean): State {
    const due = this.#sorted('pending', now).length > 0;
    if (due && (isBusy || this.live(now) >= (this.config.maxActive ?? Number.POSITIVE_INFINITY))) return 'full';
    if (due && this.tokens(now) < 1) return 'limited';
    if (this.#sorted('active', now).length > 0) return 'more';
    return due ? (isUnacked ? 'unacked' : 'more') : 'idle';
  }

  /** Recurring jobs whose occurrence is due. */
  occurring(now: number): [string, Definition][] {
    return [...this.every]
      .filter(([, { next }]) => next <= now)
      .sort(([a, x], [b, y]) => x.next - y.next || (a < b ? -1 : 1));
  }

  /** Makes the jobs of occurrences, unless somebody else has done so, or has changed the definition. */
  fire(now: number, firings: readonly Firing[]): number[] {
    return firings.map(({ id, rev, at, next, jobs, skipped }) => {
      const definition = this.every.get(id);
      if (definition?.rev !== rev || definition.next !== at) return -1;
      let [made, left] = [0, skipped];
      for (const { id: jobId, due } of jobs) {
        const last = this.jobs.get(definition.last)?.state;
        if (definition.overlap === 'skip' && (last === 'pending' || last === 'active')) {
          left += 1;
          continue;
        }
        const { given, payload } = definition;
        definition.last = jobId;
        // The occurrence has its job.
        if (this.jobs.has(jobId) || this.remembers(now, jobId)) continue;
        this.#enqueue(now, { ...given, id: jobId, payload, in: due - now }, 'keep', 'made');
        made += 1;
      }
      definition.next = next;
      this.#count('skipped', left);
      return made;
    });
  }

  #held(id: string, receipt: string): ModelJob | 'lost' | 'superseded' {
    const job = this.jobs.get(id);
    if (job?.state === 'active' && job.receipt === receipt) return job;
    return this.superseded.has(`${receipt} ${id}`) ? 'superseded' : 'lost';
  }

  ack(now: number, id: string, receipt: string): Answer {
    const job = this.#held(id, receipt);
    if (job === 'superseded') this.superseded.delete(`${receipt} ${id}`);
    if (typeof job === 'string') return job;
    this.jobs.delete(id);
    this.#ended(now, id, job);
    this.#count('acked');
    const { by, failures, losses, first = job.due } = job;
    const attempts = 1 + failures + losses;
    this.#tell('acked', id, { by, attempt: attempts });
    if (this.config.keepDone !== undefined) {
      this.finished.set(id, { at: now, due: Math.floor(written(first)), by, attempts });
      this.hasKept = true;
    }
    return 'held';
  }

  nack(
    now: number,
    how: {
      id: string;
      receipt: string;
      mode: 'retry' | 'dead' | 'release' | 'back';
      maxReleases?: number | undefined;
      delayMs: number | undefined;
      backoff: string;
      jitter: number;
      place: number;
    },
  ): Nacked {
    const { id, receipt, mode, delayMs } = how;
    const job = this.#held(id, receipt);
    if (job === 'superseded') this.superseded.delete(`${receipt} ${id}`);
    if (typeof job === 'string') return { answer: job, delayMs: 0 };
    if (mode === 'release' || mode === 'back') {
      if (mode === 'release') {
        job.releases += 1;
        this.#count('released');
        if (job.releases > (how.maxReleases ?? 1_000)) {
          job.first ??= job.due;
          this.#bury(id, job, now, 'released', job.by);
          return { answer: 'dead', delayMs: 0 };
        }
      }
      if (delayMs !== undefined && (job.given.ttl ?? this.config.ttl) !== undefined) job.first ??= job.due;
      Object.assign(job, { state: 'pending', score: delayMs === undefined ? job.due : now + delayMs });
      const attempt = 1 + job.failures + job.losses;
      this.#tell(mode === 'release' ? 'released' : 'returned', id, { by: job.by, attempt, due: job.score });
      return { answer: 'pending', delayMs: 0 };
    }
    job.failures += 1;
    job.failed = now;
    job.error = undefined;
    job.first ??= job.due;
    if (mode === 'dead' || this.#isSpent(job.failures, job, 'tries', this.config.tries ?? 5)) {
      this.#failed(now, '', 0);
      this.#bury(id, job, now, mode === 'dead' ? 'refused' : 'failed', job.by);
      return { answer: 'dead', delayMs: 0 };
    }
    const wait = delayMs ?? this.#wait(job.failures, how);
    Object.assign(job, { state: 'pending', score: now + wait });
    this.#tell('retried', id, { by: job.by, attempt: job.failures + job.losses, due: job.score });
    this.#failed(now, '', now + wait);
    this.#count('retried');
    return { answer: 'pending', delayMs: wait };
  }

  #wait(failures: number, { backoff, jitter, place }: { backoff: string; jitter: number; place: number }): number {
    const text = backoff || this.config.backoff || 'exponential';
    if (text !== 'exponential') {
      const waits = text.split(' ').map(Number);
      return waits[Math.min(failures, waits.length) - 1] as number;
    }
    const plain = [15_000, 60_000, 240_000, 960_000][failures - 1] ?? 3_600_000;
    return Math.floor(plain * (0.8 + 0.4 * ((jitter + place * 0.618033988749895) % 1)));
  }

  requeue(
    id: string,
    at: number,
    limits: { ttl?: number | undefined; deliveries?: number | undefined } = {},
  ): Requeued {
    const job = this.jobs.get(id);
    if (job?.state !== 'dead') return 'missing';
    if (!canBeGiven(id)) return 'bad-id';
    const fresh = { ...FRESH, receipt: job.receipt, by: job.by };
    const { ttl = job.given.ttl, deliveries = job.given.deliveries } = limits;
    const given = { ...job.given, ttl, deliveries };
    Object.assign(job, { state: 'pending', score: at, ...fresh, given });
    this.#count('requeued');
    this.#tell('requeued', id, { due: at });
    return 'requeued';
  }

  edit(id: string, at: number, payload: string): Edited {
    const job = this.jobs.get(id);
    if (job?.state !== 'pending' && job?.state !== 'dead') return 'changed';
    if (!canBeGiven(id)) return 'bad-id';
    job.payload = payload;
    if (job.state === 'dead') return this.requeue(id, at) as Edited;
    this.#count('replaced');
    this.#tell('replaced', id, { due: job.score });
    return 'edited';
  }

  reschedule(ids: readonly string[], at: number, stepMs: number): Rescheduled[] {
    const line = this.#sorted('pending', Number.POSITIVE_INFINITY).filter(([id]) => ids.includes(id));
    for (const [n, [id, job]] of line.entries()) {
      Object.assign(job, { score: at + n * stepMs, first: undefined });
      this.#tell('rescheduled', id, { due: job.score });
    }
    this.#count('rescheduled', line.length);
    return ids.map((id) => {
      const state = this.jobs.get(id)?.state ?? 'missing';
      return state === 'pending' ? 'rescheduled' : state;
    });
  }

  bury(now: number, id: string, error: string): Buried {
    const job = this.jobs.get(id);
    if (job?.state !== 'pending') return job?.state ?? 'missing';
    job.first ??= job.score;
    Object.assign(job, { state: 'dead', score: now, reason: 'buried' }, error === '' ? {} : { error });
    this.#count('buried');
    this.#tell('dead', id, { attempt: job.failures + job.losses, reason: 'buried', error: job.error });
    return 'buried';
  }

  #remove(id: string, job: ModelJob): void {
    if (job.state === 'active') this.superseded.add(`${job.receipt} ${id}`);
    this.jobs.delete(id);
  }

  cancel(now: number, id: string, states: readonly ModelJob['state'][], keepId = false): Cancelled {
    const job = this.jobs.get(id);
    if (!job && !keepId && this.remembers(now, id)) {
      this.done.delete(id);
      return 'freed';
    }
    if (!job || !states.includes(job.state)) return 'missing';
    this.#remove(id, job);
    if (keepId) this.#ended(now, id, job);
    else this.done.delete(id);
    this.#count('cancelled');
    this.#tell('cancelled', id);
    return job.state;
  }

  /** Removes a job without its receipt: a lease of a consumer whose name begins with `by` ('': none) is done. */
  finish(now: number, id: string, by: string): Finished {
    const job = this.jobs.get(id);
    if (!job) return 'missing';
    if (job.state === 'active' && by !== '' && job.by.startsWith(by)) {
      this.ack(now, id, job.receipt);
      return 'acked';
    }
    this.cancel(now, id, [job.state]);
    return 'cancelled';
  }

  /** Puts a job in the place of another one, unless its id is taken. */
  swap(now: number, other: string, by: string, given: Given): Finished | 'kept' {
    if (this.jobs.has(given.id) || this.remembers(now, given.id)) return 'kept';
    const found = this.finish(now, other, by);
    this.#enqueue(now, given, 'keep');
    return found;
  }

  /** Of a plain queue, dead jobs go at once as well. */
  purge(
    now: number,
    states: readonly ModelJob['state'][],
    limit: number,
    { plain = true, due = false }: { plain?: boolean; due?: boolean } = {},
  ): Purged {
    const all = states.length === 3;
    const of = (state: ModelJob['state']) => this.#sorted(state, due ? now : Number.POSITIVE_INFINITY);
    const removed = { pending: 0, active: 0, dead: 0 };
    let left = limit;
    const singly = all ? (plain ? (['active'] as const) : (['active', 'dead'] as const)) : ORDER;
    for (const state of singly) {
      if (!states.includes(state)) continue;
      for (const [id, job] of of(state).slice(0, left)) {
        this.#remove(id, job);
        this.#tell('purged', id);
        if (state === 'dead') this.#ended(now, id, job);
        removed[state] += 1;
        left -= 1;
      }
    }
    if (all && singly.every((state) => of(state).length === 0)) {
      const others = (['pending', 'dead'] as const).map((state) => [state, of(state).length] as const);
      for (const [state, n] of others) removed[state] += n;
      const n = others.reduce((sum, [, one]) => sum + one, 0);
      if (n > 0) this.#tell('purged', '', { reason: `${n} jobs` });
      this.jobs.clear();
    }
    this.#count('purged', removed.pending + removed.active + removed.dead);
    return { ...removed, more: states.some((state) => of(state).length > 0) };
  }

  /** An import of jobs as they are elsewhere; those of moves and transfers (`token`) ignore the windows. */
  restore(now: number, job: Given & { readonly state: 'pending' | 'dead'; readonly score: number }, token: string) {
    const { id } = job;
    const answer = this.#restore(now, job, token);
    // It stays until the source has released the job.
    if (token && (answer === 'created' || answer === 'kept')) this.superseded.add(`${token} ${id}`);
    return answer;
  }

  #restore(now: number, job: Given & { state: 'pending' | 'dead'; score: number }, token: string): Restored {
    const { id, state, score } = job;
    const old = this.jobs.get(id);
    if (old) {
      const text = ({ attributes }: Given) => JSON.stringify(Object.entries(attributes).sort());
      if (old.payload !== job.payload || text(old.given) !== text(job)) return 'differs';
      return old.state === 'dead' && state === 'pending' ? 'kept-dead' : 'kept';
    }
    if (!token && this.remembers(now, id)) return 'kept-done';
    this.jobs.set(id, { ...FRESH, state, score, due: score, payload: job.payload, given: job });
    this.finished.delete(id);
    this.#count('restored');
    this.#tell('restored', id, { due: score });
    return 'created';
  }

  renew(now: number, id: string, receipt: string, leaseMs: number | undefined): Answer {
    const job = this.#held(id, receipt);
    if (typeof job === 'string') return job;
    job.score = now + (leaseMs ?? this.config.lease ?? 60_000);
    return 'held';
  }

  /** Everything a queue's keys must hold. */
  contents() {
    const set = (state: ModelJob['state']) =>
      this.#sorted(state, Number.POSITIVE_INFINITY).map(([id, job]) => [id, job.score]);
    const record = ({ failures, losses, releases, first, failed, reason, error, given }: ModelJob) =>
      JSON.parse(
        JSON.stringify({
          tries: given.tries,
          maxLost: given.maxLost,
          deliveries: given.deliveries,
          created: given.created,
          ttl: given.ttl,
          once: given.onceFor,
          ...Object.fromEntries(Object.entries(given.attributes).map(([name, value]) => [`a:${name}`, value])),
          failures: failures || undefined,
          losses: losses || undefined,
          releases: releases || undefined,
          first: first && written(first),
          failed,
          reason,
          error,
        }),
      );
    const entries = [...this.jobs];
    return {
      pending: set('pending'),
      active: set('active'),
      dead: set('dead'),
      payload: Object.fromEntries(entries.map(([id, { payload }]) => [id, payload])),
      meta: Object.fromEntries(
        entries.map(([id, job]) => [id, record(job)]).filter(([, value]) => Object.keys(value).length > 0),
      ),
      every: Object.fromEntries([...this.every].map(([id, { last, rev, payload }]) => [id, { last, rev, payload }])),
      occurs: Object.fromEntries([...this.every].map(([id, { next }]) => [id, next])),
      lease: [
        ...entries.filter(([, job]) => job.state === 'active').map(([id, job]) => `${id} ${job.receipt} ${job.due}`),
        ...this.superseded,
      ].sort(),
      stats: this.stats,
      stream: this.stream.entries.map(({ place, ...entry }) => entry),
      failures: this.failures,
    };
  }
}
