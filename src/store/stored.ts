import { readAttributes } from '../model/attributes.js';
import { type Id, idWord, timeOfId } from '../model/id.js';
import type { State, StoredJob } from '../model/job.js';
import { LONGEST_MS } from '../model/time.js';
import type { Connection, Reply } from '../redis/connection.js';
import { STATES } from './answers.js';
import type { QueueKeys } from './keys.js';
import { bytes, known, rows, text, time } from './replies.js';
import { MAX_BYTES, run } from './script.js';

/** What is stored about a job, not decoded. `state` is a letter, empty if there is no such job. */
export type Raw = Readonly<Record<'state' | 'score' | 'held' | 'record' | 'payload', Reply | undefined>>;

/** Returns what is stored about the first of `ids`: as many as fit into one reply. */
export async function raw(
  redis: Connection,
  keys: QueueKeys,
  ids: readonly (Id | Reply)[],
  bytes = MAX_BYTES,
): Promise<Raw[]> {
  const reply = await run(redis, 'inspect/show', keys, [bytes, ...(ids as Id[])]);
  return rows(reply, 1, 5).map(([state, score, held, record, payload]) => ({ state, score, held, record, payload }));
}

/** Decodes what is stored about a job that exists. */
export function stored(id: Id, { state, score, held, record, payload }: Raw): StoredJob {
  const at = time(score);
  const [, due, since, ...by] = text(held).split(' ');
  // lua/transfer/hold.lua writes the destination, the state before and a token.
  const [, to, was] = (text(score) === 'inf' && /^move:(\S+) ([pd]) \S+$/.exec(by.join(' '))) || [];
  const rec = parseRecord(text(record));
  const failures = known(rec.failures) ?? 0;
  const losses = known(rec.losses) ?? 0;
  const is = STATES[text(state)] as State;
  const word = idWord(id);
  const own = ownOf(rec, is === 'pending' ? at : known(due));
  return {
    id: word,
    ...(word === id ? {} : { idBase64: Buffer.from(id as string).toString('base64') }),
    state: is,
    due: is === 'pending' ? at : is === 'active' ? known(was === 'd' ? rec.first : due) : known(rec.first),
    lease: is === 'active' ? { by: to ? `move:${to}` : by.join(' '), since: known(since) ?? 0, ends: at } : undefined,
    died: is === 'dead' ? at : undefined,
    reason: typeof rec.reason === 'string' ? rec.reason : undefined,
    attempts: failures + losses + (is === 'active' ? 1 : 0),
    failures,
    losses,
    releases: known(rec.releases) ?? 0,
    error: typeof rec.error === 'string' ? rec.error : undefined,
    failed: known(rec.failed),
    tries: known(rec.tries),
    maxLost: known(rec.maxLost),
    ttl: known(rec.ttl),
    onceFor: known(rec.once),
    ...own,
    expires: is === 'dead' || was === 'd' ? undefined : own.expires,
    created: own.created ?? timeOfId(word),
    payload: bytes(payload),
    ...(is === 'active' && to ? { moving: { to, from: STATES[was as string] as 'pending' | 'dead' } } : {}),
  };
}

/** The fields of a record that drains and operators share. `due`: the due time of the job. */
export function ownOf(rec: Record<string, unknown>, due: number | undefined) {
  const ttl = known(rec.ttl) ?? LONGEST_MS;
  const first = known(rec.first) ?? due;
  return {
    attributes: readAttributes(rec),
    deliveries: known(rec.deliveries),
    created: known(rec.created),
    expires: ttl >= LONGEST_MS || first === undefined ? undefined : first + ttl,
  };
}

/**
 * Which attempt this is of a job, how often it has failed, and how many failures end it. `tries`: the queue's. A limit
 * of deliveries stands in place of that, as in isSpent of lua/lib/records.lua.
 */
export function countsOf(rec: Record<string, unknown>, tries: number) {
  const count = (value: unknown) => {
    const n = known(value);
    return n === undefined || n < 0 ? undefined : Math.floor(n);
  };
  const [failures = 0, losses = 0] = [count(rec.failures), count(rec.losses)];
  const both = count(rec.deliveries);
  const own = Math.min(count(rec.tries) ?? both ?? tries, both ?? Number.POSITIVE_INFINITY);
  return { attempt: 1 + failures + losses, failures, tries: own };
}

/** How many more failures end a job that is not dead. `ofQueue`: the tries of its queue. */
export function triesLeft({ failures, losses, tries, deliveries }: StoredJob, ofQueue: number): number {
  const both = deliveries === undefined ? Number.POSITIVE_INFINITY : deliveries - losses;
  return Math.max(0, Math.min(tries ?? (deliveries === undefined ? ofQueue : both), both) - failures);
}

/** A record of `meta`; empty if it is not JSON. */
export function parseRecord(json: string): Record<string, unknown> {
  try {
    return Object(JSON.parse(json || '{}'));
  } catch {
    return {};
  }
}
