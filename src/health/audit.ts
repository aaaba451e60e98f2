import { setTimeout as sleep } from 'node:timers/promises';
import { Inspector } from '../admin/inspector.js';
import { exists } from '../admin/snapshot.js';
import { DelayqError, isDelayqError } from '../model/errors.js';
import { type Id, idOf, idWord } from '../model/id.js';
import { many, printable, shellWord } from '../model/text.js';
import { checkName } from '../model/validate.js';
import type { Connection, Reply } from '../redis/connection.js';
import { DEFAULT_PREFIX, KEY_ORDER, type QueueKeys, queueKeys, queueOf, queuesKey } from '../redis/keys.js';
import type { Snapshot } from '../scripts/inspect.js';
import { audit, type Letter, mend, PLACES, type Place, recheck, type Suspect } from '../scripts/repair.js';
import { FAULTS } from './faults.js';
import { bad, type Finding, fine, redisCli, unknown } from './finding.js';
import { conditions } from './problems.js';

/** Ids a call: few enough that nobody else's command waits for long. */
const SLICE = 100;

/** So many suspects are kept until they are looked at a second time: a pipeline may write as many payloads before their ids. */
const MOST_SUSPECTS = 10_000;

/** How long a producer that writes a job in two commands may be in between, ms. */
const GRACE_MS = 100;

/** So many ids are told of each kind of fault. */
const SAMPLES = 3;

/** How {@link Auditor.examine} goes about it. */
export interface AuditOptions {
  /** Mend what can be mended. */
  readonly mend?: boolean;
  /** What looks wrong is looked at again after so long, ms: 100 when left out. */
  readonly graceMs?: number;
  /** Hears how many entries were looked at, of about how many; what it returns is waited for. */
  readonly progress?: (looked: number, total: number) => unknown;
  /** Ends it with what was found so far. */
  readonly signal?: AbortSignal | undefined;
}

/** What there is in a namespace. */
export interface Found {
  /** Queues in the list of queues, and others of which keys were found. */
  readonly queues: string[];
  /** What cannot be a name of a queue, in the list or in keys. */
  readonly odd: string[];
  /** Why not all keys could be looked at, if so: queues may be missing. */
  readonly hidden: string | undefined;
}

interface Tally {
  count: number;
  mended: number;
  readonly samples: Id[];
}

/** Looks for what is wrong with the jobs of a queue, in small calls while it is used, and mends it. */
export class Auditor {
  readonly #redis: Connection;
  readonly #prefix: string;
  readonly #inspector: Inspector;
  /** Whether this server may know how to leave out values in HSCAN. */
  #lean = true;

  /** Throws a `usage` error when `prefix` cannot be one. */
  constructor(redis: Connection, { prefix = DEFAULT_PREFIX }: { prefix?: string } = {}) {
    this.#redis = redis;
    this.#prefix = checkName(prefix, 'prefix');
    this.#inspector = new Inspector(redis, { prefix });
  }

