import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { DelayqError, isDelayqError } from '../model/errors.js';
import { DEFAULT_SETTINGS, LIMITS } from '../model/settings.js';
import { Encoded } from '../net/call.js';
import type { Arg, Caller, Reply } from '../redis/connection.js';
import {
  FEATURES,
  KEY_ORDER,
  ONE_PARTITION,
  OWN_FIELDS,
  PART_POLL_MS,
  POLL_MS,
  type QueueKeys,
  queueOf,
  wrongTypeIn,
} from './keys.js';
import { FURTHEST } from './replies.js';

/** Most jobs in one call of a script. With 500, a call would block Redis for about 3 ms. */
export const MAX_CALL = 250;

/** Jobs per call: few enough to keep other clients from waiting. Adopting so many blocks Redis for about 1 ms. */
export const SLICE = 100;

/** The most due recurring jobs in one reply to a drain. */
export const MAX_OCCURRENCES = 100;

/** The latest due time, ms. */
export const LATEST_DUE = 1e15;

/** Most payload bytes that one call returns; one job may exceed it. */
export const MAX_BYTES = 1024 * 1024;

/** About how many entries of a stream one call removes at most: nodes of 100 in about 1 ms. */
const MAX_TRIM = 10_000;

/** The scripts, by their folders. */
const FOLDERS = {
  jobs: ['enqueue', 'drain', 'ack', 'nack', 'renew', 'remove'],
  inspect: ['inspect', 'list', 'show', 'finished', 'events'],
  edit: ['cancel', 'reschedule', 'requeue', 'bury', 'purge', 'forget', 'pause', 'config', 'settings', 'position'],
  transfer: ['hold', 'restore', 'end', 'remember', 'advance', 'adopt', 'erase'],
  every: ['put', 'show', 'remove', 'fire'],
  repair: ['repair'],
  http: ['take', 'put'],
} as const;

type Folders = typeof FOLDERS;
export type ScriptName = { [F in keyof Folders]: `${F}/${Folders[F][number]}` }[keyof Folders];
export const SCRIPTS = Object.entries(FOLDERS).flatMap(([folder, names]) =>
  names.map((name) => `${folder}/${name}` as ScriptName),
);

/** Words as Lua: a text with a space before and behind each. */
const list = (words: readonly string[]) => `' ${words.join(' ')} '`;

/** The constants of the scripts, as Lua. */
const CONSTANTS: Readonly<Record<string, string>> = {
  POLL_MS: String(POLL_MS),
  PART_POLL_MS: String(PART_POLL_MS),
  ONE_PARTITION: `'${ONE_PARTITION}'`,
  OWN_FIELDS: list(OWN_FIELDS),
  FEATURES: list(Object.keys(FEATURES)),
  LIMITS: list(LIMITS),
  MAX_CALL: String(MAX_CALL),
  MAX_OCCURRENCES: String(MAX_OCCURRENCES),
  MAX_TRIM: String(MAX_TRIM),
  LATEST_DUE: String(LATEST_DUE),
  FURTHEST: String(FURTHEST),
  DEFAULT_TRIES: String(DEFAULT_SETTINGS.tries),
  DEFAULT_MAX_LOST: String(DEFAULT_SETTINGS.maxLost),
  DEFAULT_LEASE_MS: String(DEFAULT_SETTINGS.lease),
  DEFAULT_MAX_DONE: String(DEFAULT_SETTINGS.maxDone),
};

/**
 * Returns the text of a script with the files that it includes, each once. An indented include is local to its block,
 * so the same file may be included elsewhere, too.
 *
 * @public for scripts/lint-lua.js
 */
export function scriptText(name: string): string {
  const textOf = (file: string, included: Set<string>): string =>
    readFileSync(new URL(`../../lua/${file}.lua`, import.meta.url), 'utf8').replace(
      /(?:^ *-- include \S+\n)+/gm,
      (lines) => {
        const known = lines.startsWith(' ') ? new Set(included) : included;
        const others = [...lines.matchAll(/include (\S+)/g)].map(([, other]) => other as string);
        return others.map((other) => (known.has(other) ? '' : textOf(other, known.add(other)))).join('');
      },
    );
  const names = new RegExp(`\\b(${Object.keys(CONSTANTS).join('|')})\\b`, 'g');
  return textOf(name, new Set()).replace(names, (constant) => CONSTANTS[constant] as string);
}

