import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { KEY_ORDER, type QueueKeys } from './keys.js';
import type { Arg, Caller, Reply } from './redis.js';

/*
 * How a script is read, and run. What each takes and answers: scripts.ts, looks.ts, acts.ts.
 */

/** The most jobs that one call of a script takes, so that nobody else's command waits for long. */
export const MAX_CALL = 500;

/** The most payload bytes that one call returns (one job at least). */
export const MAX_BYTES = 1024 * 1024;

type Name =
  | 'enqueue'
  | 'drain'
  | 'ack'
  | 'nack'
  | 'renew'
  | 'inspect'
  | 'holders'
  | 'list'
  | 'show'
  | 'cancel'
  | 'reschedule'
  | 'requeue'
  | 'bury'
  | 'purge'
  | 'forget'
  | 'pause'
  | 'config'
  | 'restore'
  | 'hold'
  | 'finish'
  | 'adopt'
  | 'audit'
  | 'mend';

/** What stands before a script: before all of them, and before some. */
const BEFORE = ['prelude', 'records'];
const MORE_BEFORE: Partial<Record<Name, readonly string[]>> = { audit: ['faults'], mend: ['faults'] };

const read = (name: string) => readFileSync(new URL(`../lua/${name}.lua`, import.meta.url), 'utf8');
const sources = new Map<Name, { readonly text: string; readonly sha: string }>();

function source(name: Name) {
  let found = sources.get(name);
  if (!found) {
    const text = [...BEFORE, ...(MORE_BEFORE[name] ?? []), name].map(read).join('\n');
    found = { text, sha: createHash('sha1').update(text).digest('hex') };
    sources.set(name, found);
  }
  return found;
}

/** The name of the script that Redis knows by `sha`; undefined for one that is not ours. */
export function nameOf(sha: string): string | undefined {
  const names = readdirSync(new URL('../lua/', import.meta.url)).map((file) => file.replace(/\.lua$/, '') as Name);
  return names.find((name) => source(name).sha === sha);
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
  const { sha, text } = source(name);
  const rest = [KEY_ORDER.length + foreign.length, ...KEY_ORDER.map((key) => keys[key]), ...foreign, ...args];
  try {
    return (await redis.call('EVALSHA', sha, ...rest)) as Reply[];
  } catch (error) {
    // Redis was restarted or its scripts flushed; nothing ran, so sending the text is no repeat.
    if (!(error instanceof Error && /^NOSCRIPT/.test(String((error.cause as Error | undefined)?.message)))) throw error;
    return (await redis.call('EVAL', text, ...rest)) as Reply[];
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
