import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import type { Arg, Caller, Reply } from './connection.js';
import { KEY_ORDER, type QueueKeys } from './keys.js';

/*
 * How a Lua script is read and run. What each takes and returns: src/scripts/, a file for each folder of lua/.
 */

/** The most jobs that one call of a script takes: with 500, calls come near the 3 ms that nobody else should wait. */
export const MAX_CALL = 250;

/** The most payload bytes that one call returns (one job at least). */
export const MAX_BYTES = 1024 * 1024;

/** Every script, by its place in lua/. */
export const SCRIPTS = [
  'jobs/enqueue',
  'jobs/drain',
  'jobs/ack',
  'jobs/nack',
  'jobs/renew',
  'inspect/inspect',
  'inspect/holders',
  'inspect/list',
  'inspect/show',
  'edit/cancel',
  'edit/reschedule',
  'edit/requeue',
  'edit/bury',
  'edit/purge',
  'edit/forget',
  'edit/pause',
  'edit/config',
  'transfer/hold',
  'transfer/restore',
  'transfer/finish',
  'transfer/adopt',
  'repair/audit',
  'repair/mend',
] as const;

type Name = (typeof SCRIPTS)[number];

/** What stands before a script: before all of them, and before some. */
const BEFORE = ['lib/prelude', 'lib/records'];
const MORE_BEFORE: Partial<Record<Name, readonly string[]>> = {
  'jobs/drain': ['lib/ids'],
  'edit/requeue': ['lib/ids'],
  'repair/audit': ['lib/ids', 'lib/faults'],
  'repair/mend': ['lib/ids', 'lib/faults'],
};

const read = (name: string) => readFileSync(new URL(`../../lua/${name}.lua`, import.meta.url), 'utf8');
const textOf = (name: Name) => [...BEFORE, ...(MORE_BEFORE[name] ?? []), name].map(read).join('\n');

/** By name, known when the command line is bundled: that saves it reading them, and Node its crypto. */
declare const DELAYQ_SHAS: Readonly<Record<string, string>> | undefined;
const shas = new Map<string, string>(typeof DELAYQ_SHAS === 'undefined' ? [] : Object.entries(DELAYQ_SHAS));

/**
 * By what Redis knows a script.
 * @public for scripts/bundle.js
 */
export function shaOf(name: Name): string {
  const sha = shas.get(name) ?? createHash('sha1').update(textOf(name)).digest('hex');
  shas.set(name, sha);
  return sha;
}

/** The name of the script that Redis knows by `sha`; undefined for one that is not ours. */
export function nameOf(sha: string): string | undefined {
  return SCRIPTS.find((name) => shaOf(name) === sha);
}

/**
 * Runs a script on the keys of a queue, and on those of other software behind them; its text is sent when Redis does not
 * know it. Throws what `redis` throws.
 */
export async function run(
  redis: Caller,
  name: Name,
  keys: QueueKeys,
  args: Arg[],
  foreign: readonly string[] = [],
): Promise<Reply[]> {
  const rest = [KEY_ORDER.length + foreign.length, ...KEY_ORDER.map((key) => keys[key]), ...foreign, ...args];
  try {
    return (await redis.call('EVALSHA', shaOf(name), ...rest)) as Reply[];
  } catch (error) {
    // Redis was restarted or its scripts flushed; nothing ran, so sending the text is no repeat.
    if (!(error instanceof Error && /^NOSCRIPT/.test(String((error.cause as Error | undefined)?.message)))) throw error;
    return (await redis.call('EVAL', textOf(name), ...rest)) as Reply[];
  }
}

/** Where sleeping watchers hear of jobs that fall due sooner than they would look again, `pollMs` from now. */
export interface Wake {
  readonly channel: string;
  readonly pollMs: number;
}

/** Answers in the order of the jobs, and Redis's clock, ms. */
export interface Answered<A> {
  readonly now: number;
  readonly answers: A[];
}
