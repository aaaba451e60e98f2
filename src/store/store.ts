import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError } from '../model/errors.js';
import { fixLine } from '../model/text.js';
import { checkName } from '../model/validate.js';
import { wordOf } from '../net/errors.js';
import type { Connection, Reply } from '../redis/connection.js';
import { replicated } from './durability.js';
import {
  KEY_ORDER,
  layoutIn,
  ONE_PARTITION,
  OWN_FIELDS,
  type PrefixOption,
  prefixOf,
  type QueueKeys,
  queueKeys,
} from './keys.js';
import { PartitionMap } from './map.js';
import { addQueue } from './queues.js';
import { text } from './replies.js';
import { advance, takeSettings } from './transfer.js';

/** How often to repeat a call that met another layout than expected. Each repeat knows one more partition. */
export const MAX_TURNS = 20;

/** How many queues a connection remembers: clients of a server choose names. */
const MAX_KNOWN = 10_000;

/** How long a new queue waits to be listed, ms: on a cluster another node may have the list, and be down. */
const LIST_MS = 500;

/** By prefix and name of the queue, least recently used first. */
const ofConnections = new WeakMap<Connection, Map<string, Store>>();

/** The stores of all queues under a prefix. */
export class Stores {
  readonly redis: Connection;
  readonly prefix: string;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.redis = redis;
    this.prefix = prefixOf(redis, options);
  }

  /** Throws a `usage` error for an invalid name. */
  of(queue: string): Store {
    return Store.of(this.redis, this.prefix, checkName(queue));
  }
}

/** The keys of a queue, and its known partitions. A refused call reveals new ones. */
export class Store {
  readonly redis: Connection;
  readonly prefix: string;
  readonly queue: string;
  #map = PartitionMap.ONE;
  #texts = false;
  #listed = false;
  #keys = new WeakMap<PartitionMap, QueueKeys[]>();

  /** Returns the store of a queue, shared by all callers on a connection. Does not check the name. */
  static of(redis: Connection, prefix: string, queue: string): Store {
    const known = ofConnections.get(redis) ?? new Map<string, Store>();
    ofConnections.set(redis, known);
    const name = `${prefix} ${queue}`;
    const found = known.get(name) ?? new Store(redis, prefix, queue);
    known.delete(name);
    known.set(name, found);
    const [oldest] = known.keys();
    if (known.size > MAX_KNOWN) known.delete(oldest as string);
    return found;
  }

  private constructor(redis: Connection, prefix: string, queue: string) {
    this.redis = redis;
    this.prefix = prefix;
    this.queue = queue;
  }

  get map(): PartitionMap {
    return this.#map;
  }

  /** Whether the payloads of the queue are texts, learned with the map. */
  get texts(): boolean {
    return this.#texts;
  }

  #learnTexts(texts: boolean): void {
    if (texts === this.#texts) return;
    this.#texts = texts;
    this.#keys = new WeakMap();
  }

  get count(): number {
    return this.#map.count;
  }

  /** While a growth is open: how many partitions there were before it. */
  get growsFrom(): number | undefined {
    return this.#map.from;
  }

  /** What replaces the name of the queue in the keys of partition `i`. */
  tagOf(i: number, map = this.#map): string {
    return i === 0 ? this.queue : (map.tags[i] as string);
  }

