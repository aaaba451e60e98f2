import { type DelayqError, isDelayqError, unknownOutcome } from '../model/errors.js';
import { newId } from '../model/id.js';
import { type Enqueued, GIVEN, type Job, type Outcome, type ReadyJob } from '../model/job.js';
import { JsonText } from '../model/payload.js';
import type { Caller } from '../redis/connection.js';
import { repeatIfLost } from '../redis/retry.js';
import { byId, chunks } from './by-id.js';
import {
  type Confirmation,
  confirm,
  type Durability,
  doubtOf,
  nothingWritten,
  pinnedFor,
  requiredBy,
  unconfirmed,
} from './durability.js';
import * as scripts from './jobs.js';
import type { QueueKeys } from './keys.js';
import type { PartitionMap } from './map.js';
import { MAX_CALL } from './script.js';
import type { Store } from './store.js';

/** Pauses before the repeats of an enqueue whose reply was lost, ms. */
const REPEAT_AFTER_MS = [100, 1_000];

/** The reply for a batch, and its confirmation if required. `first`: outcomes of the first attempt; empty if lost. */
interface Sent {
  readonly now: number;
  readonly outcomes: Outcome[];
  readonly first: Outcome[];
  readonly repeated: boolean;
  readonly confirmation?: Confirmation;
}

/** How jobs are enqueued. */
export interface EnqueueOptions extends Durability {
  /** If a job with the same id exists: `keep` it (default) or `replace` it. */
  readonly ifExists?: 'keep' | 'replace' | undefined;
  /** How long to repeat the call if its reply is lost, ms. Default: two repeats, however long they take. */
  readonly repeatMs?: number | undefined;
}

/**
 * Puts jobs into the partitions to which they belong, and works out each result. Repeats with `keep` if a reply is
 * lost: what the first attempt stored stays. `makeId` makes ids of one partition. Throws what Queue.enqueue throws.
 */
export async function enqueue(
  store: Store,
  jobs: readonly ReadyJob[],
  options: EnqueueOptions,
  makeId: () => string,
): Promise<Enqueued[]> {
  const { map } = store;
  const owner = ownerOfAll(jobs, map);
  let ready = jobs;
  if (owner !== undefined) {
    try {
      return await putInto(store, store.keys(owner, map), asTexts(store, jobs), options);
    } catch (error) {
      await store.learnFrom(map, error, 1);
    }
    // The ids made here would be spread over all partitions.
    ready = jobs.map((job) => (job.ours ? { ...job, id: makeId() } : job));
  }
  return enqueueAcrossPartitions(store, asTexts(store, ready), options);
}

/** Turns jobs of a queue of texts into the given texts. The script refuses other jobs, which reveals such a queue. */
function asTexts(store: Store, jobs: readonly ReadyJob[]): readonly ReadyJob[] {
  if (!store.texts) return jobs;
  return jobs.map((job) => (job[GIVEN] === undefined ? job : { ...job, json: JsonText.from(job[GIVEN]).text }));
}

/** Puts jobs into one partition. */
async function putInto(
  store: Store,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  options: EnqueueOptions,
): Promise<Enqueued[]> {
  const { ifExists = 'keep' } = options;
  const { now, outcomes, first, repeated, confirmation } = await sendConfirmed(store, keys, jobs, ifExists, options);
  const results: Enqueued[] = [];
  const collided: number[] = [];
  const unclear: string[] = [];
  for (const [i, job] of jobs.entries()) {
    let outcome = outcomes[i] as Outcome;
    if (isKept(outcome)) {
      // `kept` with an id made here: a collision if the first attempt says so, else the job of the first attempt.
      if (job.ours && isKept(first[i])) collided.push(i);
      else if (job.ours || first[i] === 'created') outcome = 'created';
      else if (repeated && ifExists === 'replace') unclear.push(job.id);
    }
    results.push(resultOf(job, outcome, now, confirmation));
  }
  const earlier = 'jobs with these ids exist, but they may be the earlier ones';
  if (unclear.length > 0)
    throw first.length > 0 ? unconfirmed(results, { doubt: earlier }) : unknownOutcome(unclear, earlier);
  if (collided.length > 0) {
    const renamed = collided.map((i) => ({ ...(jobs[i] as ReadyJob), id: newId() }));
    const again = await enqueue(store, renamed, options, newId);
    for (const [n, i] of collided.entries()) results[i] = again[n] as Enqueued;
  }
  if (confirmation && 'doubt' in confirmation) throw unconfirmed(results, confirmation);
  return results;
}

/** Replaces or keeps jobs that are active where they belonged before a growth. Undefined for each that is not. */
async function putActive(
  store: Store,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  options: EnqueueOptions,
): Promise<(Enqueued | undefined)[]> {
  const required = requiredBy(options);
  const put = async (caller: Caller) => {
    if (options.ifExists === 'replace') return scripts.replaceActive(caller, keys, jobs);
    // As the script counts kept jobs. It is also the write to confirm.
    await caller.call('HINCRBY', keys.stats, 'kept', jobs.length);
    return { now: Date.now(), outcomes: jobs.map(() => 'kept' as const) };
  };
  const { now, outcomes, confirmation } = await pinnedFor(store.redis, keys.pending, required, async (caller) => {
    return { ...(await put(caller)), confirmation: required && (await confirm(caller, required)) };
  });
  const results = outcomes.map((outcome, i) => outcome && resultOf(jobs[i] as ReadyJob, outcome, now, confirmation));
  if (confirmation && 'doubt' in confirmation)
    throw unconfirmed(
      results.filter((one) => one !== undefined),
      confirmation,
    );
  return results;
}

