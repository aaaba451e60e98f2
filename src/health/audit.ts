import { Inspector } from '../admin/inspector.js';
import { exists } from '../admin/snapshot.js';
import { isDelayqError, isPassing } from '../model/errors.js';
import { many, printable, shellWord } from '../model/text.js';
import { checkName } from '../model/validate.js';
import type { Connection, Reply } from '../redis/connection.js';
import { KEY_ORDER, type PrefixOption, prefixOf, type QueueKeys, queueKeys, queuesKey } from '../redis/keys.js';
import type { Snapshot } from '../scripts/inspect.js';
import type { Letter } from '../scripts/repair.js';
import { type Found, findQueues } from './discovery.js';
import { FAULTS } from './faults.js';
import { bad, type Finding, fine, redisCliFor, unknown } from './finding.js';
import { type AuditOptions, checkOptions, IdAudit, type Tally } from './id-audit.js';
import { Mender } from './mender.js';
import { problems } from './problems.js';

/** Finds faults in the jobs of a queue, in small calls while the queue is in use, and repairs them. */
export class Auditor {
  readonly #redis: Connection;
  readonly #prefix: string;
  readonly #inspector: Inspector;
  #listLost = false;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#redis = redis;
    this.#prefix = prefixOf(redis, options);
    this.#inspector = new Inspector(redis, options);
  }

  /** Finds all queues: in the list of queues, and by a scan of all keys in the database. */
  async queues(signal?: AbortSignal): Promise<Found> {
    return findQueues(this.#redis, this.#prefix, signal);
  }

  /**
   * Returns the faults and problems of a queue, or one finding with the level `ok` if it has none; nothing if it does not
   * exist. With `mend`, repairs faults as it finds them. Never deletes a payload.
   */
  async examine(queue: string, options: AuditOptions = {}): Promise<Finding[]> {
    const keys = queueKeys(this.#prefix, checkName(queue));
    const mender = new Mender(checkOptions(options).mend === true);
    const found: Finding[] = [];
    const add = (findings: readonly Finding[]) => found.push(...findings.map((finding) => ({ ...finding, queue })));
    // Missing permissions for one check must not hide what the others find or repair.
    const run = async (name: string, check: () => Promise<Finding[]>) => add(await check().catch(skipped(name)));
    try {
      const sizes = await this.#inspector.inspect(queue);
      if (!exists(sizes)) return [];
      await run('jobs', () => this.#checkIds(queue, keys, sizes, options, mender));
      await run('expiring-key', () => this.#checkExpiry(keys, mender));
      await run('unlisted', () => this.#checkList(queue, mender));
      add(mender.refusal);
      await run('bad-counter', () => this.#checkCounters(keys));
      const others = problems(queue, await this.#inspector.inspect(queue)).filter(({ check }) => check !== 'orphans');
      return [...found, ...others.map(({ urgent, ...finding }) => finding)];
    } catch (error) {
      if (isDelayqError(error, 'refused')) return [{ ...unknown('jobs', String(error.why)), queue }];
      if (this.#redis.sharded && isPassing(error)) {
        const why = error.code === 'temporary' ? 'calls for it wait or fail until this is over' : 'its node is down';
        add([bad('fail', 'unreadable', `cannot be read now: ${error.why}`, why, error.next)]);
        return found;
      }
      if (!isDelayqError(error, 'config')) throw error;
      add([bad('fail', 'unreadable', `cannot be read: ${error.why}`, 'no drain can use it', error.next)]);
      return found;
    }
  }

  async #checkIds(
    queue: string,
    keys: QueueKeys,
    sizes: Snapshot,
    options: AuditOptions,
    mender: Mender,
  ): Promise<Finding[]> {
    const ids = new IdAudit(this.#redis, keys, mender);
    await ids.run(sizes, options);
    const faults = await ids.findings((letter, tally) => this.#next(queue, letter, tally));
    if (options.signal?.aborted || faults.length > 0) return faults;
    const { pending, active, dead } = sizes;
    const jobs = many(pending + active + dead, 'job');
    return [fine('jobs', `${jobs}, each in one state and, unless it is dead, with its payload`)];
  }

  async #next(queue: string, letter: Letter, { samples }: Tally): Promise<string> {
    if (letter !== 'v') return FAULTS[letter].next ?? `delayq doctor --fix ${queue}`;
    const [job] = await this.#inspector.show(queue, samples.slice(0, 1));
    return `delayq move ${queue} --into ${shellWord(/^move:(\S+)/.exec(job?.lease?.by ?? '')?.[1] ?? '…')}`;
  }

  async #checkExpiry(keys: QueueKeys, mender: Mender): Promise<Finding[]> {
    const names = KEY_ORDER.map((name) => keys[name]);
    const ttls = await Promise.all(names.map((key) => this.#redis.call('PTTL', key)));
    const expiring = names.filter((_, i) => Number(ttls[i]) >= 0);
    if (expiring.length === 0) return [];
    const list = expiring.join(', ');
    const what = `${list} will be deleted by Redis: EXPIRE was set`;
    const cure = (await redisCliFor(this.#redis))(`persist '${expiring[0]}'`);
    const finding = bad('fail', 'expiring-key', what, 'all data in it is lost', cure);
    const persist = () => Promise.all(expiring.map((key) => this.#redis.call('PERSIST', key)));
    return mender.mend(finding, expiring.length, `${list} had an EXPIRE, which was removed`, persist);
  }

  async #checkList(queue: string, mender: Mender): Promise<Finding[]> {
    const list = queuesKey(this.#prefix);
    if (this.#listLost) return [];
    const listed = await this.#redis.call('SISMEMBER', list, queue).catch((error: unknown) => {
      // The list may be on another node of a cluster, which is down.
      if (!this.#redis.sharded || !isPassing(error)) throw error;
      this.#listLost = true;
      return 1;
    });
    if (Number(listed) === 1) return [];
    const why = 'inspect without a name does not show it';
    const finding = bad('warn', 'unlisted', 'is not in the list of queues', why, `delayq doctor --fix ${queue}`);
    return mender.mend(finding, 1, 'added to the list of queues', () => this.#redis.call('SADD', list, queue));
  }

  async #checkCounters(keys: QueueKeys): Promise<Finding[]> {
    const stats = (await this.#redis.call('HGETALL', keys.stats)) as Reply[];
    const broken = stats
      .filter((name, i) => i % 2 === 0 && !/^at:/.test(String(name)) && !/^\d{1,18}$/.test(String(stats[i + 1])))
      .map(String);
    if (broken.length === 0) return [];
    const cli = await redisCliFor(this.#redis);
    return broken.map((name) => {
      const what = `its counter ${printable(name)} is not a whole number`;
      const why = 'it cannot be increased, and inspect and metrics show it wrong';
      const cure = cli(`hdel '${keys.stats}' ${shellWord(name)}`);
      return bad('warn', 'bad-counter', what, why, cure);
    });
  }
}

/** For a check that this user has no permission for. */
function skipped(check: string): (error: unknown) => Finding[] {
  return (error) => {
    if (isDelayqError(error, 'refused')) return [unknown(check, String(error.why))];
    throw error;
  };
}
