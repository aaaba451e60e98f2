import { isUtf8 } from 'node:buffer';
import type { Answer, Buried, Cancelled, Nacked, Outcome, Purged, Requeued, Rescheduled } from '../../src/index.js';

/** A job as it is enqueued. */
export interface Given {
  /** A character for each byte. */
  readonly id: string;
  readonly payload: string;
  readonly in: number;
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly ttl: number | undefined;
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
  failures: number;
  losses: number;
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
}

/** Upper limits of the buckets of lateness, ms. */
const LATE = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000];

/** Whether a handler can receive an id. */
const canBeGiven = (id: string) => isUtf8(Buffer.from(id, 'latin1')) && !id.includes('\0');

/** A queue in plain code. The scripts must behave like it. */
export class Model {
  readonly jobs = new Map<string, ModelJob>();
  /** 'receipt id' of superseded leases whose holder has not asked yet. */
  readonly superseded = new Set<string>();
  readonly stats: Record<string, number> = {};
  config: { tries?: number; maxLost?: number; ttl?: number; backoff?: string; lease?: number } = {};
  /** Until when the queue is paused, ms. */
  pausedUntil: number | undefined;

  #count(name: string, n = 1): void {
    if (n > 0) this.stats[name] = (this.stats[name] ?? 0) + n;
  }

  #sorted(state: ModelJob['state'], upTo: number): [string, ModelJob][] {
    return [...this.jobs]
      .filter(([, job]) => job.state === state && job.score <= upTo)
      .sort(([a, x], [b, y]) => x.score - y.score || (a < b ? -1 : 1));
  }

  #bury(job: ModelJob, now: number, reason: string): void {
    Object.assign(job, { state: 'dead', score: now, reason });
    this.#count('dead');
  }

  pass(ms: number): void {
    if (this.pausedUntil !== undefined) this.pausedUntil -= ms;
    for (const job of this.jobs.values()) {
      job.score -= ms;
      job.due -= ms;
      if (job.first !== undefined) job.first -= ms;
      if (job.failed !== undefined) job.failed -= ms;
    }
  }

  enqueue(now: number, jobs: readonly Given[], mode: 'keep' | 'replace'): { outcomes: Outcome[]; begun: boolean } {
    const before = { ...this.stats };
    const outcomes = jobs.map((given) => this.#enqueue(now, given, mode));
    const begun = ['enqueued', 'replaced', 'kept'].some((name) => name in this.stats && !(name in before));
    return { outcomes, begun };
  }

  #enqueue(now: number, given: Given, mode: 'keep' | 'replace'): Outcome {
    const old = this.jobs.get(given.id);
    if (old && mode === 'keep') {
      this.#count('kept');
      return old.state === 'dead' ? 'kept-dead' : 'kept';
    }
    if (old?.state === 'active') this.superseded.add(`${old.receipt} ${given.id}`);
    const score = now + given.in;
    this.jobs.set(given.id, {
      state: 'pending',
      score,
      due: score,
      payload: given.payload,
      receipt: '',
      failures: 0,
      losses: 0,
      first: undefined,
      failed: undefined,
      reason: undefined,
      error: undefined,
      given,
    });
    this.#count(old ? 'replaced' : 'enqueued');
    return old ? 'replaced' : 'created';
  }

  drain(now: number, limit: number, leaseMs: number | undefined, receipt: string): Taken[] {
    if ((this.pausedUntil ?? now) > now) return [];
    for (const [, job] of this.#sorted('active', now).slice(0, limit)) {
      job.losses += 1;
      this.#count('lost');
      if (job.losses >= (job.given.maxLost ?? this.config.maxLost ?? 20)) this.#bury(job, now, 'lost');
      else Object.assign(job, { state: 'pending', score: job.due });
    }
    const taken: Taken[] = [];
    const scores: number[] = [];
    for (const [id, job] of this.#sorted('pending', now).slice(0, limit)) {
      if (!canBeGiven(id)) {
        this.#bury(job, now, 'bad id');
        continue;
      }
      const ttl = job.given.ttl ?? this.config.ttl;
      if (ttl !== undefined && (job.first ?? job.score) + ttl < now) {
        this.jobs.delete(id);
        this.#count('expired');
        continue;
      }
      const { failures, losses, payload, given } = job;
      const { attributes } = given;
      const tries = job.given.tries ?? this.config.tries ?? 5;
      // Drains tell whole ms.
      const counts = { attempt: 1 + failures + losses, failures, tries };
      taken.push({ id, due: Math.floor(job.score), ...counts, payload, attributes });
      this.#count('delivered');
      const late = now - job.score;
      this.#count(`late:${LATE.find((most) => late <= most) ?? 'inf'}`);
      scores.push(job.score);
      if (leaseMs === 0) {
        this.jobs.delete(id);
        this.#count('removed');
      } else
        Object.assign(job, {
          state: 'active',
          due: job.score,
          score: now + (leaseMs ?? this.config.lease ?? 60_000),
          receipt,
        });
    }
    this.#count('late:sum', Math.floor(scores.reduce((sum, score) => sum - score, now * scores.length)));
    return taken;
  }

  #held(id: string, receipt: string): ModelJob | 'lost' | 'superseded' {
    const job = this.jobs.get(id);
    if (job?.state === 'active' && job.receipt === receipt) return job;
    return this.superseded.has(`${receipt} ${id}`) ? 'superseded' : 'lost';
  }

  ack(id: string, receipt: string): Answer {
    const job = this.#held(id, receipt);
    if (job === 'superseded') this.superseded.delete(`${receipt} ${id}`);
    if (typeof job === 'string') return job;
    this.jobs.delete(id);
    this.#count('acked');
    return 'held';
  }

  nack(
    now: number,
    how: {
      id: string;
      receipt: string;
      mode: 'retry' | 'dead' | 'release';
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
    if (mode === 'release') {
      if (delayMs !== undefined && (job.given.ttl ?? this.config.ttl) !== undefined) job.first ??= job.due;
      Object.assign(job, { state: 'pending', score: delayMs === undefined ? job.due : now + delayMs });
      return { answer: 'pending', delayMs: 0 };
    }
    job.failures += 1;
    job.failed = now;
    job.error = undefined;
    job.first ??= job.due;
    if (mode === 'dead' || job.failures >= (job.given.tries ?? this.config.tries ?? 5)) {
      this.#bury(job, now, mode === 'dead' ? 'refused' : 'failed');
      return { answer: 'dead', delayMs: 0 };
    }
    const wait = delayMs ?? this.#wait(job.failures, how);
    Object.assign(job, { state: 'pending', score: now + wait });
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

  requeue(id: string, at: number): Requeued {
    const job = this.jobs.get(id);
    if (job?.state !== 'dead') return 'missing';
    if (!canBeGiven(id)) return 'bad-id';
    const fresh = { failures: 0, losses: 0, first: undefined, failed: undefined, reason: undefined, error: undefined };
    Object.assign(job, { state: 'pending', score: at, ...fresh });
    this.#count('requeued');
    return 'requeued';
  }

  reschedule(ids: readonly string[], at: number, stepMs: number): Rescheduled[] {
    const line = this.#sorted('pending', Number.POSITIVE_INFINITY).filter(([id]) => ids.includes(id));
    for (const [n, [, job]] of line.entries()) Object.assign(job, { score: at + n * stepMs, first: undefined });
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
    return 'buried';
  }

  #remove(id: string, job: ModelJob): void {
    if (job.state === 'active') this.superseded.add(`${job.receipt} ${id}`);
    this.jobs.delete(id);
  }

  cancel(id: string, states: readonly ModelJob['state'][]): Cancelled {
    const job = this.jobs.get(id);
    if (!job || !states.includes(job.state)) return 'missing';
    this.#remove(id, job);
    this.#count('cancelled');
    return job.state;
  }

  purge(states: readonly ModelJob['state'][], limit: number): Purged {
    const all = states.length === 3;
    const of = (state: ModelJob['state']) => this.#sorted(state, Number.POSITIVE_INFINITY);
    const removed = { pending: 0, active: 0, dead: 0 };
    let left = limit;
    for (const state of all ? (['active'] as const) : (['active', 'dead', 'pending'] as const)) {
      if (!states.includes(state)) continue;
      for (const [id, job] of of(state).slice(0, left)) {
        this.#remove(id, job);
        removed[state] += 1;
        left -= 1;
      }
    }
    if (all && of('active').length === 0) {
      for (const state of ['pending', 'dead'] as const) removed[state] = of(state).length;
      this.jobs.clear();
    }
    this.#count('purged', removed.pending + removed.active + removed.dead);
    return { ...removed, more: states.some((state) => of(state).length > 0) };
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
    const record = ({ failures, losses, first, failed, reason, error, given }: ModelJob) =>
      JSON.parse(
        JSON.stringify({
          tries: given.tries,
          maxLost: given.maxLost,
          ttl: given.ttl,
          ...Object.fromEntries(Object.entries(given.attributes).map(([name, value]) => [`a:${name}`, value])),
          failures: failures || undefined,
          losses: losses || undefined,
          // cjson keeps 14 digits.
          first: first && Number(first.toPrecision(14)),
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
      lease: [
        ...entries.filter(([, job]) => job.state === 'active').map(([id, job]) => `${id} ${job.receipt} ${job.due}`),
        ...this.superseded,
      ].sort(),
      stats: this.stats,
    };
  }
}