/** SHA-1 by name, filled in when the command line is bundled: it then need not read the scripts or load node:crypto. */
declare const DELAYQ_SHAS: Readonly<Record<string, string>> | undefined;
const shas = new Map<string, string>(typeof DELAYQ_SHAS === 'undefined' ? [] : Object.entries(DELAYQ_SHAS));

/** @public for scripts/bundle.js */
export function shaOf(name: ScriptName): string {
  const sha = shas.get(name) ?? createHash('sha1').update(scriptText(name)).digest('hex');
  shas.set(name, sha);
  return sha;
}

/** Returns the name of the script with this SHA-1; undefined if it is not one of delayq's. */
export function nameOf(sha: string): string | undefined {
  return SCRIPTS.find((name) => shaOf(name) === sha);
}

/** The most frequent scripts. They do not use the last two keys, and each key costs the server time. */
const OF_NINE_KEYS: readonly ScriptName[] = ['jobs/enqueue', 'jobs/ack'];

/** The keys of queues, encoded once, by their number. */
const encoded = [9, 11, KEY_ORDER.length + 1].map((count) => ({ count, byKeys: new WeakMap<QueueKeys, Encoded>() }));

/**
 * The keys of a queue for a script. On a cluster the wake channel is one of them: it must be in the same slot. And there
 * all keys that a script may use must be named, so that a slot that is being moved is not used half.
 */
function keysFor(name: ScriptName, keys: QueueKeys, sharded: boolean): Encoded {
  const { count, byKeys } = encoded[sharded ? 2 : OF_NINE_KEYS.includes(name) ? 0 : 1] as (typeof encoded)[0];
  const names = KEY_ORDER.map((one) => keys[one]);
  names.splice(11, 0, keys.wake);
  const found = byKeys.get(keys) ?? new Encoded(names.slice(0, count));
  byKeys.set(keys, found);
  return found;
}

/**
 * Runs a script on the keys of a queue, if one is given, followed by `foreign` keys of other software. Sends its text
 * if Redis does not know it. Throws what Connection.call throws; the error for a key of the wrong type names the key.
 */
export async function run<R extends Reply = Reply[]>(
  redis: Caller,
  name: ScriptName,
  keys: QueueKeys | undefined,
  args: readonly Arg[],
  foreign: readonly string[] = [],
): Promise<R> {
  const { sharded = false } = redis;
  const own = keys ? [keysFor(name, keys, sharded)] : [];
  const count = (own[0]?.count ?? 0) + foreign.length;
  const layout = keys ? [keys.layout] : [];
  const send = (command: string, script: string) =>
    redis.call(command, script, count, ...own, ...foreign, ...args, ...layout) as Promise<R>;
  try {
    return await send('EVALSHA', shaOf(name)).catch((error) => {
      // Redis was restarted, or its scripts were flushed. Nothing has run, so this is not a repeat.
      if (/^NOSCRIPT/.test(replyIn(error))) return send('EVAL', scriptText(name));
      throw error;
    });
  } catch (error) {
    throw keys && isDelayqError(error, 'config') ? await explained(redis, keys, error) : error;
  }
}

/** Adds to an error which key has the wrong type, and the name of the queue. */
async function explained(redis: Caller, keys: QueueKeys, error: DelayqError): Promise<DelayqError> {
  const { code, what, cause } = error;
  let { why, next } = error;
  const reply = replyIn(error);
  if (/^WRONGTYPE Op/.test(reply)) {
    const fault = await wrongTypeIn(keys, async (key) => String(await redis.call('TYPE', key))).catch(() => undefined);
    if (fault !== undefined) why = `WRONGTYPE ${fault}`;
  } else if (/^(LIMITED|CONFLICT)/.test(reply)) {
    const [prefix = ''] = keys.pending.split(':{');
    next = next?.replace('QUEUE', queueOf(prefix, keys.pending) ?? 'QUEUE');
  }
  return new DelayqError(code, what, { why, next, cause });
}

/** The error reply of Redis in an error of Connection.call; empty if there is none. */
const replyIn = (error: unknown) => (error instanceof Error ? String((error.cause as Error | undefined)?.message) : '');
