import { type Id, newIdWhere } from '../model/id.js';
import { crc32 } from './crc32.js';

/**
 * How many partitions a queue has, and how their keys are named. Immutable. The protocol is in
 * docs/internals/partitions.md.
 */
export class PartitionMap {
  /** A queue that was never grown: its only partition is the queue itself. */
  static readonly ONE = new PartitionMap(1, undefined, ['']);

  readonly count: number;
  /** While a growth is open: how many partitions there were before it. */
  readonly from: number | undefined;
  /** What replaces the name of the queue in the keys of each partition; empty for partition 0. */
  readonly tags: readonly string[];
  readonly #power: number;

  constructor(count: number, from: number | undefined, tags: readonly string[]) {
    this.count = count;
    this.from = from;
    this.tags = tags;
    this.#power = powerFor(count);
  }

  /** Decodes the map that a partition stores; undefined if it is not readable. */
  static parse(layout: string, tags: string): PartitionMap | undefined {
    const [, count, from] = /^1 \d+\/(\d+)(?: from (\d+))?$/.exec(layout) ?? [];
    const names = ['', ...tags.split(' ').filter(Boolean)];
    if (names.length !== Number(count)) return undefined;
    if (names.length === 1) return PartitionMap.ONE;
    return new PartitionMap(names.length, from === undefined ? undefined : Number(from), names);
  }

  /** Which partition a layout belongs to. */
  static indexIn(layout: string): number {
    return Number(/^1 (\d+)\//.exec(layout)?.[1] ?? 0);
  }

  /** What partition `i` must have in its config. */
  layoutOf(i: number): string {
    return `1 ${i}/${this.count}${this.from === undefined ? '' : ` from ${this.from}`}`;
  }

  /** The tags as they are stored. */
  get packed(): string {
    return this.tags.slice(1).join(' ');
  }

  /** Whether this is a later state of a queue than `other`. */
  isNewerThan(other: PartitionMap): boolean {
    if (this.count !== other.count) return this.count > other.count;
    return this.from === undefined && other.from !== undefined;
  }

  /** The partition to which an id belongs. */
  ownerOf(id: Id): number {
    return this.count === 1 || isOfRecurring(id) ? 0 : linear(crc32(id), this.count, this.#power);
  }

  /** Which share of all ids belongs to partition `i`; equal shares if the number of partitions is a power of two. */
  shareOf(i: number): number {
    const half = this.#power / 2;
    return (i < half && i + half >= this.count ? 2 : 1) / this.#power;
  }

  /** Makes an id that belongs to partition `i`. */
  newIdOf(i: number): string {
    return newIdWhere((start) => {
      const before = crc32(start);
      return (last) => linear(crc32(last, before), this.count, this.#power) === i;
    });
  }

  /** The partition to which an id belonged before the open growth; its owner if none is open. */
  formerOf(id: Id): number {
    if (this.from === undefined) return this.ownerOf(id);
    return this.from === 1 || isOfRecurring(id) ? 0 : linear(crc32(id), this.from, powerFor(this.from));
  }
}

/**
 * Whether an id ends like those of recurring jobs, which are in partition 0 with the definitions. As ownerOf in
 * lua/lib/growth.lua.
 */
function isOfRecurring(id: Id): boolean {
  // Nearly all ids return here.
  if (id.at(-1) !== (typeof id === 'string' ? 'Z' : 90)) return false;
  return /@\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/.test(typeof id === 'string' ? id : id.toString('latin1'));
}

/** Groups items, such as by their partitions. */
export function groupsOf<T, K = number>(items: Iterable<T>, partOf: (item: T) => K): Map<K, T[]> {
  const groups = new Map<K, T[]>();
  for (const item of items) {
    const part = partOf(item);
    const group = groups.get(part);
    if (group) group.push(item);
    else groups.set(part, [item]);
  }
  return groups;
}

/** The smallest power of two that is not less than `count`. */
function powerFor(count: number): number {
  return 2 ** Math.ceil(Math.log2(count));
}

/** Linear hashing (Litwin, 1980): as many buckets as one likes, and growth moves ids only to new ones. */
function linear(crc: number, count: number, power: number): number {
  const p = crc % power;
  return p < count ? p : crc % (power / 2);
}