/** Sends a batch, and confirms it if required. Repeats as {@link enqueue} does. */
async function sendConfirmed(
  store: Store,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  ifExists: 'keep' | 'replace',
  options: EnqueueOptions,
): Promise<Sent> {
  const required = requiredBy(options);
  let first: Outcome[] = [];
  let sent: Sent | undefined;
  // WAIT only covers writes of its own connection.
  const attempt = (n: number) =>
    pinnedFor(store.redis, keys.pending, required, async (caller): Promise<Sent> => {
      // An attempt whose reply was lost may have put the job somewhere by now.
      const isNew = n === 0 && jobs.every(({ ours }) => ours);
      const how = isNew ? 'new' : n > 0 ? 'keep' : ifExists;
      const { now, outcomes, written } = await sendOnce(store, keys, jobs, how, caller);
      if (n === 0) first = outcomes;
      const reply: Sent = { now, outcomes, first, repeated: n > 0 };
      // If every wait fails, the earliest reply describes best what happened to the jobs.
      sent ??= reply;
      if (!required) return reply;
      return { ...reply, confirmation: written ? await confirm(caller, required) : nothingWritten(keys.stats) };
    });
  try {
    return await repeatIfLost(attempt, REPEAT_AFTER_MS, options.repeatMs);
  } catch (error) {
    if (!isDelayqError(error, 'unknown')) throw error;
    const doubt = doubtOf(error.cause as DelayqError, "Redis's reply was lost, and the repeat failed: ");
    if (sent) return { ...sent, confirmation: doubt };
    const ids = jobs.map(({ id }) => id);
    throw unknownOutcome(ids, doubt.doubt);
  }
}

/** Sends jobs once. Lists the queue if it is new. */
const sendOnce = (
  store: Store,
  keys: QueueKeys,
  jobs: readonly ReadyJob[],
  ifExists: scripts.IfExists,
  caller: Caller = store.redis,
): Promise<scripts.EnqueueReply> => store.listing(() => scripts.enqueue(caller, keys, jobs, ifExists));

/**
 * Enqueues jobs into the partitions of their ids. Throws the error of a partition if nothing was stored, or if it is
 * about all jobs. Otherwise throws `unknown` with the ids of all jobs that may not be stored: a repeat is safe.
 */
async function enqueueAcrossPartitions(
  store: Store,
  jobs: readonly ReadyJob[],
  options: EnqueueOptions,
): Promise<Enqueued[]> {
  return byId<ReadyJob, Enqueued>(store, jobs, {
    idOf: ({ id }) => id,
    act: (keys, some) => putInto(store, keys, some, options),
    isNew: ({ ours }) => ours,
    onActive: (keys, some) => putActive(store, keys, some, options),
    inDoubt: (error, stored) => {
      if (!isDelayqError(error)) return error;
      const rest = jobs.filter((_, i) => stored[i] === undefined).map(({ id }) => id);
      const inDoubt = error.code === 'unknown' ? error.ids : rest;
      if (inDoubt.length === jobs.length) return error;
      return unknownOutcome(rest, `jobs of the same call are in several partitions: ${error.why ?? error.what}`);
    },
  });
}

/** Puts back jobs that a drain has removed, see Queue.putBack. */
export async function putBack(store: Store, jobs: readonly Job[]): Promise<void> {
  for (const some of chunks(jobs)) {
    const ready = some.map(({ id, payload, due, record = '' }) => {
      return { id, ours: false, json: payload, in: 0, at: due, record };
    });
    await byId<ReadyJob, Outcome>(store, ready, {
      idOf: ({ id }) => id,
      act: async (keys, jobs) => (await sendOnce(store, keys, jobs, 'back')).outcomes,
      ifActive: 'kept',
    }).catch((error) => {
      const ids = some.map(({ id }) => id);
      throw isDelayqError(error, 'unknown') ? unknownOutcome(ids, `Redis's reply was lost: ${error.why}`) : error;
    });
  }
}

const isKept = (outcome: Outcome | undefined) => outcome?.startsWith('kept');

/**
 * The partition to which all jobs belong, if one call can put them there: at most {@link MAX_CALL}, and while a growth
 * is open only those that cannot be elsewhere.
 */
function ownerOfAll(jobs: readonly ReadyJob[], map: PartitionMap): number | undefined {
  if (map.count === 1) return 0;
  const [first] = jobs as [ReadyJob];
  const owner = map.ownerOf(first.id);
  const isHere = ({ id, ours }: ReadyJob) => (map.from === undefined || ours) && map.ownerOf(id) === owner;
  return jobs.length <= MAX_CALL && jobs.every(isHere) ? owner : undefined;
}

function resultOf(job: ReadyJob, outcome: Outcome, now: number, confirmation?: Confirmation): Enqueued {
  const result = { id: job.id, outcome, due: job.at ?? now + job.in };
  return confirmation && 'confirmed' in confirmation ? { ...result, confirmed: confirmation.confirmed } : result;
}
