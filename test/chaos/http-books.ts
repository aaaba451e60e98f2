import type { StoredJob } from '../../src/index.js';
import type { Balance, Handling, Remains } from './ledger.js';
import { payloadOf } from './producers.js';

/** A job that somebody tried to publish. */
export interface Sent {
  /** Stands in its payload, as its id may never be told. */
  readonly key: number;
  readonly queue: string;
  readonly sent: number;
  readonly delayMs: number;
  /** How often it may be delivered. */
  readonly tries: number;
  /** By a command: answers do not tell which delivery it is. */
  readonly byCommand: boolean;
  readonly body: Buffer;
  /** The job in whose place it was published. */
  readonly replaces: Sent | undefined;
  id: string | undefined;
  /** `refused`: it was never sent as a whole, or the answer said so: it must not exist. */
  outcome: 'published' | 'refused' | 'unknown';
  /** When the outcome was known, ms. */
  told: number | undefined;
}

/** A job that an HTTP client has received whole. Times are ms; the take was between `from` and `to`. */
export interface Delivery {
  readonly job: Sent;
  readonly id: string;
  readonly receipt: string;
  readonly attempt: number;
  readonly from: number;
  readonly to: number;
  /** How long nobody else may have it. */
  leaseMs: number;
  /** It was given back, or may have been, in a way that does not count. */
  isReleased?: boolean;
  /** `lost`: the server said that the lease was not held any more. */
  ack?: { readonly outcome: 'done' | 'unknown' | 'lost'; readonly at: number };
}

/** What an answer says of a job. */
export interface Told {
  readonly job_id: string;
  readonly data: string;
  readonly remain_tries: number;
}

/** One job that reached a client or a handler, as the books compare them. */
interface Handed extends Pick<Delivery, 'receipt' | 'attempt' | 'from' | 'to' | 'leaseMs' | 'isReleased'> {
  readonly by: 'http' | 'drain';
}

/** A publish that took longer than this, ms, may have been repeated because a reply was lost. */
const REPEATED_MS = 100;

/** Whether Redis may have been asked twice for it. */
export const mayBeRepeated = (job: Sent, told = job.told ?? Number.POSITIVE_INFINITY) => told - job.sent > REPEATED_MS;

/** Clocks of one machine agree to this, ms. */
const TOLERANCE_MS = 2;

/**
 * What was published into the queues of a storm over HTTP, and by commands beside it. In the end each job that was
 * published is acked, dead or present, and each delivery has its reason.
 */
export class Books {
  readonly #jobs: Sent[] = [];
  readonly #deliveries: Delivery[] = [];
  /** By queue: how many jobs polls may have taken whose answers did not arrive whole. */
  readonly #unseen = new Map<string, number>();
  /** What no fault explains, as it is seen. */
  readonly bugs: string[] = [];
  /** How often something happened, for the report. */
  readonly counts: Record<string, number> = {};

  /** Makes a job, whose outcome is unknown. `size`: of a payload that is not JSON, bytes. */
  sending(
    queue: string,
    what: Pick<Sent, 'delayMs' | 'tries'> & Partial<Pick<Sent, 'id' | 'replaces' | 'byCommand'>> & { size?: number },
  ): Sent {
    const { delayMs, tries, id, size, replaces, byCommand = false } = what;
    const key = this.#jobs.length;
    const body =
      size === undefined
        ? Buffer.from(payloadOf(id ?? '', 'ok', key % 300, key))
        : Buffer.concat([Buffer.from(`"version":${key},`), Buffer.alloc(size, Buffer.from([key, 0, 255, 10, 200]))]);
    const job: Sent = {
      key,
      queue,
      sent: Date.now(),
      delayMs,
      tries,
      body,
      replaces,
      byCommand,
      id,
      outcome: 'unknown',
      told: undefined,
    };
    this.#jobs.push(job);
    return job;
  }

  get deliveries(): readonly Delivery[] {
    return this.#deliveries;
  }

  count(what: string, n = 1): void {
    this.counts[what] = (this.counts[what] ?? 0) + n;
  }

  bug(what: string): void {
    if (this.bugs.length < 20) this.bugs.push(what);
  }

