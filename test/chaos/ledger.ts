import type { Redis } from 'ioredis';
import { key } from '../support/redis.js';

/** One line of a handler's log: it did a job, under one receipt, from start to end (ms). */
export interface Handling {
  readonly id: string;
  readonly attempt: number;
  readonly due: number;
  readonly start: number;
  readonly end: number;
  readonly receipt: string;
  readonly run: string;
}

/** What handlers noted. */
export interface Log {
  readonly handlings: Handling[];
  /** Jobs whose payload was not their own. */
  readonly corrupt: string[];
}

/** Reads a log. A last line that was never finished (its writer's disk was full, say) is no handling. */
export function readLog(text: string): Log {
  const handlings: Handling[] = [];
  const corrupt: string[] = [];
  for (const line of text.slice(0, text.lastIndexOf('\n') + 1).split('\n')) {
    const words = line.split(' ');
    if (words[0] === 'corrupt') corrupt.push(words[1] as string);
    if (words.length < 7) continue;
    const [id, attempt, due, start, end, receipt, run] = words as [string, ...string[]];
    handlings.push({
      id,
      attempt: Number(attempt),
      due: Number(due),
      start: Number(start),
      end: Number(end),
      receipt: receipt as string,
      run: run as string,
    });
  }
  return { handlings, corrupt };
}

/** What is left of a queue in Redis when all is over. */
export interface Remains {
  readonly present: ReadonlySet<string>;
  readonly dead: ReadonlySet<string>;
  readonly stats: Readonly<Record<string, number>>;
  /** Ids that stand in no set, in several, or without a payload. */
  readonly torn: string[];
}

export async function remainsOf(admin: Redis, queue: string): Promise<Remains> {
  const [pending, active, dead] = await Promise.all(
    ['pending', 'active', 'dead'].map((set) => admin.zrange(key(queue, set), '0', '-1')),
  );
  const sets = [...(pending ?? []), ...(active ?? []), ...(dead ?? [])];
  const payloads = new Set(await admin.hkeys(key(queue, 'payload')));
  const ids = new Set(sets);
  const once = new Set<string>();
  const stats = await admin.hgetall(key(queue, 'stats'));
  return {
    present: new Set([...(pending ?? []), ...(active ?? [])]),
    dead: new Set(dead),
    stats: Object.fromEntries(Object.entries(stats).map(([name, value]) => [name, Number(value)])),
    torn: [
      ...sets.filter((id) => !payloads.has(id) || once.has(id) || !once.add(id)),
      ...[...payloads].filter((id) => !ids.has(id)),
    ],
  };
}

interface Entry {
  readonly sent: number;
  readonly inMs: number;
  readonly mayExpire: boolean;
  confirmed: number | undefined;
}

/** How strictly a queue's books must balance. */
export interface Terms {
  /** Whether jobs may be gone that no handler noted, up to what the counter `removed` or a dead reader explains. */
  readonly mayLose?: 'removed' | 'read' | undefined;
  /** Runs that were killed, stopped, or met a Redis in trouble: what they handled may come again with the same attempt. */
  readonly disturbed?: ((run: string) => boolean) | undefined;
  /** Whether a job confirmed at this time (ms) may have been forgotten by a Redis that was killed. */
  readonly mayForget?: ((confirmed: number) => boolean) | undefined;
}

/** The books of one queue, balanced. */
export interface Balance {
  readonly queue: string;
  readonly figures: Record<string, number>;
  /** What cannot be explained: empty, if nothing was lost. */
  readonly violations: string[];
}

/**
 * What was enqueued into a queue: each job confirmed, or of an outcome that its producer never learned. In the end
 * confirmed = handled + dead + present + expired (+ removed), and every repeat has its reason.
 */
export class Ledger {
  readonly queue: string;
  readonly #entries = new Map<string, Entry>();

  constructor(queue: string) {
    this.queue = queue;
  }

  /** A new id, noted before it is sent: until it is confirmed its outcome is unknown. */
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

