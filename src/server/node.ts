import { bad, type Finding, fine, redisCli, unknown } from '../health/finding.js';
import { many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Caller, Reply } from '../redis/connection.js';
import { nameOf } from '../store/script.js';
import { eviction, type Info, memory, parseInfo, persistence, replicas, role } from './info.js';
import { User } from './permissions.js';
import { confirmsEarly, version } from './release.js';

const TRIPS = 5;

/** Clocks further apart than this are a warning, ms. */
const CLOCK_MS = 5_000;

/** A round trip that takes longer is a warning, ms: every command of delayq needs one. */
const SLOW_TRIP_MS = 50;

/** How far back the slow log is read, s, and the shortest slow call, µs. */
const SLOW_SINCE_S = 86_400;
const SLOW_US = 10_000;

/** Asks one server about itself. */
export class Node {
  readonly #caller: Caller;
  readonly #prefix: string;
  readonly info: Info;
  readonly user: User;

  private constructor(caller: Caller, prefix: string, info: Info, user: User) {
    this.#caller = caller;
    this.#prefix = prefix;
    this.info = info;
    this.user = user;
  }

  /** Throws what its calls throw, except for missing permissions. */
  static async of(caller: Caller, prefix: string): Promise<Node> {
    const user = await User.of(caller);
    return new Node(caller, prefix, parseInfo(String((await user.ask('INFO')) ?? '')), user);
  }

  get address(): string {
    return this.#caller.address;
  }

  /** A setting of the server; undefined if CONFIG is not allowed. */
  async setting(name: string): Promise<string | undefined> {
    const reply = (await this.user.ask('CONFIG', 'GET', name)) as Reply[] | undefined;
    return reply && reply.length > 1 ? String(reply[1]) : undefined;
  }

  /** Checks the server. */
  async findings(): Promise<Finding[]> {
    const { info, address } = this;
    const [save, fsync] = [await this.setting('save'), await this.setting('appendfsync')];
    return [
      version(info),
      role(info),
      eviction(info),
      memory(info, address),
      ...persistence(info, { save, fsync, early: confirmsEarly(info), address }),
      replicas(info),
      ...(await this.#clock()),
      await this.#slow(),
    ];
  }

  async #now(): Promise<number | undefined> {
    const reply = (await this.user.ask('TIME')) as [Buffer, Buffer] | undefined;
    return reply && Number(reply[0]) * 1000 + Number(reply[1]) / 1000;
  }

  /** Checks the round-trip time, and compares the clocks of this machine and of Redis, as exactly as the round trip allows. */
  async #clock(): Promise<Finding[]> {
    const trips: { ms: number; ahead: number }[] = [];
    for (let i = 0; i < TRIPS; i++) {
      const before = performance.now();
      const wall = Date.now();
      const now = await this.#now();
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

  async #slow(): Promise<Finding> {
    const log = await this.user.ask('SLOWLOG', 'GET', 128);
    if (log === undefined) return unknown('slow-log', 'SLOWLOG is not allowed');
    const since = Math.floor(((await this.#now()) ?? Date.now()) / 1000) - SLOW_SINCE_S;
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
    return bad('warn', 'slow-log', what, why, redisCli(this.address, 'slowlog get 10'));
  }
}