  /** The job whose payload this is. */
  #jobOf(payload: Uint8Array | undefined): Sent | undefined {
    const start = Buffer.from(payload?.subarray(0, 200) ?? []).toString('latin1');
    return this.#jobs[Number(/"version":(\d+)/.exec(start)?.[1] ?? -1)];
  }

  /** Writes down what an answer brought. Returns undefined for what nobody published. */
  delivered(told: Told, how: Pick<Delivery, 'receipt' | 'from' | 'to' | 'leaseMs'>): Delivery | undefined {
    const data = Buffer.from(told.data, 'base64');
    const job = this.#jobOf(data);
    if (!job) {
      this.bug(`a poll brought ${told.job_id}, which nobody published`);
      return undefined;
    }
    if (!data.equals(job.body)) this.bug(`${job.queue}: ${told.job_id} came with ${data.length} other bytes`);
    if (job.id !== undefined && job.id !== told.job_id)
      this.bug(`${job.queue}: ${job.id} was published, and came as ${told.job_id}`);
    job.id = told.job_id;
    const attempt = job.byCommand ? Number.NaN : job.tries - told.remain_tries;
    const delivery: Delivery = { job, id: told.job_id, attempt, ...how };
    this.#deliveries.push(delivery);
    return delivery;
  }

  /** A poll has no answer, or not a whole one: it may have taken so many jobs. */
  unseen(queues: readonly string[], most: number): void {
    for (const queue of queues) this.#unseen.set(queue, (this.#unseen.get(queue) ?? 0) + most);
  }

  /**
   * Balances the books of a queue with what the handlers of drains logged and what is left in Redis. `isShared`: commands
   * consume from it too.
   */
  balance(
    queue: string,
    handlings: readonly Handling[],
    { present, dead, stats, torn }: Remains,
    stored: readonly StoredJob[],
    isShared: boolean,
  ): Balance {
    const { enqueued = 0, acked = 0, cancelled = 0, removed = 0, expired = 0, lost = 0 } = stats;
    const jobs = this.#jobs.filter((job) => job.queue === queue);
    const deliveries = this.#deliveries.filter(({ job }) => job.queue === queue);
    const left = new Map(stored.map((job) => [this.#jobOf(job.payload), job]));
    const handed = new Map<Sent, Handed[]>();
    const add = (job: Sent, one: Handed) => handed.set(job, [...(handed.get(job) ?? []), one]);
    for (const delivery of deliveries) add(delivery.job, { ...delivery, by: 'http' });
    for (const { version = -1, start, end, ...handling } of handlings) {
      const job = this.#jobs[version];
      if (job) add(job, { ...handling, from: start, to: end, leaseMs: 0, by: 'drain' });
      else this.bug(`a drain of ${queue} handled ${handling.id}, which nobody published`);
    }
    const acks = new Map<Sent, Delivery[]>();
    for (const delivery of deliveries)
      if (delivery.ack && delivery.ack.outcome !== 'lost')
        acks.set(delivery.job, [...(acks.get(delivery.job) ?? []), delivery]);
    const exists = (job: Sent) => handed.has(job) || left.has(job);
    const replacements = jobs.filter((job) => job.replaces && (job.outcome === 'published' || exists(job)));
    const replaced = new Map(replacements.map((job) => [job.replaces, job]));
    const mayBeGone = (job: Sent) =>
      acks.has(job) || replaced.has(job) || (handed.get(job)?.some(({ by }) => by === 'drain') ?? false);
    const doneAt = (job: Sent) =>
      Math.min(...(acks.get(job) ?? []).map(({ ack }) => (ack?.outcome === 'done' ? ack.at : Infinity)));

    const violations: string[] = [];
    const none = (what: string, list: readonly Sent[]) => {
      const some = list.slice(0, 3).map((job) => `\n  ${storyOf(job, handed.get(job), left.get(job))}`);
      if (list.length > 0) violations.push(`${queue}: ${list.length} ${what}:${some.join('')}`);
    };
    const holds = (what: string, condition: boolean) => {
      if (!condition) violations.push(`${queue}: ${what}`);
    };
    // If a reply of Redis is lost and the job is done before the call is repeated, the repeat makes the job again.
    const anew = new Set<Sent>();
    const noneBut = (what: string, list: readonly Sent[]) => {
      for (const job of list) if (mayBeRepeated(job)) anew.add(job);
      none(
        what,
        list.filter((job) => !anew.has(job)),
      );
    };
    const published = jobs.filter(({ outcome }) => outcome === 'published');
    holds('nothing was published', published.length > 0);
    none(
      'were published and are lost',
      published.filter((job) => !left.has(job) && !mayBeGone(job)),
    );
    none(
      'are lost, as the job in whose place they are is not there',
      jobs.flatMap(({ replaces, outcome }) =>
        replaces &&
        outcome === 'unknown' &&
        replaces.outcome === 'published' &&
        !exists(replaces) &&
        !mayBeGone(replaces)
          ? [replaces]
          : [],
      ),
    );
    none(
      'were refused, and are there',
      jobs.filter((job) => job.outcome === 'refused' && exists(job)),
    );
    noneBut(
      'were acked, and are still there',
      jobs.filter((job) => doneAt(job) < Infinity && left.has(job)),
    );
    noneBut(
      'were delivered after they were acked',
      deliveries.filter(({ job, from }) => from > doneAt(job)).map(({ job }) => job),
    );
    noneBut(
      'were replaced, and are still there',
      replacements.flatMap(({ replaces }) => (replaces && left.has(replaces) ? [replaces] : [])),
    );
    none(
      'came early',
      [...handed]
        .filter(([job, all]) => all.some(({ by, from, to }) => (by === 'http' ? to : from) < job.sent + job.delayMs))
        .map(([job]) => job),
    );
    none(
      'were delivered more often than they may be',
      [...handed]
        .filter(([job, all]) => all.some(({ attempt }) => attempt > job.tries || attempt < 1))
        .map(([job]) => job),
    );
    none(
      'could not be acked while their lease ran',
      deliveries
        .filter(({ job, ack, from, leaseMs }) => ack?.outcome === 'lost' && ack.at < from + leaseMs && !mayBeGone(job))
        .map(({ job }) => job),
    );
    const repeats = repeatsOf(handed);
    none('were delivered twice under one lease', repeats.sameLease);
    none('were delivered again while their lease ran', repeats.whileLeased);
    noneBut('were delivered again, and nothing had ended or counted the first delivery', repeats.uncounted);
    const made = jobs.filter((job) => job.outcome === 'published' || exists(job)).length;
    holds(`${anew.size} were made anew, and Redis counted ${enqueued - made}`, anew.size <= enqueued - made);
    none(
      'are dead before their deliveries were used up',
      stored.flatMap((job) => {
        const sent = this.#jobOf(job.payload);
        return sent && job.state === 'dead' && job.attempts < sent.tries ? [sent] : [];
      }),
    );
    holds(`torn between the sets of Redis: ${torn.slice(0, 5)}`, torn.length === 0);
    holds(`${stored.length - left.size} stand twice in Redis`, stored.length === left.size && !left.has(undefined));
    const kept = present.size + dead.size;
    holds(
      `counters do not add up: enqueued ${enqueued}, acked ${acked} + cancelled ${cancelled} + removed ${removed} + expired ${expired} + kept ${kept}`,
      enqueued === acked + cancelled + removed + expired + kept,
    );
    const open = deliveries.filter(({ ack, from, leaseMs }) => ack?.outcome !== 'done' || ack.at > from + leaseMs);
    const most = open.length + (this.#unseen.get(queue) ?? 0);
    holds(`${lost} leases were lost, and only ${most} may have been`, isShared || lost <= most);
    const late = deliveries.filter(({ attempt }) => attempt === 1).map(({ job, to }) => to - job.sent - job.delayMs);
    late.sort((a, b) => a - b);
    return {
      queue,
      violations,
      figures: {
        published: published.length,
        'of unknown outcome': jobs.filter(({ outcome }) => outcome === 'unknown').length,
        refused: jobs.filter(({ outcome }) => outcome === 'refused').length,
        'in place of another': replacements.length,
        'deliveries over HTTP': deliveries.length,
        'handled by drains': handlings.length,
        'jobs acked over HTTP': [...acks.keys()].filter((job) => doneAt(job) < Infinity).length,
        'acks that came too late': deliveries.filter(({ ack }) => ack?.outcome === 'lost').length,
        'jobs delivered again': repeats.counted,
        'made anew': anew.size,
        'leases lost': lost,
        'leases that may have been lost': most,
        dead: dead.size,
        present: present.size,
        'lateness p50 ms': late[Math.floor(late.length / 2)] ?? 0,
        'lateness p99 ms': late[Math.floor(late.length * 0.99)] ?? 0,
      },
    };
  }
}

/** Compares the deliveries of each job, in their order. */
function repeatsOf(handed: ReadonlyMap<Sent, readonly Handed[]>) {
  const found = { counted: 0, sameLease: [] as Sent[], whileLeased: [] as Sent[], uncounted: [] as Sent[] };
  for (const [job, all] of handed) {
    const sorted = [...all].sort((a, b) => a.attempt - b.attempt || a.to - b.to);
    for (const [i, next] of sorted.entries()) {
      const before = sorted[i - 1];
      if (!before) continue;
      // A drain that is stopped gives its jobs back, and counts nothing.
      const mayRelease = before.by === 'drain' || next.by === 'drain' || before.isReleased;
      const ran = before.by === 'http' && next.to < before.from + before.leaseMs - TOLERANCE_MS;
      if (before.receipt === next.receipt) found.sameLease.push(job);
      else if (next.attempt === before.attempt && !mayRelease) found.uncounted.push(job);
      else if (ran) found.whileLeased.push(job);
      else found.counted += 1;
    }
  }
  return found;
}

/** All that is known of a job, for whoever has to find out what happened. */
function storyOf(job: Sent, handed: readonly Handed[] = [], left: StoredJob | undefined): string {
  const { key, id, sent, told, delayMs, tries, outcome, replaces } = job;
  const since = (at: number | undefined) => at !== undefined && at - sent;
  const of = handed.map((one) => ({ ...one, job: undefined, id: undefined, from: since(one.from), to: since(one.to) }));
  const stored = left && { state: left.state, attempts: left.attempts, reason: left.reason };
  const all = {
    key,
    id,
    sent,
    told: since(told),
    delayMs,
    tries,
    outcome,
    replaces: replaces?.key,
    handed: of,
    stored,
  };
  return JSON.stringify(all);
}
