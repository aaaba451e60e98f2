import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, isPassing, partly } from '../model/errors.js';
import type { Confirmed, Enqueued } from '../model/job.js';
import { checkCount } from '../model/validate.js';
import { DEADLINE_MS } from '../net/errors.js';
import type { Caller, Connection, Reply } from '../redis/connection.js';

/** What Redis must confirm before jobs count as enqueued. */
export interface Durability {
  /** They are on Redis's own disk (WAITAOF). Needs Redis 7.2 or newer with its AOF on. */
  readonly durable?: boolean | undefined;
  /** This number of replicas have them in memory (WAIT). */
  readonly replicas?: number | undefined;
}

/** What was confirmed; or why that is in doubt, and what to do before repeating. */
export type Confirmation = { readonly confirmed: Confirmed } | Doubt;

interface Doubt {
  readonly doubt: string;
  readonly next?: string | undefined;
}

/** How long Redis itself waits, ms: its reply must arrive before the time limit of the call. */
const WAIT_MS = DEADLINE_MS - 1_000;

/**
 * How long to wait for replicas before the first write on a connection, ms. Redis 7.0 asks replicas for their offsets;
 * 7.2 and newer count connected ones, so one that has just frozen is noticed only after the write.
 */
const SHOW_UP_MS = 1_000;

/** The longest delay before a WAIT, so that more batches can share it, ms. */
const GATHER_MS = 100;

/**
 * Most batches in flight at once. All of them share one WAITAOF, which takes up to a second with `appendfsync
 * everysec`, so their number limits the batches per second.
 */
export const DURABLE_IN_FLIGHT = 64;

/** Returns what `options` require; undefined for nothing. Throws `usage` if `replicas` is not a whole number from 1. */
export function requiredBy({ durable = false, replicas }: Durability): Durability | undefined {
  checkCount(replicas, 'replicas');
  return durable || replicas !== undefined ? { durable, replicas } : undefined;
}

/**
 * Runs `act` on one connection to the owner of `key`, on which to send jobs and then {@link confirm} them; on any, if
 * nothing is required. Checks first that the server can confirm what is required: throws `config` if it never can,
 * `temporary` if it cannot now, and what Connection.pinned throws.
 */
export function pinnedFor<T>(
  redis: Connection,
  key: string,
  required: Durability | undefined,
  act: (pinned: Caller) => Promise<T>,
): Promise<T> {
  if (!required) return act(redis);
  return redis.pinned(key, async (pinned) => {
    await barrierOf(pinned).check(required);
    return act(pinned);
  });
}

/**
 * Waits until everything written over `pinned` (from {@link pinnedFor}) is confirmed: up to 4 s for each requirement.
 * Its reply must have arrived. Blocks other calls on this connection. Throws `unknown` if the connection is
 * lost or the server changes its role: repeat on a new connection.
 *
 * WAIT covers the last write of the connection and all writes before it. So if a repeated enqueue finds its jobs kept,
 * this also confirms the first attempt: Redis writes the counter `kept` after them.
 */
export async function confirm(pinned: Caller, required: Durability): Promise<Confirmation> {
  try {
    return await barrierOf(pinned).confirm(required);
  } catch (error) {
    if (!isDelayqError(error)) throw error;
    if (!isPassing(error)) return doubtOf(error);
    // The jobs were written. With the original code it would look as if the call had been rejected.
    throw partly(error);
  }
}

/** The doubt about jobs that were sent when `error` prevented their confirmation. `before` precedes its reason. */
export function doubtOf(error: DelayqError, before = ''): Doubt {
  const { what, why = what, next } = error;
  return { doubt: `${before}${why}`, next: isPassing(error) ? undefined : next };
}

/**
 * Returns the doubt about jobs that were all kept when not even their counter in the hash `stats` could be written.
 * WAIT would then cover only older writes (none on a new connection) and succeed at once.
 */
export function nothingWritten(stats: string): Doubt {
  return {
    doubt:
      'nothing was written for a kept job, so Redis has nothing to confirm: either Redis accepts no writes now, ' +
      `or the counter kept in ${stats} is not a number`,
    next: `check it (HGET ${stats} kept), and if it is not a number, remove it (HDEL)`,
  };
}

