import { bad, type Finding, fine, redisCli, unknown } from '../health/finding.js';
import { isDelayqError } from '../model/errors.js';
import { many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Arg, Caller, Reply } from '../redis/connection.js';
import type { Form } from '../store/rights.js';
import { nameOf } from '../store/script.js';
import { eviction, type Info, memory, parseInfo, persistence, replicas, role } from './info.js';
import { confirmsEarly, version } from './release.js';

const TRIPS = 5;

/** Clocks further apart than this are a warning, ms. */
const CLOCK_MS = 5_000;

/** A round trip that takes longer is a warning, ms: every command of delayq needs one. */
const SLOW_TRIP_MS = 50;

/** How far back the slow log is read, s, and the shortest slow call, µs. */
const SLOW_SINCE_S = 86_400;
const SLOW_US = 10_000;

/** Asks one server about itself, as far as the user may. */
export class Node {
  readonly #caller: Caller;
  readonly #prefix: string;
  info: Info = {};
  /** The name of the user; undefined: unknown. */
  user: string | undefined;
  /** ACL DRYRUN tells what the user may do. */
  hasDryRun = false;

  private constructor(caller: Caller, prefix: string) {
    this.#caller = caller;
    this.#prefix = prefix;
  }

  /** Throws what its calls throw, except for missing permissions. */
  static async of(caller: Caller, prefix: string): Promise<Node> {
    const node = new Node(caller, prefix);
    node.user = await caller.call('ACL', 'WHOAMI').then(String, refusedOr(undefined));
    const tried = caller.call('ACL', 'DRYRUN', String(node.user), 'TIME');
    node.hasDryRun = await tried.then(() => true, refusedOr(false));
    node.info = parseInfo(String((await node.ask('INFO')) ?? ''));
    return node;
  }

  get address(): string {
    return this.#caller.address;
  }

  /** Why Redis refuses a call; undefined: it is allowed. Tries the call on servers without ACL DRYRUN. */
  async refusal(form: Form): Promise<string | undefined> {
    const call = [...form[0].split('|'), ...form.slice(1)] as [string, ...Arg[]];
    if (this.hasDryRun) {
      // An error says that this server does not know the command, so no client sends it.
      const answer = await this.#caller.call('ACL', 'DRYRUN', String(this.user), ...call).then(String, refusedOr('OK'));
      return answer === 'OK' ? undefined : answer;
    }
    try {
      await this.#caller.call(...call);
      return undefined;
    } catch (error) {
      if (!isDelayqError(error, 'refused', 'config', 'internal', 'temporary')) throw error;
      return error.code === 'refused' ? String(error.why) : undefined;
    }
  }

  /** Returns the reply to a call; undefined if it is not allowed. With ACL DRYRUN, leaves no trace in ACL LOG. */
  async ask(command: string, ...args: Arg[]): Promise<Reply | undefined> {
    if (this.hasDryRun && (await this.refusal([command, ...args])) !== undefined) return undefined;
    return this.#caller.call(command, ...args).catch(refusedOr(undefined));
  }

  /** A setting of the server; undefined if CONFIG is not allowed. */
  async setting(name: string): Promise<string | undefined> {
    const reply = (await this.ask('CONFIG', 'GET', name)) as Reply[] | undefined;
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
    const reply = (await this.ask('TIME')) as [Buffer, Buffer] | undefined;
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
    const log = await this.ask('SLOWLOG', 'GET', 128);
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

/** For commands that this server may not know or not allow: returns `otherwise` instead. */
export function refusedOr<T>(otherwise: T): (error: unknown) => T {
  return (error) => {
    if (isDelayqError(error, 'refused', 'config', 'internal')) return otherwise;
    throw error;
  };
}
