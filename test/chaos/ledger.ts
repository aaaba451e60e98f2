import type { Cluster, Redis } from 'ioredis';
import { tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';

/** A line of the handlers' log: a job was handled under a receipt, from start to end (ms). */
export interface Handling {
  readonly id: string;
  readonly attempt: number;
  readonly due: number;
  readonly start: number;
  readonly end: number;
  readonly receipt: string;
  readonly run: string;
  /** Which payload of its id it had, if there are several. */
  readonly version?: number | undefined;
}

/** What handlers logged. */
export interface Log {
  readonly handlings: Handling[];
  /** Jobs whose payload was wrong or incomplete. */
  readonly corrupt: string[];
  /** `id attempt` of each failure. */
  readonly failures: string[];
  /** What a worker was told when it answered: `acked id attempt`; when, ms, and in which run. */
  readonly settled: { readonly what: string; readonly at: number; readonly run: string }[];
}

/** Reads a log. Ignores an incomplete last line. */
export function readLog(text: string): Log {
  const log: Log = { handlings: [], corrupt: [], failures: [], settled: [] };
  for (const line of text.slice(0, text.lastIndexOf('\n') + 1).split('\n')) {
    const words = line.split(' ') as [string, ...string[]];
    if (words[0] === 'corrupt') log.corrupt.push(words[1] as string);
    if (words[0] === 'failed') log.failures.push(`${words[1]} ${words[2]}`);
    if (words[0] === 'settled')
      log.settled.push({ what: words.slice(1, 4).join(' '), at: Number(words[4]), run: words[5] as string });
    if (words.length < 7) continue;
    const [id, attempt, due, start, end, receipt, run, version] = words;
    log.handlings.push({
      id,
      attempt: Number(attempt),
      due: Number(due),
      start: Number(start),
      end: Number(end),
      receipt: receipt as string,
      run: run as string,
      version: version ? Number(version) : undefined,
    });
  }
  return log;
}

/** What is left of a queue in Redis at the end. */
export interface Remains {
  readonly present: ReadonlySet<string>;
  readonly dead: ReadonlySet<string>;
  readonly stats: Readonly<Record<string, number>>;
  /** Ids that are in no set, in several, in several partitions, or have no payload. */
  readonly torn: string[];
}

/** Looks at all partitions of a queue. */
export async function remainsOf(admin: Redis | Cluster, queue: string): Promise<Remains> {
  const remains = { present: new Set<string>(), dead: new Set<string>(), stats: {} as Record<string, number> };
  const torn: string[] = [];
  for (const tag of await tagsOf(admin, queue)) {
    const [pending = [], active = [], dead = []] = await Promise.all(
      ['pending', 'active', 'dead'].map((set) => admin.zrange(key(tag, set), '0', '-1')),
    );
    const payloads = new Set(await admin.hkeys(key(tag, 'payload')));
    const sets = [...pending, ...active, ...dead];
    const ids = new Set(sets);
    const once = new Set([...remains.present, ...remains.dead]);
    torn.push(...sets.filter((id) => !payloads.has(id) || once.has(id) || !once.add(id)));
    torn.push(...[...payloads].filter((id) => !ids.has(id)));
    for (const id of [...pending, ...active]) remains.present.add(id);
    for (const id of dead) remains.dead.add(id);
    for (const [name, value] of Object.entries(await admin.hgetall(key(tag, 'stats'))))
      remains.stats[name] = (remains.stats[name] ?? 0) + Number(value);
  }
  return { ...remains, torn };
}

/** An enqueue that took longer than this, ms, may have been repeated because a reply was lost. */
const REPEATED_MS = 100;

interface Entry {
  readonly sent: number;
  readonly inMs: number;
  readonly mayExpire: boolean;
  confirmed: number | undefined;
}

/** What may have happened to a queue. */
export interface Terms {
  /** There were no faults: no job may be lost, repeated or of unknown outcome. */
  readonly calm?: boolean;
  /** Jobs may be lost: they were removed when taken, or written to a reader that was killed. */
  readonly mayLose?: boolean;
  /** No job may be handled twice, whatever happened. */
  readonly atMostOnce?: boolean;
  /** Whether a run was killed, stopped or failed: its jobs may be handled again with the same attempt. */
  readonly disturbed?: ((run: string) => boolean) | undefined;
  /** Whether Redis was killed or replaced and may have lost what it did at this time, ms. */
  readonly mayForget?: ((at: number) => boolean) | undefined;
  /** Every confirmed job was on all replicas: it may not be lost, though what was done with it may be forgotten. */
  readonly replicated?: boolean;
}

/** The result for one queue. */
export interface Balance {
  readonly queue: string;
  readonly figures: Record<string, number>;
  /** What cannot be explained. Empty if the books balance. */
  readonly violations: string[];
}

/**
 * What was enqueued into a queue: jobs that were confirmed, and jobs of unknown outcome. At the end
 * confirmed = handled + dead + present + expired (+ removed), and every repeat must have a reason.
 */
export class Ledger {
  readonly queue: string;
  readonly #entries = new Map<string, Entry>();

  constructor(queue: string) {
    this.queue = queue;
  }

  /** Makes a new id. Its outcome is unknown until it is confirmed. */
  sending(inMs: number, mayExpire = false): string {
    const id = `${this.queue}-${this.#entries.size}`;
    this.#entries.set(id, { sent: Date.now(), inMs, mayExpire, confirmed: undefined });
    return id;
  }

  confirmed(id: string): void {
    const entry = this.#entries.get(id);
    if (!entry) throw new Error(`an enqueue confirmed ${JSON.stringify(id)}, which nobody sent`);
    entry.confirmed ??= Date.now();
  }

  get confirmedIds(): string[] {
    return [...this.#entries].filter(([, entry]) => entry.confirmed !== undefined).map(([id]) => id);
  }

  /** The ids that were confirmed, and that Redis cannot have forgotten. */
  surely({ mayForget = () => false, replicated = false }: Terms): string[] {
    return this.confirmedIds.filter((id) => replicated || !mayForget(this.#entries.get(id)?.confirmed as number));
  }

  /** Compares what was enqueued with what handlers logged and what is left in Redis. */
  balance(log: Log, remains: Remains, terms: Terms = {}): Balance {
    const { calm = false, mayLose = false, mayForget = () => false, replicated = false } = terms;
    const { enqueued = 0, acked = 0, removed = 0, expired = 0, lost = 0, retried = 0 } = remains.stats;
    const ours = (id: string) => id.startsWith(`${this.queue}-`);
    const all = log.handlings.filter(({ id }) => ours(id));
    const byJob = new Map<string, Handling[]>();
    for (const handling of all) {
      const of = byJob.get(handling.id);
      if (of) of.push(handling);
      else byJob.set(handling.id, [handling]);
    }
    const seen = new Set([...byJob.keys(), ...remains.dead, ...remains.present]);
    const confirmed = this.confirmedIds;
    const entry = (id: string) => this.#entries.get(id) as Entry;
    const missing = confirmed.filter((id) => !seen.has(id));
    const isForgotten = (id: string) => !replicated && mayForget(entry(id).confirmed as number);
    const forgotten = missing.filter(isForgotten);
    const gone = missing.filter((id) => !isForgotten(id));
    const plain = gone.filter((id) => !entry(id).mayExpire);
    const repeats = this.#repeats(byJob, terms);
    const grown = [...byJob.values()].reduce((sum, of) => sum + Math.max(...of.map(({ attempt }) => attempt)) - 1, 0);
    // Redis may have forgotten that it counted these.
    const uncounted = all.filter(({ attempt, start }) => attempt > 1 && mayForget(start)).length;
    const kept = remains.present.size + remains.dead.size;

    const violations: string[] = [];
    const none = (what: string, list: readonly string[], most = 0) => {
      if (list.length > most) violations.push(`${this.queue}: ${list.length} ${what}: ${list.slice(0, 5).join(', ')}`);
    };
    const holds = (what: string, condition: boolean) => {
      if (!condition) violations.push(`${this.queue}: ${what}`);
    };
    holds('nothing was confirmed at all', confirmed.length > 0);
    none('were confirmed and are lost', mayLose && !calm ? [] : plain);
    none('are missing, more than expired', mayLose && !calm ? [] : gone, expired);
    none(
      'were handled, but nobody enqueued them',
      [...seen].filter((id) => !this.#entries.has(id)),
    );
    none('had a payload that was not theirs, or not whole', log.corrupt.filter(ours));
    none('are torn between the sets of Redis', remains.torn);
    none(
      'were handled early',
      all
        .filter(({ id, due, start }) => {
          const { sent, inMs } = this.#entries.get(id) ?? { sent: 0, inMs: 0 };
          return start < due || due < sent + inMs;
        })
        .map(({ id, due, start }) => `${id} (due ${due}, begun ${start})`),
    );
    none('were handled twice under one lease', repeats.sameLease);
    // If the reply of an enqueue is lost and the job is done before the repeat, the repeat creates the job again.
    const wentWell = (id: string) => {
      const { sent = 0, confirmed } = this.#entries.get(id) ?? {};
      return confirmed !== undefined && confirmed - sent < REPEATED_MS;
    };
    // What Redis has forgotten, it no longer counts.
    const counted = Math.max(0, enqueued - new Set([...confirmed, ...seen]).size);
    const anew = terms.mayForget ? repeats.anew.length : counted;
    none('were handled again although no lease had ended', repeats.unexplained);
    holds(`handled again at most once: ${repeats.released}`, !terms.atMostOnce || repeats.released === 0);
    none('were enqueued anew although their enqueue went well', repeats.anew.filter(wentWell));
    none('were enqueued anew, more than Redis counted', [...new Set(repeats.anew)], anew);
    none(
      'failed twice at the same attempt',
      // Redis may have lost the failure.
      terms.mayForget ? [] : twice(log.failures.filter(ours)).filter((of) => wentWell(of.replace(/ .*/, ''))),
    );
    holds(
      `counters do not add up: enqueued ${enqueued}, acked ${acked} + removed ${removed} + expired ${expired} + kept ${kept}`,
      enqueued === acked + removed + expired + kept,
    );
    const most = terms.mayForget ? all.length : byJob.size + anew;
    holds(`acked ${acked}, but handled ${byJob.size}`, mayLose || acked <= most);
    holds(`attempts grew by ${grown}, but lost ${lost} and retried ${retried}`, grown <= lost + retried + uncounted);
    if (calm) {
      holds('something is in doubt', this.#entries.size === confirmed.length);
      holds(`expired ${expired}, lost ${lost}`, expired === 0 && lost === 0);
      holds('something was enqueued anew', repeats.anew.length === 0);
      holds('were handled again after a release', repeats.released === 0);
    }
    const late = all.filter(({ attempt }) => attempt === 1).map(({ due, start }) => start - due);
    late.sort((a, b) => a - b);
    return {
      queue: this.queue,
      violations,
      figures: {
        confirmed: confirmed.length,
        'of unknown outcome': this.#entries.size - confirmed.length,
        handled: byJob.size,
        dead: remains.dead.size,
        present: remains.present.size,
        expired,
        removed,
        'lost, as the form allows': mayLose ? plain.length : 0,
        forgotten: forgotten.length,
        'handled again after a loss or failure': repeats.counted,
        'handled again after a release': repeats.released,
        'handled again, as Redis forgot': repeats.forgotten,
        'handled again, enqueued anew': repeats.anew.length,
        'leases lost': lost,
        failed: retried,
        'lateness p50 ms': late[Math.floor(late.length / 2)] ?? 0,
        'lateness p99 ms': late[Math.floor(late.length * 0.99)] ?? 0,
        'lateness worst ms': all.reduce((most, { due, start }) => Math.max(most, start - due), 0),
      },
    };
  }

  #repeats(
    byJob: ReadonlyMap<string, readonly Handling[]>,
    { disturbed = () => false, mayForget = () => false }: Terms,
  ) {
    const found = {
      counted: 0,
      released: 0,
      forgotten: 0,
      anew: [] as string[],
      unexplained: [] as string[],
      sameLease: [] as string[],
    };
    for (const [id, of] of byJob) {
      const sorted = [...of].sort((a, b) => a.attempt - b.attempt || a.start - b.start);
      for (const [i, handling] of sorted.entries()) {
        const before = sorted[i - 1];
        if (!before) continue;
        if (before.receipt === handling.receipt) found.sameLease.push(id);
        else if (handling.attempt > before.attempt) found.counted += 1;
        // Redis may have lost that it was taken.
        else if (mayForget(before.start)) found.forgotten += 1;
        // A job that is given back keeps its due time. With another due time it was enqueued again.
        else if (handling.due !== before.due) found.anew.push(id);
        else if (disturbed(before.run)) found.released += 1;
        else found.unexplained.push(`${id} (${before.run}, then ${handling.run}, both attempt ${handling.attempt})`);
      }
    }
    return found;
  }
}

const twice = (list: readonly string[]) => list.filter((one, i) => list.indexOf(one) !== i);
