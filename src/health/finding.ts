import { shellWord } from '../model/text.js';
import { DEFAULT_URL } from '../net/url.js';
import type { Connection } from '../redis/connection.js';

/** How bad it is. `skip`: it could not be checked, which is not a fault. */
type Level = 'ok' | 'skip' | 'warn' | 'fail';

/** The result of one check of a server or a queue. */
export interface Finding {
  readonly level: Level;
  /** What was checked, as one word for programs. */
  readonly check: string;
  /** The queue that was checked; undefined: the server. */
  readonly queue?: string;
  /** The servers that it concerns, if there are several; undefined: all. */
  readonly nodes?: readonly string[];
  /** What was found. */
  readonly what: string;
  /** Why it matters. */
  readonly why?: string | undefined;
  /** What to do next: a command, if there is one. */
  readonly next?: string | undefined;
  /** How many jobs are concerned, and some of their ids. */
  readonly count?: number;
  readonly samples?: readonly string[];
  /** `delayq doctor --fix` can repair it. */
  readonly mendable?: boolean;
  /** How many were repaired. */
  readonly mended?: number;
}

/** Something is in order. */
export const fine = (check: string, what: string): Finding => ({ level: 'ok', check, what });

/** Something could not be checked; `why` follows "cannot tell: ". */
export const unknown = (check: string, why: string): Finding => ({ level: 'skip', check, what: `cannot tell: ${why}` });

/** Something is not in order. */
export const bad = (level: 'warn' | 'fail', check: string, what: string, why: string, next?: string): Finding => ({
  level,
  check,
  what,
  why,
  next,
});

/** The worst level of all findings. */
export function worst(findings: readonly Finding[]): 'ok' | 'warn' | 'fail' {
  const has = (level: Level) => findings.some((finding) => finding.level === level);
  return has('fail') ? 'fail' : has('warn') ? 'warn' : 'ok';
}

/** A redis-cli command for the server at `address`, which has no user and password. */
export function redisCli(address: string, command: string): string {
  const [, path, db] = /^unix:\/\/([^?]*)(?:\?db=(\d+))?$/.exec(address) ?? [];
  if (path) return `redis-cli -s ${shellWord(path)}${db ? ` -n ${db}` : ''} ${command}`;
  return `redis-cli ${address === DEFAULT_URL ? '' : `-u ${shellWord(address)} `}${command}`;
}

/** Returns {@link redisCli} for commands with a key: for the primary, or for any node of a cluster, which redirects it. */
export async function redisCliFor(redis: Connection): Promise<(command: string) => string> {
  const nodes = await redis.nodes();
  const node = await Promise.any(nodes.map((one) => one.call('TIME').then(() => one))).catch(() => redis);
  return (command) => redisCli(node.address, redis.sharded ? `-c ${command}` : command);
}
