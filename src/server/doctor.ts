import type { Found } from '../health/discovery.js';
import { bad, type Finding, fine, redisCli, unknown } from '../health/finding.js';
import { DelayqError, isDelayqError } from '../model/errors.js';
import { many, printable, shellWord } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Connection, Reply } from '../redis/connection.js';
import { type PrefixOption, prefixOf, type QueueKeys, queueKeys, queuesKey } from '../redis/keys.js';
import { nameOf } from '../redis/script.js';
import { eviction, type Info, memory, parseInfo, persistence, replicas, role, version } from './info.js';
import { checkPermissions, refusedOr, User } from './permissions.js';

/** Memory of a job with a small payload, bytes, if there are no jobs to measure. */
const JOB_BYTES = 300;

/** The most queues whose memory is measured, and the fewest jobs for a useful result. */
const MEASURED = 20;
const ENOUGH_JOBS = 100;

const TRIPS = 5;

/** Clocks further apart than this are a warning, ms. */
const CLOCK_MS = 5_000;

/** A round trip that takes longer is a warning, ms: every command of delayq needs one. */
const SLOW_TRIP_MS = 50;

/** How far back the slow log is read, s, and the shortest slow call, µs. */
const SLOW_SINCE_S = 86_400;
const SLOW_US = 10_000;