  /** Balances the books with what handlers noted and what Redis still has. */
  balance({ handlings, corrupt }: Log, remains: Remains, terms: Terms = {}): Balance {
    const { stats } = remains;
    const violations: string[] = [];
    const wrong = (what: string, list: readonly string[], most = 0) => {
      if (list.length > most) violations.push(`${this.queue}: ${list.length} ${what}: ${list.slice(0, 5).join(', ')}`);
    };
    const byJob = new Map<string, Handling[]>();
    for (const handling of handlings.filter(({ id }) => id.startsWith(`${this.queue}-`))) {
      const of = byJob.get(handling.id);
      if (of) of.push(handling);
      else byJob.set(handling.id, [handling]);
    }
    const seen = new Set([...byJob.keys(), ...remains.dead, ...remains.present]);
    const confirmed = this.confirmedIds;
    const missing = confirmed.filter((id) => !seen.has(id));
    const entry = (id: string) => this.#entries.get(id) as Entry;
    const forgets = (id: string) => terms.mayForget?.(entry(id).confirmed as number) ?? false;
    const forgotten = missing.filter(forgets);
    const gone = missing.filter((id) => !forgets(id));
    const { enqueued = 0, acked = 0, removed = 0, expired = 0 } = stats;
    // Whatever left Redis although no handler has seen it: that and no more may be missing.
    const unseen = { removed: removed - byJob.size, read: acked - byJob.size, none: 0 }[terms.mayLose ?? 'none'];
    wrong('confirmed and missing, more than expired or were lost with a reader', gone, expired + Math.max(0, unseen));
    if (!terms.mayLose) {
      wrong(
        'confirmed and lost',
        gone.filter((id) => !entry(id).mayExpire),
      );
    }

    wrong(
      'that nobody enqueued',
      [...seen].filter((id) => !this.#entries.has(id)),
    );
    wrong('with a payload that is not theirs', corrupt);
    wrong('torn between the sets of Redis', remains.torn);
    const all = [...byJob.values()].flat();
    wrong(
      'handled early',
      all
        .filter(({ id, due, start }) => {
          const { sent, inMs } = this.#entries.get(id) ?? { sent: 0, inMs: 0 };
          return start < due || due < sent + inMs;
        })
        .map(({ id, due, start }) => `${id} (due ${due}, begun ${start})`),
    );

    const repeats = this.#repeats(byJob, terms);
    // A reply of enqueue that was lost is asked for again: if the job was done by then, that makes it anew.
    const again = Math.max(0, enqueued - new Set([...confirmed, ...seen]).size);
    wrong('handled twice under one lease', repeats.sameLease);
    wrong('handled twice although no lease had ended', repeats.unexplained, again);

    const kept = remains.present.size + remains.dead.size;
    if (enqueued !== acked + removed + expired + kept) {
      violations.push(
        `${this.queue}: Redis's own counters do not add up: enqueued ${enqueued}, but acked ${acked} + removed ` +
          `${removed} + expired ${expired} + kept ${kept}`,
      );
    }
    const late = all.filter(({ attempt }) => attempt === 1).map(({ due, start }) => start - due);
    late.sort((a, b) => a - b);
    const worst = all.reduce((most, { due, start }) => Math.max(most, start - due), 0);
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
        'lost with their reader': terms.mayLose ? gone.filter((id) => !entry(id).mayExpire).length : 0,
        forgotten: forgotten.length,
        'handled again after a loss or failure': repeats.counted,
        'handled again after a release': repeats.released,
        'handled again, enqueued anew': repeats.unexplained.length,
        'leases lost': stats.lost ?? 0,
        'lateness p50 ms': late[Math.floor(late.length / 2)] ?? 0,
        'lateness p99 ms': late[Math.floor(late.length * 0.99)] ?? 0,
        'lateness worst ms': worst,
      },
    };
  }

  #repeats(byJob: ReadonlyMap<string, readonly Handling[]>, { disturbed = () => false }: Terms) {
    const found = { counted: 0, released: 0, unexplained: [] as string[], sameLease: [] as string[] };
    for (const [id, of] of byJob) {
      const sorted = [...of].sort((a, b) => a.attempt - b.attempt || a.start - b.start);
      for (const [i, handling] of sorted.entries()) {
        const before = sorted[i - 1];
        if (!before) continue;
        if (before.receipt === handling.receipt) found.sameLease.push(id);
        else if (handling.attempt > before.attempt) found.counted += 1;
        else if (disturbed(before.run) || disturbed(handling.run)) found.released += 1;
        else found.unexplained.push(`${id} (${before.run}, then ${handling.run})`);
      }
    }
    return found;
  }
}
