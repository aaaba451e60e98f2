import { type Id, idOf } from '../model/id.js';
import type { Connection, Reply } from '../redis/connection.js';
import { atOnce } from './at-once.js';
import { replicated } from './durability.js';
import type { QueueKeys } from './keys.js';
import { groupsOf, type PartitionMap } from './map.js';
import { bringRemembered, relocate } from './relocate.js';
import { rows, text } from './replies.js';
import { scan } from './scan.js';
import { SLICE } from './script.js';
import type { Store } from './store.js';

/** About how many ids one reply has while a set is searched: less than 1 ms of Redis's time. */
const SCANNED = 500;

/** Transfers at once: enough to keep two servers busy. */
const AT_ONCE = 8;

/** Moves each id of a partition to the partition where it belongs since a growth began. */
export class Sweep {
  readonly at: number;
  readonly #store: Store;
  readonly #map: PartitionMap;
  readonly #keys: QueueKeys;
  /** Jobs that were moved. */
  moved = 0;
  /** Jobs that consumers, or unfinished moves to other queues, held in the last round. */
  active = 0;
  /** The queues to which unfinished moves hold some of these. */
  moves: ReadonlySet<string> = new Set();
  /** The last round left nothing to move, and nothing came back meanwhile. */
  isClean = false;

  constructor(store: Store, map: PartitionMap, at: number) {
    this.at = at;
    this.#store = store;
    this.#map = map;
    this.#keys = store.keys(at, map);
  }

  /** Goes through the partition once. Throws what a transfer throws. */
  async run(signal: AbortSignal): Promise<void> {
    const [returned, moved] = [await this.#returned(), this.moved];
    this.active = 0;
    await this.#copyMarks();
    // In this order: ids go from pending to dead or active. Those that go back are counted as returned.
    for (const set of ['pending', 'dead', 'active'] as const) await this.#sweep(set, signal);
    // Last: active jobs that end are remembered here.
    const left = this.active === 0 ? await sweepRemembered(this.#store, this.at, { map: this.#map }) : 0;
    const isStill = this.moved === moved && (await this.#returned()) === returned;
    const nothing = isStill && this.active === 0 && left === 0;
    this.isClean = nothing && !signal.aborted;
  }

  /** Counts the active jobs that can move only after their leases end. */
  async lookAtActive(): Promise<void> {
    let active = 0;
    const moves = new Set<string>();
    for await (const ids of this.#movers('active')) {
      if (ids.length === 0) continue;
      for (const lease of (await this.#store.redis.call('HMGET', this.#keys.lease, ...ids)) as Reply[]) {
        const [, to] = / move:(\S+) [pd] \S+$/.exec(text(lease)) ?? [];
        // Holders of this growth have a slash in their names. The growth itself ends them.
        if (to?.includes('/')) continue;
        active++;
        if (to) moves.add(to);
      }
    }
    // Set together: callers read both at any time.
    this.active = active;
    this.moves = moves;
  }

  async #returned(): Promise<number> {
    return Number(text(await this.#store.redis.call('HGET', this.#keys.config, 'returned')));
  }

  async #sweep(set: 'pending' | 'dead' | 'active', signal: AbortSignal): Promise<void> {
    await atOnce(AT_ONCE, this.#slices(set, signal), ({ owner, ids }) => this.#relocate(owner, ids));
  }

  /** Yields ids that belong elsewhere, in slices for one partition each. */
  async *#slices(set: 'pending' | 'dead' | 'active', signal: AbortSignal) {
    const collected = new Map<number, Id[]>();
    for await (const ids of this.#movers(set)) {
      for (const [owner, more] of groupsOf(ids, (id) => this.#map.ownerOf(id))) {
        const some = [...(collected.get(owner) ?? []), ...more];
        while (some.length >= SLICE) yield { owner, ids: some.splice(0, SLICE) };
        collected.set(owner, some);
      }
      if (signal.aborted) return;
    }
    for (const [owner, ids] of collected) if (ids.length > 0 && !signal.aborted) yield { owner, ids };
  }

  async #relocate(owner: number, ids: readonly Id[]): Promise<void> {
    const way = { store: this.#store, map: this.#map, from: this.at, to: owner };
    for (const answer of await relocate(way, ids, true)) {
      if (answer === 'active') this.active++;
      else if (answer !== 'orphaned' && answer !== 'missing') this.moved++;
    }
  }

  #movers(set: 'pending' | 'dead' | 'active'): AsyncGenerator<Id[]> {
    return idsWhere(this.#store.redis, this.#keys[set], (id) => this.#map.ownerOf(id) !== this.at);
  }

  /** Copies the marks of moves: a repeat of a move looks for its marks where the ids belong. */
  async #copyMarks(): Promise<void> {
    const { redis } = this.#store;
    for await (const found of scan(redis, ['HSCAN', this.#keys.lease], 'COUNT', SCANNED)) {
      // A mark begins with a time, a lease with a receipt.
      const isMark = ([field, value]: Reply[]) => text(field).includes(' ') && /^\d+( moved)?$/.test(text(value));
      const marks = rows(found, 0, 2).filter(isMark) as Buffer[][];
      const ownerOf = (field: Buffer) => this.#map.ownerOf(field.subarray(field.indexOf(' ') + 1));
      for (const [owner, some] of groupsOf(marks, ([field]) => ownerOf(field as Buffer))) {
        if (owner === this.at) continue;
        const { lease } = this.#store.keys(owner, this.#map);
        // Without the replicas, a failover would let a move bring a job again.
        await replicated(redis, lease, true, (caller) => caller.call('HSET', lease, ...some.flat()));
      }
    }
  }
}

/**
 * Moves remembered ids to the partitions where they belong. Returns their number; `dry`: only counts them. Throws
 * `temporary` if replicas do not follow.
 */
export async function sweepRemembered(
  store: Store,
  at: number,
  { map = store.map, dry = false }: { map?: PartitionMap; dry?: boolean } = {},
): Promise<number> {
  const { redis } = store;
  const from = store.keys(at, map);
  let swept = 0;
  for await (const found of scan(redis, ['ZSCAN', from.done], 'COUNT', SCANNED)) {
    const ids = rows(found, 0, 2).map(([id, until]) => [text(until), id as Buffer] as const);
    for (const [owner, some] of groupsOf(ids, ([, id]) => map.ownerOf(id))) {
      if (owner === at) continue;
      swept += some.length;
      const way = { store, map, from: at, to: owner };
      for (let n = 0; n < some.length && !dry; n += SLICE) {
        const slice = some.slice(n, n + SLICE);
        await bringRemembered(way, slice, true);
        await redis.call('ZREM', from.done, ...slice.map(([, id]) => id));
      }
    }
  }
  return swept;
}

/** Yields ids of a sorted set in slices: all that stay in the set meanwhile, some perhaps twice. */
export async function* idsWhere(redis: Connection, key: string, isMeant: (id: Id) => boolean): AsyncGenerator<Id[]> {
  for await (const found of scan(redis, ['ZSCAN', key], 'COUNT', SCANNED))
    yield rows(found, 0, 2)
      .map(([id]) => idOf(id as Buffer))
      .filter(isMeant);
}