/** Checks whether a server is fit to keep queues. */
export class Doctor {
  readonly #redis: Connection;
  readonly #prefix: string;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#redis = redis;
    this.#prefix = prefixOf(redis, options);
  }

  /** Returns a finding if the server is still loading its data, and so answers nothing else. */
  async loading(): Promise<Finding | undefined> {
    const info = await this.#info();
    if (info.loading !== '1') return undefined;
    const left = info.loading_eta_seconds ? `, about ${info.loading_eta_seconds} s left` : '';
    const why = 'it answers nothing else until this is done';
    return bad('fail', 'loading', `Redis is loading its data${left}`, why, 'wait, then try again');
  }

  /**
   * Sets the maxmemory-policy of Redis to noeviction: when it is full, it refuses writes instead of deleting keys. This
   * affects everything that uses this Redis. Returns whether the setting lasts after a restart. Throws `config` or
   * `refused` if CONFIG is not allowed.
   */
  async setNoeviction(): Promise<{ lasting: boolean }> {
    await this.#redis.call('CONFIG', 'SET', 'maxmemory-policy', 'noeviction').catch((error: unknown) => {
      if (!isDelayqError(error, 'config', 'refused')) throw error;
      const next = 'set it in the configuration file of Redis, or in the settings of your provider';
      throw new DelayqError(error.code, 'cannot set maxmemory-policy', { why: error.why, next, cause: error });
    });
    // Fails if Redis runs without a configuration file, or cannot write it.
    const lasting = await this.#redis.call('CONFIG', 'REWRITE').then(
      () => true,
      () => false,
    );
    return { lasting };
  }

  /** Checks the server. The jobs of `queues` are measured, and the permissions for the first queue are checked. Writes nothing. */
  async examine(queues: readonly string[]): Promise<Finding[]> {
    const { address } = this.#redis;
    const info = await this.#info();
    const keys = queues.slice(0, MEASURED).map((queue) => queueKeys(this.#prefix, queue));
    const user = await User.of(this.#redis);
    const setting = async (name: string) => {
      const reply = (await user.ask('CONFIG', 'GET', name)) as Reply[] | undefined;
      return reply && reply.length > 1 ? String(reply[1]) : undefined;
    };
    const settings = { save: await setting('save'), fsync: await setting('appendfsync'), address };
    const [queue = 'queue'] = queues;
    return [
      version(info),
      role(info),
      eviction(info),
      memory(info, await this.#jobBytes(keys), address),
      ...persistence(info, settings),
      replicas(info),
      ...(await this.#clock()),
      await checkPermissions(user, { address, prefix: this.#prefix, queue }),
      await this.#slow(user),
    ];
  }

  /** Returns findings for invalid names in the list of queues or in keys, and for names that could not be read. */
  names({ odd, hidden }: Pick<Found, 'odd' | 'hidden'>): Finding[] {
    const found = odd.map((name) => {
      const what = `${printable(name)} is not a valid queue name, but is in the list of queues or in a key`;
      const remove = redisCli(this.#redis.address, `srem ${queuesKey(this.#prefix)} ${shellWord(name)}`);
      const cure = `rename its keys, and remove it from the list: ${remove}`;
      return bad('warn', 'odd-name', what, 'delayq cannot use it', cure);
    });
    return hidden === undefined ? found : [...found, unknown('names', `whether there are other queues: ${hidden}`)];
  }

  async #info(): Promise<Info> {
    return parseInfo(String(await this.#redis.call('INFO').catch(refusedOr(''))));
  }

  async #jobBytes(queues: readonly QueueKeys[]): Promise<number> {
    let bytes = 0;
    let n = 0;
    for (const { pending, payload, meta } of queues) {
      const sizes = await Promise.all(
        [pending, payload, meta].map((key) => this.#redis.call('MEMORY', 'USAGE', key).catch(refusedOr(0))),
      );
      bytes += sizes.reduce<number>((sum, size) => sum + Number(size ?? 0), 0);
      n += Number(await this.#redis.call('HLEN', payload).catch(refusedOr(0)));
    }
    return n >= ENOUGH_JOBS ? Math.max(1, Math.round(bytes / n)) : JOB_BYTES;
  }

  /** Checks the round-trip time, and compares the clocks of this machine and of Redis, as exactly as the round trip allows. */
  async #clock(): Promise<Finding[]> {
    const trips: { ms: number; ahead: number }[] = [];
    for (let i = 0; i < TRIPS; i++) {
      const before = performance.now();
      const wall = Date.now();
      const now = await this.#redis.now().catch(refusedOr(undefined));
      if (now === undefined) return [unknown('clock', 'TIME is not allowed')];
      const ms = performance.now() - before;
      trips.push({ ms, ahead: wall + ms / 2 - now });
    }
    trips.sort((a, b) => a.ms - b.ms);
    const { ms: fastest, ahead } = trips[0] as (typeof trips)[0];
    const { ms: usual } = trips[Math.floor(TRIPS / 2)] as (typeof trips)[0];
    const trip = `a round trip takes ${usual.toFixed(usual < 10 ? 1 : 0)} ms`;
    const apart =
      Math.abs(ahead) < 1_000
        ? 'the clocks of this machine and of Redis agree'
        : `the clock of this machine is ${formatDuration(Math.abs(ahead))} ${ahead > 0 ? 'ahead of' : 'behind'} that of Redis`;
    const why = 'jobs fall due by the clock of Redis: --in is not affected, but --at 14:00 is off by as much';
    const cure = 'synchronize both clocks with NTP (timedatectl set-ntp true)';
    return [
      usual <= SLOW_TRIP_MS
        ? fine('round-trip', trip)
        : bad('warn', 'round-trip', trip, 'every command needs at least one', 'run delayq closer to Redis'),
      Math.abs(ahead) - fastest / 2 <= CLOCK_MS ? fine('clock', apart) : bad('warn', 'clock', apart, why, cure),
    ];
  }

  async #slow(user: User): Promise<Finding> {
    const log = await user.ask('SLOWLOG', 'GET', 128);
    if (log === undefined) return unknown('slow-log', 'SLOWLOG is not allowed');
    const since = Math.floor((await this.#redis.now().catch(refusedOr(Date.now()))) / 1000) - SLOW_SINCE_S;
    const ours = (log as Reply[][])
      .map(([, at, us, words]) => ({ at: Number(at), us: Number(us), words: (words as Reply[]).map(String) }))
      .filter(({ at, us }) => at >= since && us >= SLOW_US)
      .filter(({ words }) => words.some((word) => word.startsWith(`${this.#prefix}:`)));
    if (ours.length === 0) return fine('slow-log', 'no slow calls of delayq in the last day');
    const slowest = ours.reduce((one, other) => (other.us > one.us ? other : one));
    const script = nameOf(slowest.words[1] ?? '');
    const which = script ? `lua/${script}.lua` : String(slowest.words[0]).toLowerCase();
    const took = formatDuration(slowest.us / 1000);
    const what = `${many(ours.length, 'slow call')} in the last day, the slowest ${took} (${which})`;
    const why =
      'all other clients wait during a slow call; usual causes are large payloads, a busy machine or swapping';
    return bad('warn', 'slow-log', what, why, redisCli(this.#redis.address, 'slowlog get 10'));
  }
}
