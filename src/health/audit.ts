import { exists } from '../admin/snapshot.js';
import { type DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import { idWord } from '../model/id.js';
import { LIMITS, settingWord } from '../model/settings.js';
import { fixLine, many, printable, queueWord, shellWord } from '../model/text.js';
import { checkName } from '../model/validate.js';
import type { Caller, Connection } from '../redis/connection.js';
import { rewriteSettings } from '../store/edit.js';
import { type Snapshot, unknownUses, unsaidUses } from '../store/inspect.js';
import type { PrefixOption } from '../store/keys.js';
import { addQueue, isListed, listQueues, scanForQueues } from '../store/queues.js';
import { counters, expiringKeys, PLACES, persist, rememberedTooLong } from '../store/repair.js';
import { type Store, Stores } from '../store/store.js';
import { inspectAll, inspectEach } from '../store/sum.js';
import { bad, type Finding, fine, redisCliFor, unknown } from './finding.js';
import { type AuditOptions, auditIds, checkOptions, SAMPLES } from './id-audit.js';
import { Mender } from './mender.js';
import { checkPartitions, checkRemembered, checkStrays } from './partitions.js';
import { problems } from './problems.js';

/** What a search for queues has found. */
export interface Found {
  /** Queues in the list of queues, and others whose keys were found. */
  readonly queues: string[];
  /** Names in the list or in keys that are not valid names of queues. */
  readonly odd: string[];
  /** Why not all keys could be read, so that queues may be missing; undefined: all were. */
  readonly hidden: string | undefined;
}

/** Finds faults in the jobs of a queue, in small calls while the queue is in use, and repairs them. */
export class Auditor {
  readonly #stores: Stores;
  #listLost = false;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
  }

  /** Finds all queues: in the list of queues, and by a scan of all keys in the database. */
  async queues(signal?: AbortSignal): Promise<Found> {
    const { redis, prefix } = this.#stores;
    const seen = new Set<string>();
    let hidden: string | undefined;
    const nodes = await redis.nodes();
    // Without permission for one of the two, use the other; without one of several servers, the rest.
    const isPassable = (error: unknown): error is DelayqError =>
      isDelayqError(error, 'refused') || (nodes.length > 1 && isPassing(error));
    const collect = async (names: () => Promise<void>) => {
      try {
        await names();
      } catch (error) {
        if (!isPassable(error)) throw error;
        hidden = error.why ?? error.what;
      }
    };
    await collect(async () => {
      for (const name of await listQueues(redis, prefix)) seen.add(name);
    });
    const scan = async (node: Caller) => {
      for await (const names of scanForQueues(node, prefix)) {
        for (const name of names) seen.add(name);
        if (signal?.aborted) break;
      }
    };
    await Promise.all(nodes.map((node) => collect(() => scan(node))));
    const all = [...seen].sort();
    return { queues: all.filter(isName), odd: all.filter((name) => !isName(name)), hidden };
  }

  /**
   * Returns the faults and problems of a queue, or one finding with the level `ok` if it has none; nothing if it does not
   * exist. With `mend`, repairs faults as it finds them. Never deletes a payload.
   */
  async examine(queue: string, options: AuditOptions = {}): Promise<Finding[]> {
    const store = this.#stores.of(queue);
    const mender = new Mender(checkOptions(options).mend === true);
    const found: Finding[] = [];
    const add = (findings: readonly Finding[]) => found.push(...findings.map((finding) => ({ ...finding, queue })));
    // Missing permissions for one check must not hide what the others find or repair.
    const run = async (name: string, check: () => Promise<Finding[]>) => add(await check().catch(skipped(name)));
    try {
      // First, because any other call brings up a partition that is behind.
      await run('partitions', () => checkPartitions(store, mender));
      const sizes = await inspectAll(store, 0);
      if (!exists(sizes)) return [];
      const each = async (check: (i: number) => Promise<Finding[]>) => {
        const all = Array.from({ length: store.count }, async (_, i) => said(store, i, await check(i)));
        return (await Promise.all(all)).flat();
      };
      await run('uses', () => this.#checkUses(store, mender));
      await run('jobs', () => this.#checkIds(store, sizes, options, mender));
      if (sizes.recurring) await run('recurring', () => this.#checkRecurring(store, mender));
      await run('expiring-key', () => each((i) => this.#checkExpiry(store, i, mender)));
      await run('unlisted', () => this.#checkList(queue, mender));
      add(mender.refusal);
      await run('bad-counter', () => each((i) => this.#checkCounters(store, i)));
      if (sizes.remembered > 0) await run('endless-id', () => each((i) => this.#checkWindows(store, i)));
      const others = problems(queue, await inspectAll(store, 0)).filter(
        ({ check }) => !['orphans', 'growth', 'refusal'].includes(check),
      );
      return [...found, ...others];
    } catch (error) {
      if (isDelayqError(error, 'refused')) return [{ ...unknown('jobs', String(error.why)), queue }];
      const isAway = this.#stores.redis.sharded && isPassing(error);
      if (!isAway && !isDelayqError(error, 'config')) throw error;
      const away = error.code === 'temporary' ? 'calls for it wait or fail until this is over' : 'its node is down';
      const what = `cannot be read${isAway ? ' now' : ''}: ${error.why}`;
      add([bad('fail', 'unreadable', what, isAway ? away : 'no drain can use it', error.next)]);
      return found;
    }
  }

  async #checkIds(store: Store, sizes: Snapshot, options: AuditOptions, mender: Mender): Promise<Finding[]> {
    const total = PLACES.reduce((sum, place) => sum + sizes[place], 0);
    const found: Finding[] = [];
    let looked = 0;
    const progress = (more: number) => {
      looked += more;
      return options.progress?.(Math.min(looked, total), total);
    };
    for (let i = 0; i < store.count && !options.signal?.aborted; i++) {
      found.push(...said(store, i, await auditIds(store, i, mender, options, progress)));
      found.push(...(await checkStrays(store, i, mender, options.signal)));
      if (!options.signal?.aborted) found.push(...(await checkRemembered(store, i, mender)));
    }
    if (options.signal?.aborted || found.some(({ level, mended }) => level !== 'ok' || mended)) return found;
    const { pending, active, dead } = sizes;
    const jobs = many(pending + active + dead, 'job');
    return [fine('jobs', `${jobs}, each in one state and, unless it is dead, with its payload`), ...found];
  }

  /** Loaded only for a queue that has some. */
  async #checkRecurring(store: Store, mender: Mender): Promise<Finding[]> {
    const { checkRecurring } = await import('./recurring.js');
    return checkRecurring(store, mender);
  }

  async #checkUses(store: Store, mender: Mender): Promise<Finding[]> {
    const parts = await inspectEach(store, 0);
    const snapshots = parts.flatMap(({ found }) => found ?? []);
    const unknowns = new Set(snapshots.flatMap(unknownUses));
    if (unknowns.size > 0) {
      const what = `its layout has words that this version does not know: ${[...unknowns].join(', ')}`;
      const why = 'a newer delayq may use the queue for what this one does not do';
      return [bad('warn', 'uses', what, why, 'use the same version of delayq everywhere')];
    }
    const limits = new Set(snapshots.flatMap(({ config }) => LIMITS.filter((name) => config[name] !== undefined)));
    if (store.count > 1 && limits.size > 0) {
      const names = [...limits].map((name) => settingWord(name));
      const what = `it has partitions and limits (${names.join(', ')})`;
      const why = 'each partition counts its own jobs: other software wrote the limits';
      const cure = `delayq config ${queueWord(store.queue)} ${names.map((name) => `${name}=`).join(' ')}`;
      return [bad('fail', 'uses', what, why, cure)];
    }
    const words = new Set(snapshots.flatMap(unsaidUses));
    if (words.size === 0) return [];
    const list = [...words].join(', ');
    const what = `it uses ${list}, but its layout does not say so`;
    const why = 'scripts ignore it: other software wrote it without the layout';
    const finding = bad('fail', 'uses', what, why, fixLine(store.queue));
    return mender.mend(finding, words.size, `its layout says that it uses ${list}`, () => rewriteSettings(store));
  }

  async #checkExpiry(store: Store, i: number, mender: Mender): Promise<Finding[]> {
    const expiring = await expiringKeys(store, i);
    if (expiring.length === 0) return [];
    const list = expiring.join(', ');
    const what = `${list} will be deleted by Redis: EXPIRE was set`;
    const cure = (await redisCliFor(this.#stores.redis))(`persist '${expiring[0]}'`);
    const finding = bad('fail', 'expiring-key', what, 'all data in it is lost', cure);
    const did = `${list} had an EXPIRE, which was removed`;
    return mender.mend(finding, expiring.length, did, () => persist(store, expiring));
  }

  async #checkList(queue: string, mender: Mender): Promise<Finding[]> {
    if (this.#listLost) return [];
    const listed = await isListed(this.#stores.redis, this.#stores.prefix, queue).catch((error: unknown) => {
      if (isDelayqError(error, 'config')) return error;
      // The list may be on another node of a cluster, which is down.
      if (!this.#stores.redis.sharded || !isPassing(error)) throw error;
      this.#listLost = true;
      return true;
    });
    if (typeof listed === 'object')
      return [bad('warn', 'unlisted', 'the list of queues cannot be read', listed.why ?? listed.what, listed.next)];
    if (listed) return [];
    const why = 'inspect without a name does not show it';
    const finding = bad('warn', 'unlisted', 'is not in the list of queues', why, fixLine(queue));
    return mender.mend(finding, 1, 'added to the list of queues', () =>
      addQueue(this.#stores.redis, this.#stores.prefix, queue),
    );
  }

  /** Ids that are never free again: other software wrote inf. */
  async #checkWindows(store: Store, i: number): Promise<Finding[]> {
    const { count, ids } = await rememberedTooLong(store, i, SAMPLES);
    if (count === 0) return [];
    const samples = ids.map(idWord);
    const what = `${many(count, 'remembered id')} whose ${count === 1 ? 'window never closes' : 'windows never close'}`;
    const why = 'no job with such an id can be enqueued any more';
    const cure = `delayq cancel ${queueWord(store.queue)} ${samples[0]}  # its id is free again`;
    return [{ ...bad('warn', 'endless-id', what, why, cure), count, samples }];
  }

  async #checkCounters(store: Store, i: number): Promise<Finding[]> {
    const { key, counters: all } = await counters(store, i);
    const broken = all.flatMap(([name, value]) => (/^\d{1,18}$/.test(value) ? [] : [name]));
    if (broken.length === 0) return [];
    const cli = await redisCliFor(this.#stores.redis);
    return broken.map((name) => {
      const what = `its counter ${printable(name)} is not a whole number`;
      const why = 'it cannot be increased, and inspect and metrics show it wrong';
      const cure = cli(`hdel '${key}' ${shellWord(name)}`);
      return bad('warn', 'bad-counter', what, why, cure);
    });
  }
}

function isName(name: string): boolean {
  try {
    return checkName(name) === name;
  } catch {
    return false;
  }
}

/** Names the partition in what was found in it. */
function said(store: Store, i: number, findings: readonly Finding[]): Finding[] {
  const where = store.count === 1 ? '' : `partition ${i}: `;
  return findings.map((finding) => ({ ...finding, what: `${where}${finding.what}` }));
}

/** For a check that this user has no permission for. */
function skipped(check: string): (error: unknown) => Finding[] {
  return (error) => {
    if (isDelayqError(error, 'refused')) return [unknown(check, String(error.why))];
    throw error;
  };
}