  /** All queues, by the list of queues and by a walk over all keys of the database. */
  async queues(signal?: AbortSignal): Promise<Found> {
    const seen = new Set<string>();
    let hidden: string | undefined;
    try {
      for (const name of await this.#inspector.queues()) seen.add(name);
    } catch (error) {
      if (!isDelayqError(error, 'refused')) throw error;
      hidden = error.why;
    }
    try {
      for await (const keys of this.#allKeys()) {
        for (const key of keys) {
          const queue = queueOf(this.#prefix, key);
          if (queue !== undefined) seen.add(queue);
        }
        if (signal?.aborted) break;
      }
    } catch (error) {
      if (!isDelayqError(error, 'refused')) throw error;
      hidden = error.why;
    }
    const all = [...seen].sort();
    return { queues: all.filter(isName), odd: all.filter((name) => !isName(name)), hidden };
  }

  async *#allKeys(): AsyncGenerator<string[]> {
    let cursor = '0';
    do {
      const scanned = await this.#redis.call('SCAN', cursor, 'MATCH', `${this.#prefix}:{*}:*`, 'COUNT', 500);
      const [next, keys] = scanned as [Buffer, Reply[]];
      yield keys.map(String);
      cursor = String(next);
    } while (cursor !== '0');
  }

  /**
   * What is wrong with a queue, and what should be looked after; nothing: it is in order. With `mend` faults are put
   * right as they are found, but never a payload deleted.
   */
  async examine(queue: string, options: AuditOptions = {}): Promise<Finding[]> {
    const keys = queueKeys(this.#prefix, checkName(queue));
    const hand = new Hand(options.mend === true);
    const found: Finding[] = [];
    // What this user may not look at hides nothing of what was found, or mended, elsewhere.
    const look = async (name: string, part: () => Promise<Finding[]>) => {
      found.push(...(await part().catch(skipped(name))).map((finding) => ({ ...finding, queue })));
    };
    try {
      const sizes = await this.#inspector.inspect(queue);
      if (!exists(sizes)) return [];
      await look('jobs', () => this.#ids(queue, keys, sizes, options, hand));
      await look('expiring-key', () => this.#keys(keys, hand));
      await look('unlisted', () => this.#list(queue, hand));
      if (hand.refusal) found.push({ ...notMended(hand.refusal), queue });
      await look('bad-counter', () => this.#counters(keys));
      return [...found, ...conditions(queue, await this.#inspector.inspect(queue))];
    } catch (error) {
      if (isDelayqError(error, 'refused')) return [{ ...unknown('jobs', String(error.why)), queue }];
      if (!isDelayqError(error, 'config')) throw error;
      return [
        ...found,
        { ...bad('fail', 'unreadable', `cannot be read: ${error.why}`, 'no drain can use it', error.next), queue },
      ];
    }
  }

  /** Whether the queue is in the list of queues. */
  async #list(queue: string, hand: Hand): Promise<Finding[]> {
    const list = queuesKey(this.#prefix);
    if (Number(await this.#redis.call('SISMEMBER', list, queue)) === 1) return [];
    const finding = {
      ...bad('warn', 'unlisted', 'is not in the list of queues', 'inspect without a name does not show it'),
      next: `delayq doctor --fix ${queue}`,
      mendable: true,
    };
    const listed = await hand.lay(() => this.#redis.call('SADD', list, queue));
    return [tellMended(finding, listed !== undefined ? { mended: 1, did: 'put into the list of queues' } : {})];
  }

  /** Keys that would vanish by themselves. */
  async #keys(keys: QueueKeys, hand: Hand): Promise<Finding[]> {
    const names = KEY_ORDER.map((name) => keys[name]);
    const left = await Promise.all(names.map((key) => this.#redis.call('PTTL', key)));
    const passing = names.filter((_, i) => Number(left[i]) >= 0);
    if (passing.length === 0) return [];
    let mended = 0;
    for (const key of passing) if ((await hand.lay(() => this.#redis.call('PERSIST', key))) !== undefined) mended += 1;
    return [
      tellMended(
        {
          ...bad(
            'fail',
            'expiring-key',
            `${passing.join(', ')} will be deleted by Redis: EXPIRE was set`,
            'all that is in it goes with it',
            redisCli(this.#redis.address, `persist '${passing[0]}'`),
          ),
          mendable: true,
        },
        mended === passing.length
          ? { mended, did: `${passing.join(', ')} would have been deleted by EXPIRE: made to stay` }
          : {},
      ),
    ];
  }

  /** Counters that count no more. */
  async #counters(keys: QueueKeys): Promise<Finding[]> {
    const stats = (await this.#redis.call('HGETALL', keys.stats)) as Reply[];
    const broken = stats
      .filter((name, i) => i % 2 === 0 && !/^at:/.test(String(name)) && !/^\d{1,18}$/.test(String(stats[i + 1])))
      .map(String);
    return broken.map((name) =>
      bad(
        'warn',
        'bad-counter',
        `its counter ${printable(name)} is no whole number`,
        'it counts no more, and what is told of the queue is wrong',
        redisCli(this.#redis.address, `hdel '${keys.stats}' ${shellWord(name)}`),
      ),
    );
  }

  /** Goes through all structures that hold ids. */
  async #ids(queue: string, keys: QueueKeys, sizes: Snapshot, options: AuditOptions, hand: Hand): Promise<Finding[]> {
    const tallies = new Map<Letter, Tally>();
    const total = PLACES.reduce((sum, place) => sum + sizes[place], 0);
    let looked = 0;
    for (const place of PLACES) {
      // By the bytes of its id: a cursor may come past an id twice.
      let suspects = new Map<string, Suspect>();
      let cursor: string | undefined = '0';
      while (cursor !== undefined && !options.signal?.aborted) {
        const slice = await audit(this.#redis, keys, { place, cursor, count: SLICE, lean: this.#lean });
        if (slice.refused) this.#lean = false;
        for (const suspect of slice.suspects) suspects.set(suspect.id.toString('latin1'), suspect);
        cursor = slice.next;
        looked += slice.looked;
        await options.progress?.(Math.min(looked, total), total);
        if (suspects.size < (cursor === undefined ? 1 : MOST_SUSPECTS)) continue;
        await sleep(options.graceMs ?? GRACE_MS);
        await this.#settle(keys, place, [...suspects.values()], tallies, hand);
        suspects = new Map();
      }
    }
    const faults: Finding[] = [];
    for (const letter of Object.keys(FAULTS) as Letter[]) {
      const tally = tallies.get(letter);
      if (tally) faults.push(findingOf(letter, tally, await this.#next(queue, letter, tally)));
    }
    if (options.signal?.aborted || faults.length > 0) return faults;
    const { pending, active, dead } = sizes;
    return [
      fine(
        'jobs',
        `${many(pending + active + dead, 'job')}, each in one state and, unless it is dead, with its payload`,
      ),
    ];
  }

  /** What to do about a kind of fault. */
  async #next(queue: string, letter: Letter, { samples }: Tally): Promise<string> {
    if (letter !== 'v') return FAULTS[letter].next ?? `delayq doctor --fix ${queue}`;
    const [job] = await this.#inspector.show(queue, samples.slice(0, 1));
    return `delayq move ${queue} --into ${shellWord(/^move:(\S+)/.exec(job?.lease?.by ?? '')?.[1] ?? '…')}`;
  }

  /** Looks a second time at what looked wrong, counts what still does, and mends it if asked to. */
  async #settle(
    keys: QueueKeys,
    place: Place,
    all: readonly Suspect[],
    tallies: Map<Letter, Tally>,
    hand: Hand,
  ): Promise<void> {
    for (let i = 0; i < all.length; i += SLICE) {
      const ids = all.slice(i, i + SLICE).map(({ id }) => id);
      const sure = await recheck(this.#redis, keys, place, ids);
      for (const { id, letter } of sure) {
        const tally = tallies.get(letter) ?? { count: 0, mended: 0, samples: [] };
        tallies.set(letter, tally);
        tally.count += 1;
        if (tally.samples.length < SAMPLES) tally.samples.push(idOf(id));
      }
      if (sure.length === 0) continue;
      const broken = sure.map(({ id }) => id);
      const answers = await hand.lay(() => mend(this.#redis, keys, place, broken));
      if (answers === undefined) continue;
      // What is in order now without us was mended by others.
      for (const [n, { letter }] of sure.entries())
        if (answers[n] !== undefined || FAULTS[letter].mended) (tallies.get(letter) as Tally).mended += 1;
    }
  }
}

function isName(name: string): boolean {
  try {
    return checkName(name) === name;
  } catch (error) {
    if (error instanceof DelayqError) return false;
    throw error;
  }
}

function findingOf(letter: Letter, { count, mended, samples }: Tally, next: string): Finding {
  const { check, level, what, why, mended: did } = FAULTS[letter];
  const finding = {
    ...bad(level, check, `${many(count, 'job')} ${what}`, why, next),
    count,
    samples: samples.map(idWord),
    mendable: did !== undefined,
  };
  return tellMended(finding, did && mended === count ? { mended, did: `${many(count, 'job')} ${what}: ${did}` } : {});
}

/** What mends, until Redis refuses it: a replica, a user without rights, a full server that takes nothing new. */
class Hand {
  refusal: DelayqError | undefined;
  readonly #allowed: boolean;

  constructor(allowed: boolean) {
    this.#allowed = allowed;
  }

  /** What `act` answers; undefined when it must not, or may not, be done. */
  async lay<T>(act: () => Promise<T>): Promise<T | undefined> {
    if (!this.#allowed || this.refusal) return undefined;
    try {
      return await act();
    } catch (error) {
      if (!isDelayqError(error, 'temporary', 'refused')) throw error;
      this.refusal = error;
      return undefined;
    }
  }
}

function notMended({ why, next }: DelayqError): Finding {
  return bad('warn', 'not-mended', `cannot be mended: ${why}`, 'Redis refuses to write, so what is wrong stays', next);
}

function skipped(check: string): (error: unknown) => Finding[] {
  return (error) => {
    if (isDelayqError(error, 'refused')) return [unknown(check, String(error.why))];
    throw error;
  };
}

/** A finding as it is after it was mended. */
function tellMended(finding: Finding, { mended, did }: { mended?: number; did?: string }): Finding {
  if (mended === undefined || did === undefined) return finding;
  return { ...finding, level: 'ok', what: did, why: undefined, next: undefined, mended };
}