  /** The keys of partition `i`, for calls that expect the layout of `map`. */
  keys(i = 0, map = this.#map): QueueKeys {
    const all = this.#keys.get(map) ?? [];
    const found = all[i] ?? queueKeys(this.prefix, this.tagOf(i, map), stated(map.layoutOf(i), this.#texts));
    all[i] = found;
    this.#keys.set(map, all);
    return found;
  }

  /** The keys of each known partition. */
  get all(): QueueKeys[] {
    return Array.from({ length: this.count }, (_, i) => this.keys(i));
  }

  /** Whether `name` is one of the keys of the queue. */
  owns(name: string): boolean {
    return this.all.some((keys) => KEY_ORDER.some((one) => keys[one] === name));
  }

  /**
   * Makes a call that may put the first job into the queue. Lists the queue before its first job, and again if the
   * queue is new: Redis may have come back empty, or the queue was forgotten.
   */
  async listing<R extends { readonly begun: boolean }>(send: () => Promise<R>): Promise<R> {
    if (!this.#listed) this.list();
    const reply = await send();
    if (reply.begun) await Promise.race([this.list(), sleep(LIST_MS, undefined, { ref: false })]);
    return reply;
  }

  /**
   * Lists the queue for `inspect`, in a separate call because the list is in another slot. Never fails: the list must not
   * fail a call to a queue.
   */
  async list(): Promise<void> {
    this.#listed = true;
    await addQueue(this.redis, this.prefix, this.queue).catch(() => {
      this.#listed = false;
    });
  }

  /** Reads the layout of partition 0, and learns it if it is newer. */
  async look(): Promise<PartitionMap> {
    const { map } = await this.read(0);
    if (map?.isNewerThan(this.#map)) this.#map = map;
    return this.#map;
  }

  /** Runs plain reads, which compare no layout; again if the known layout changes meanwhile. */
  async steady<T>(read: () => Promise<T>): Promise<T> {
    for (;;) {
      const map = this.#map;
      const [found, seen] = await Promise.all([read(), this.look()]);
      if (seen === map) return found;
    }
  }

  /** Makes one call on partition `i`, again if the layout was another. Throws what `act` throws. */
  async at<T>(i: number, act: (keys: QueueKeys) => Promise<T>): Promise<T> {
    for (let turn = 1; ; turn++) {
      const map = this.#map;
      try {
        return await act(this.keys(i));
      } catch (error) {
        await this.learnFrom(map, error, turn);
      }
    }
  }

  /** Makes one call on each partition. Throws what one of them throws. */
  async each<T>(act: (keys: QueueKeys, i: number) => Promise<T>): Promise<T[]> {
    const ended = await this.settle(act);
    return ended.map((one) => {
      if (one.status === 'rejected') throw one.reason;
      return one.value;
    });
  }

  /**
   * Makes one call on each partition, and returns how each ended. Throws the error of the first if no others are known.
   */
  async settle<T>(act: (keys: QueueKeys, i: number) => Promise<T>): Promise<PromiseSettledResult<T>[]> {
    const done: Promise<T>[] = [];
    // The first one tells how many there are.
    if (this.count === 1) done.push(this.at(0, (keys) => act(keys, 0)));
    await done[0];
    do {
      for (let i = done.length; i < this.count; i++) done.push(this.at(i, (keys) => act(keys, i)));
      await Promise.allSettled(done);
    } while (done.length < this.count);
    return Promise.allSettled(done);
  }

  /** Learns the layout from the error of a call that expected `map`. Throws any other error. */
  async learnFrom(map: PartitionMap, error: unknown, turn: number): Promise<void> {
    if (wordOf(error) !== 'LAYOUT' || turn > MAX_TURNS) throw error;
    const [, has = '', believed = '', tags = ''] = REFUSAL.exec((error as DelayqError).why ?? '') ?? [];
    const [layout, texts] = [has.replace(TEXTS, ''), has.endsWith(TEXTS)];
    const seen = PartitionMap.parse(layout, tags === 'none' ? '' : tags);
    // Other software has overwritten it, or no growth can have written it.
    if (!seen && tags === 'none' && /^1( |$)/.test(layout)) {
      const first = `redis-cli HDEL '${this.keys(0).config}' layout; then `;
      throw misread(this.queue, `the layout of ${this.queue} cannot be read`, error, first);
    }
    if (!seen && layout.startsWith('1 '))
      throw misread(this.queue, `the partitions of ${this.queue} disagree on what they are`, error);
    if (!seen) throw error;
    const i = PartitionMap.indexIn(believed);
    if (i === 0) this.#learnTexts(texts);
    if (seen.isNewerThan(this.#map)) this.#map = seen;
    else if (this.#map.isNewerThan(seen)) {
      const known = this.#map;
      await this.bringUp(0, known);
      if (i > 0) await this.advance(i, layout, known);
    } else if (texts !== believed.endsWith(TEXTS)) {
      // Partition 0 decides the settings.
      if (i > 0 && (await this.look()) && this.#texts !== texts) await this.copySettings(i);
    } else if (!this.#map.isNewerThan(map)) throw error;
  }

  /** Brings partition `i` up to `map`, if it is older. */
  async bringUp(i: number, map: PartitionMap): Promise<void> {
    const has = await this.read(i, map);
    if (has.map && map.isNewerThan(has.map)) await this.advance(i, has.layout, map);
  }

  /**
   * Brings partition `i` from the layout `have` to that of `map`; a new one also gets the settings of partition 0. Does
   * nothing if its layout has changed. Returns false if its settings do not have the given `version`. `must`: throws
   * `temporary` if its replicas do not follow.
   */
  async advance(
    i: number,
    have: string,
    map: PartitionMap,
    { version, must = false }: { version?: string | undefined; must?: boolean } = {},
  ): Promise<boolean> {
    const tag = this.tagOf(i, map);
    const keys = queueKeys(this.prefix, tag, anyPayloads(have));
    const to = { layout: map.layoutOf(i), tags: map.packed, ...(version !== undefined && { version }) };
    try {
      if (!(await replicated(this.redis, keys.pending, must, (caller) => advance(caller, keys, to)))) return false;
      if (i > 0 && have === ONE_PARTITION) await this.copySettings(i, map);
    } catch (error) {
      // Another process was faster.
      if (wordOf(error) !== 'LAYOUT') throw error;
    }
    return true;
  }

  /** Gives partition `i` the settings of partition 0, if they are newer. Returns their version. */
  async copySettings(i: number, map = this.#map): Promise<string> {
    // The version first: if the settings change in between, they are copied again.
    const { stats } = this.keys(0, map);
    const version = text(await this.redis.call('HGET', stats, 'configured')) || '0';
    const settings = await this.settings(0, map);
    if (settings.length > 0 || version !== '0') {
      const keys = queueKeys(this.prefix, this.tagOf(i, map), anyPayloads(map.layoutOf(i)));
      await takeSettings(this.redis, keys, version, settings);
    }
    return version;
  }

  /** The settings and the pause that partition `i` has: names and values in turn. */
  async settings(i: number, map = this.#map): Promise<string[]> {
    const fields = ((await this.redis.call('HGETALL', this.keys(i, map).config)) as Reply[]).map(text);
    return fields.filter((_, n) => !isOwn(fields[n - (n % 2)] as string));
  }

  /** Reads the layout and the map that partition `i` stores; `map` has its tag. */
  async read(i: number, map = this.#map): Promise<{ layout: string; map: PartitionMap | undefined }> {
    const { config } = this.keys(i, map);
    const found = (await this.redis.call('HMGET', config, 'layout', 'partitions')) as Reply[];
    const [says, tags = ''] = found.map((one) => text(one));
    const { layout, uses } = layoutIn(says);
    if (i === 0) this.#learnTexts(uses.includes('texts'));
    return { layout, map: PartitionMap.parse(layout, tags) };
  }
}

/** Follows the layout of a queue whose payloads are texts, as in lua/lib/queue.lua. */
const TEXTS = ' texts';
const stated = (layout: string, texts: boolean) => (texts ? `${layout}${TEXTS}` : layout);
/** A layout for calls that allow both kinds of payloads. */
const anyPayloads = (layout: string) => `${layout} *`;

/** The error for a layout that doctor must mend. */
function misread(queue: string, what: string, cause: unknown, first = ''): DelayqError {
  return new DelayqError('config', what, { why: (cause as DelayqError).why, next: first + fixLine(queue), cause });
}

/** What lua/lib/queue.lua replies. */
const REFUSAL = /^LAYOUT the queue has layout ([^,]*), this call is for layout ([^;]*); partitions: (.*)$/;

const isOwn = (field: string) => (OWN_FIELDS as readonly string[]).includes(field);
