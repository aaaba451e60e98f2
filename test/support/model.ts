import type { Answer, Nacked, Outcome, Requeued } from '../../src/index.js';

/** What a job is given when it is enqueued. */
export interface Given {
  readonly id: string;
  readonly payload: string;
  readonly in: number;
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly ttl: number | undefined;
}

interface ModelJob {
  state: 'pending' | 'active' | 'dead';
  /** The score in the set of its state. */
  score: number;
  /** Due time at the last taking. */
  due: number;
  payload: string;
  receipt: string;
  failures: number;
  losses: number;
  first: number | undefined;
  failed: number | undefined;
  reason: string | undefined;
  given: Given;
}

/** Ends of the buckets of lateness, ms. */
const LATE = [5, 10, 50, 100, 500, 1_000, 5_000, 10_000, 60_000, 600_000, 3_600_000];

/** A queue as a few lines of plain code: what the scripts must agree with. */
export class Model {
  readonly jobs = new Map<string, ModelJob>();
  /** 'receipt id' of leases that were superseded and whose holder has not been told. */
  readonly superseded = new Set<string>();
  readonly stats: Record<string, number> = {};
  config: { tries?: number; maxLost?: number; ttl?: number; backoff?: string; lease?: number; paused?: boolean } = {};

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
    for (const job of this.jobs.values()) {
      job.score -= ms;
      job.due -= ms;
      if (job.first !== undefined) job.first -= ms;
      if (job.failed !== undefined) job.failed -= ms;
    }
  }

  enqueue(now: number, jobs: readonly Given[], mode: 'keep' | 'replace'): Outcome[] {
    return jobs.map((given) => {
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
        given,
      });
      this.#count(old ? 'replaced' : 'enqueued');
      return old ? 'replaced' : 'created';
    });
  }

  drain(
    now: number,
    limit: number,
    leaseMs: number | undefined,
    receipt: string,
  ): { id: string; due: number; attempt: number; failures: number; tries: number; payload: string }[] {
    if (this.config.paused) return [];
    for (const [, job] of this.#sorted('active', now).slice(0, limit)) {
      job.losses += 1;
      this.#count('lost');
      if (job.losses >= (job.given.maxLost ?? this.config.maxLost ?? 20)) this.#bury(job, now, 'lost');
      else Object.assign(job, { state: 'pending', score: job.due });
    }
    const taken = [];
    for (const [id, job] of this.#sorted('pending', now).slice(0, limit)) {
      const ttl = job.given.ttl ?? this.config.ttl;
      if (ttl !== undefined && (job.first ?? job.score) + ttl < now) {
        this.jobs.delete(id);
        this.#count('expired');
        continue;
      }
      const { failures, losses, payload } = job;
      const tries = job.given.tries ?? this.config.tries ?? 5;
      taken.push({ id, due: job.score, attempt: 1 + failures + losses, failures, tries, payload });
      this.#count('delivered');
      const late = now - job.score;
      this.#count(`late:${LATE.find((most) => late <= most) ?? 'inf'}`);
      this.#count('late:sum', late);
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

  requeue(now: number, id: string): Requeued {
    const job = this.jobs.get(id);
    if (job?.state !== 'dead') return 'missing';
    const fresh = { failures: 0, losses: 0, first: undefined, failed: undefined, reason: undefined };
    Object.assign(job, { state: 'pending', score: now, ...fresh });
    this.#count('requeued');
    return 'requeued';
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
    const record = ({ failures, losses, first, failed, reason, given }: ModelJob) =>
      JSON.parse(
        JSON.stringify({
          tries: given.tries,
          maxLost: given.maxLost,
          ttl: given.ttl,
          failures: failures || undefined,
          losses: losses || undefined,
          first,
          failed,
          reason,
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