const barriers = new WeakMap<Caller, Barrier>();

function barrierOf(pinned: Caller): Barrier {
  const found = barriers.get(pinned) ?? new Barrier(pinned);
  barriers.set(pinned, found);
  return found;
}

/** Confirms the writes of one connection, with one WAIT at a time: all callers that come during one share the next. */
class Barrier {
  readonly #pinned: Caller;
  readonly #checks = new Map<string, Promise<void>>();
  readonly #next = new Map<string, Promise<Confirmation>>();
  #last: Promise<unknown> = Promise.resolve();
  #tookMs = 0;

  constructor(pinned: Caller) {
    this.#pinned = pinned;
  }

  /** Checks once that the server can confirm what is required. Throws what {@link pinnedFor} throws. */
  check(required: Durability): Promise<void> {
    const key = JSON.stringify(required);
    let found = this.#checks.get(key);
    if (!found) {
      found = this.#check(required);
      this.#checks.set(key, found);
      found.catch(() => this.#checks.delete(key));
    }
    return found;
  }

  /** Joins the next WAIT to start. It covers all writes whose reply arrived before this call. */
  confirm(required: Durability): Promise<Confirmation> {
    const key = JSON.stringify(required);
    let next = this.#next.get(key);
    if (!next) {
      next = this.#last
        // After a long WAIT, the callers it released are about to send more. Without this pause, every second batch
        // would miss the WAIT that starts now, and need two.
        .then(() => sleep(Math.min(this.#tookMs / 10, GATHER_MS)))
        .then(async () => {
          this.#next.delete(key);
          const started = performance.now();
          const confirmation = await this.#wait(required);
          this.#tookMs = performance.now() - started;
          return confirmation;
        });
      this.#next.set(key, next);
      this.#last = next.catch(() => {});
    }
    return next;
  }

  async #check({ durable, replicas }: Durability): Promise<void> {
    if (durable) await this.#ask('WAITAOF', 1, 0, 1);
    if (replicas === undefined) return;
    const there = Number(await this.#ask('WAIT', replicas, SHOW_UP_MS));
    if (there >= replicas) return;
    throw new DelayqError('temporary', 'too few replicas', {
      why: `${there} of ${replicas} replicas answered within ${SHOW_UP_MS / 1000} s`,
      // Other jobs may have been sent before, and so may these if this is a repeat.
      next: 'wait until they are back, or require fewer: until then no job is sent',
    });
  }

  // One command after the other, so that each has a full time limit.
  async #wait({ durable, replicas }: Durability): Promise<Confirmation> {
    const within = `within ${WAIT_MS / 1000} s`;
    const confirmed: { disk?: boolean; replicas?: number } = {};
    if (replicas !== undefined) {
      confirmed.replicas = Number(await this.#ask('WAIT', replicas, WAIT_MS));
      if (confirmed.replicas < replicas)
        return { doubt: `${confirmed.replicas} of ${replicas} replicas confirmed ${within}` };
    }
    if (durable) {
      const [local] = (await this.#ask('WAITAOF', 1, 0, WAIT_MS)) as number[];
      confirmed.disk = Number(local) >= 1;
      if (!confirmed.disk) return { doubt: `Redis has not confirmed ${within} that the job is on its disk` };
    }
    return { confirmed };
  }

  async #ask(command: 'WAIT' | 'WAITAOF', ...args: number[]): Promise<Reply> {
    try {
      return await this.#pinned.call(command, ...args);
    } catch (error) {
      throw isDelayqError(error) ? explained(error, this.#pinned.address) : error;
    }
  }
}

/** Explains why Redis rejected WAIT or WAITAOF. Returns other errors unchanged. */
function explained(error: DelayqError, address: string): DelayqError {
  const said = error.cause instanceof Error ? error.cause.message : '';
  const noDisk = (why: string, next: string) =>
    new DelayqError('config', 'this Redis cannot confirm that a job is on its disk', { why, next, cause: error });
  if (/unknown command .?WAITAOF/i.test(said)) {
    const why = `Redis at ${address} has no WAITAOF, which needs Redis 7.2 or newer, or Valkey`;
    return noDisk(why, 'upgrade it; or omit durable and set appendfsync always, or use replicas instead');
  }
  if (/appendonly is disabled/.test(said)) {
    const why = `Redis at ${address} has no AOF (appendonly is off)`;
    return noDisk(why, 'turn it on with CONFIG SET appendonly yes, and also in its configuration file');
  }
  if (/cannot be used with replica/.test(said)) {
    const next = 'this is a replica: connect to the primary';
    // READONLY: the word by which a connection looks for the primary.
    const why = `READONLY ${said}`;
    return new DelayqError('temporary', `Redis at ${address} refused the call`, { why, next, cause: error });
  }
  return error;
}

/** The error for jobs that were stored, as far as is known, but not confirmed. */
export function unconfirmed(jobs: readonly Enqueued[], { doubt, next }: Doubt): DelayqError {
  const one = jobs.length === 1;
  const which = one ? `job ${jobs[0]?.id} is` : `${jobs.length} jobs are`;
  const repeat = `repeat with ${one ? `the id ${jobs[0]?.id}` : 'the same ids'} until it is confirmed`;
  return new DelayqError('unknown', `${which} enqueued, but ${one ? 'its' : 'their'} durability is unknown`, {
    why: doubt,
    next: `${next ? `${next}; then ` : ''}${repeat}: that makes no second job while the first still exists`,
    ids: jobs.map(({ id }) => id),
    stored: true,
  });
}

// Steps of several on two servers: each must be on the replicas before the next.

/** How long a step waits for replicas, ms. Then it goes on: a replica that is further behind would lose more. */
const SHORT_WAIT_MS = 200;

/** How long the number of replicas counts, ms. */
const KNOWN_MS = 1_000;

const replicaCounts = new WeakMap<Caller, { readonly replicas: number | undefined; readonly at: number }>();

/**
 * Runs `write` on one connection to the owner of `key`, and waits until all replicas of that server have it: otherwise
 * a failover could undo one step of several. With `must`, throws `temporary` if a replica does not have it within 4 s.
 */
export function replicated<T>(
  redis: Connection,
  key: string,
  must: boolean,
  write: (caller: Caller) => Promise<T>,
): Promise<T> {
  return redis.pinned(key, async (caller) => {
    const result = await write(caller);
    const replicas = await replicasOf(caller);
    if (replicas === 0) return result;
    const there = await confirmed(caller, replicas, must ? WAIT_MS : SHORT_WAIT_MS);
    if (there === undefined) {
      // In a planned failover, the new primary has all writes of the old one.
      if (!must) return result;
      const why = `Redis at ${caller.address} has become a replica`;
      throw new DelayqError('temporary', 'a write may be lost', { why, next: 'try again' });
    }
    if (must && there < (replicas ?? 0)) {
      throw new DelayqError('temporary', 'too few replicas', {
        why: `${there} of ${replicas} replicas of Redis at ${caller.address} confirmed a write within ${WAIT_MS / 1000} s`,
        next: 'check the replicas, then try again',
      });
    }
    return result;
  });
}

/** Returns how many replicas have all writes; undefined if the server has become a replica itself. */
async function confirmed(caller: Caller, replicas: number | undefined, ms: number): Promise<number | undefined> {
  if (replicas === undefined) return undefined;
  try {
    return Number(await caller.call('WAIT', replicas, ms));
  } catch (error) {
    if (isDelayqError(error) && /cannot be used with replica|^UNBLOCKED/.test(error.why ?? '')) return undefined;
    throw error;
  }
}

/** How many replicas follow the owner of `key`. */
export async function replicasAt(redis: Connection, key: string): Promise<number> {
  return (await redis.pinned(key, replicasOf)) ?? 0;
}

/** How many replicas follow this server; undefined if it is a replica itself. */
async function replicasOf(caller: Caller): Promise<number | undefined> {
  const found = replicaCounts.get(caller);
  if (found && performance.now() - found.at < KNOWN_MS) return found.replicas;
  const role = (await caller.call('ROLE').catch((error: unknown) => {
    // Without permission for ROLE, do not wait.
    if (isDelayqError(error, 'refused')) return ['master', 0, []];
    throw error;
  })) as Reply[];
  const replicas = Array.isArray(role[2]) ? role[2].length : undefined;
  replicaCounts.set(caller, { replicas, at: performance.now() });
  return replicas;
}
