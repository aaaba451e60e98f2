import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { DelayqError, isDelayqError } from '../model/errors.js';
import { Encoded } from '../net/call.js';
import type { Arg, Caller, Reply } from '../redis/connection.js';
import { keysForScripts, type QueueKeys, queueOf } from './keys.js';

/** Most jobs in one call of a script. With 500, a call would block Redis for about 3 ms. */
export const MAX_CALL = 250;

/** Jobs per call: few enough to keep other clients from waiting. Adopting so many blocks Redis for about 1 ms. */
export const SLICE = 100;

/** Most payload bytes that one call returns; one job may exceed it. */
export const MAX_BYTES = 1024 * 1024;

export const SCRIPTS = [
  'jobs/enqueue',
  'jobs/drain',
  'jobs/ack',
  'jobs/nack',
  'jobs/renew',
  'jobs/finish',
  'jobs/swap',
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
  'edit/settings',
  'transfer/hold',
  'transfer/restore',
  'transfer/finish',
  'transfer/remember',
  'transfer/advance',
  'transfer/adopt',
  'transfer/claim',
  'transfer/unclaim',
  'transfer/erase',
  'every/put',
  'every/show',
  'every/remove',
  'every/fire',
  'repair/audit',
  'repair/mend',
] as const;

type Name = (typeof SCRIPTS)[number];

/** Which lines of the scripts count, besides those of all: `-- on a cluster: …` and `-- in a partition: …`. */
export interface Variant {
  readonly sharded?: boolean | undefined;
  readonly parted?: boolean | undefined;
}

/** The text of a file of lua/, with the files that it includes: a part that is rarely run costs nothing in other calls. */
function textOf(name: string, variant: Variant = {}): string {
  let text = readFileSync(new URL(`../../lua/${name}.lua`, import.meta.url), 'utf8');
  if (variant.sharded) text = text.replace(/-- on a cluster: /g, '');
  if (variant.parted) text = text.replace(/-- in a partition: /g, '');
  return text.replace(/^ *-- include (\S+)$/gm, (_, file: string) => textOf(file, variant));
}

/** @public for scripts/bundle.js */
export const VARIANTS: readonly Variant[] = [{}, { sharded: true }, { parted: true }, { sharded: true, parted: true }];

/** @public for scripts/bundle.js */
export const keyOf = (name: Name, { sharded, parted }: Variant) =>
  name + (sharded ? ' sharded' : '') + (parted ? ' parted' : '');

/** SHA-1 by name, filled in when the command line is bundled: it then need not read the scripts or load node:crypto. */
declare const DELAYQ_SHAS: Readonly<Record<string, string>> | undefined;
const shas = new Map<string, string>(typeof DELAYQ_SHAS === 'undefined' ? [] : Object.entries(DELAYQ_SHAS));

/** @public for scripts/bundle.js */
export function shaOf(name: Name, variant: Variant): string {
  const key = keyOf(name, variant);
  const sha = shas.get(key) ?? createHash('sha1').update(textOf(name, variant)).digest('hex');
  shas.set(key, sha);
  return sha;
}

/** Returns the name of the script with this SHA-1; undefined if it is not one of delayq's. */
export function nameOf(sha: string): string | undefined {
  return SCRIPTS.find((name) => VARIANTS.some((variant) => shaOf(name, variant) === sha));
}

interface EncodedKeys {
  readonly count: number;
  readonly text: Encoded;
}

const encoded = new WeakMap<QueueKeys, EncodedKeys>();

/** The keys of a queue, encoded once. */
function encodedKeys(keys: QueueKeys): EncodedKeys {
  let found = encoded.get(keys);
  if (!found) {
    const names = keysForScripts(keys);
    found = { count: names.length, text: new Encoded(names) };
    encoded.set(keys, found);
  }
  return found;
}

/**
 * Runs a script on the keys of a queue, if one is given, followed by `foreign` keys of other software. Sends its text if
 * Redis does not know it. Throws what Connection.call throws; the error for a key of the wrong type names the key.
 */
export async function run<R extends Reply = Reply[]>(
  redis: Caller,
  name: Name,
  keys: QueueKeys | undefined,
  args: readonly Arg[],
  foreign: readonly string[] = [],
): Promise<R> {
  const variant = { sharded: redis.sharded, parted: keys?.layout !== undefined };
  const own = keys && encodedKeys(keys);
  const layout = keys?.layout === undefined ? [] : [keys.layout];
  const count = (own?.count ?? 0) + foreign.length;
  const send = (command: string, script: string) =>
    redis.call(command, script, count, ...(own ? [own.text] : []), ...foreign, ...args, ...layout) as Promise<R>;
  try {
    return await send('EVALSHA', shaOf(name, variant)).catch((error) => {
      // Redis was restarted, or its scripts were flushed. Nothing has run, so this is not a repeat.
      if (/^NOSCRIPT/.test(replyIn(error))) return send('EVAL', textOf(name, variant));
      throw error;
    });
  } catch (error) {
    // Redis does not name the key; the prelude does, and throws.
    if (keys && /^WRONGTYPE Op/.test(replyIn(error))) await send('EVAL', textOf('lib/prelude', variant));
    // Redis does not know the name either.
    if (keys && isDelayqError(error, 'config') && /^(LIMITED|CONFLICT)/.test(replyIn(error))) {
      const [prefix = ''] = keys.pending.split(':{');
      const next = error.next?.replace('QUEUE', queueOf(prefix, keys.pending) ?? 'QUEUE');
      throw new DelayqError(error.code, error.what, { why: error.why, next, cause: error.cause });
    }
    throw error;
  }
}

/** The error reply of Redis in an error of Connection.call; empty if there is none. */
const replyIn = (error: unknown) => (error instanceof Error ? String((error.cause as Error | undefined)?.message) : '');
