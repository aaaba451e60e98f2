import { setTimeout as sleep } from 'node:timers/promises';
import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Confirmed, Enqueued } from '../model/job.js';
import { checkCount } from '../model/validate.js';
import { type Caller, type Connection, DEADLINE_MS, type Reply } from './connection.js';

/** What must be confirmed of jobs before they count as enqueued. */
export interface Durability {
  /** That they are on Redis's own disk: WAITAOF, of Redis 7.2 or newer with its AOF on. */
  readonly durable?: boolean | undefined;
  /** That so many replicas have them in memory: WAIT. */
  readonly replicas?: number | undefined;
}

/** Confirmed as asked, or why that is in doubt, and what there is to do about it before a repeat. */
export type Confirmation = { readonly confirmed: Confirmed } | Doubt;

interface Doubt {
  readonly doubt: string;
  readonly next?: string | undefined;
}

/** How long Redis itself waits, ms: its answer must be here before the deadline of the call. */
const WAIT_MS = DEADLINE_MS - 1_000;

/** How long replicas have to show up before the first write of a connection, ms. */
const SHOW_UP_MS = 1_000;

/** The longest that a wait is put off for more to share it, ms. */
const GATHER_MS = 100;

/**
 * Batches that may be on their way at once. They share a wait, which takes up to a second with `appendfsync everysec`,
 * so their number is what a second brings.
 */
export const DURABLE_IN_FLIGHT = 64;

/** What `options` ask to be confirmed; undefined: nothing. Throws a `usage` error when `replicas` is no count. */
export function askedFor({ durable = false, replicas }: Durability): Durability | undefined {
  checkCount(replicas, 'replicas');
  return durable || replicas !== undefined ? { durable, replicas } : undefined;
}

/**
 * The connection over which jobs are to be sent and confirmed, once it is known to be able to. To be called before its
 * first write: throws `config` when it never will, `temporary` when it cannot now, and what Connection.call throws.
 */
export async function ready(redis: Connection, asked: Durability): Promise<Caller> {
  const line = await redis.pin();
  await barrierOf(line).able(asked);
  return line;
}

/**
 * Waits until all that was written over `line`, which {@link ready} gave, is confirmed: up to 4 s for each thing asked
 * for. The reply of the write must be here already. Holds up whatever else is sent over the connection. Throws
 * `unknown` when there is no telling yet, as the connection is lost or the server changed its part: ask over another.
 *
 * Redis waits for the last write of the connection and with it for all before it, whoever made them. So a repeat that
 * finds its jobs kept confirms the first sending as well: the counter `kept` is written behind it.
 */
export async function confirm(line: Caller, asked: Durability): Promise<Confirmation> {
  try {
    return await barrierOf(line).confirm(asked);
  } catch (error) {
    if (!isDelayqError(error)) throw error;
    if (!isPassing(error)) return inDoubt(error);
    // Whatever it is, the write was carried out: nobody must take this for a call that was turned down.
    throw new DelayqError('unknown', error.message, { why: error.why, next: error.next, cause: error });
  }
}

/** The doubt of jobs that are there when what should confirm them ended with `error`. */
export function inDoubt(error: DelayqError, before = ''): Doubt {
  const { message, why = message, next } = error;
  return { doubt: `${before}${why}`, next: isPassing(error) ? undefined : next };
}

/**
 * The doubt of jobs that were all kept when not even their counter in the hash `stats` was written: a wait would be for
 * something older, on a new connection for nothing, and confirm at once.
 */
export function nothingWritten(stats: string): Doubt {
  return {
    doubt:
      'nothing could be written for a kept job, so there is nothing to wait for: either Redis takes no writes now, ' +
      `or the counter kept in ${stats} is spoilt`,
    next: `look at it (HGET ${stats} kept), and if it is not a number remove it (HDEL)`,
  };
}

/** Of each connection its barrier: gone with it. */
const barriers = new WeakMap<Caller, Barrier>();

function barrierOf(line: Caller): Barrier {
  let found = barriers.get(line);
  if (!found) {
    found = new Barrier(line);
    barriers.set(line, found);
  }
  return found;
}

/** Waits for what one connection has written, one wait at a time: all who ask while one is under way share the next. */
class Barrier {
  readonly #line: Caller;
  readonly #able = new Map<string, Promise<void>>();
  readonly #next = new Map<string, Promise<Confirmation>>();
  #last: Promise<unknown> = Promise.resolve();
  #tookMs = 0;

  constructor(line: Caller) {
    this.#line = line;
  }

  /** Asks the server once whether it can confirm such things. */
  able(asked: Durability): Promise<void> {
    const key = JSON.stringify(asked);
    let found = this.#able.get(key);
    if (!found) {
      found = this.#check(asked);
      this.#able.set(key, found);
      found.catch(() => this.#able.delete(key));
    }
    return found;
  }

  /** The next wait that begins, which covers all whose reply came before this call. */
  confirm(asked: Durability): Promise<Confirmation> {
    const key = JSON.stringify(asked);
    let next = this.#next.get(key);
    if (!next) {
      next = this.#last
        // Behind a long wait those it has let go are about to send more. Without them every second batch would miss this
        // wait and take two.
        .then(() => sleep(Math.min(this.#tookMs / 10, GATHER_MS)))
        .then(async () => {
          this.#next.delete(key);
          const started = performance.now();
          const confirmation = await this.#wait(asked);
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
    throw new DelayqError('temporary', 'too few replicas answer', {
      why: `${there} of ${replicas} replicas answered within ${SHOW_UP_MS / 1000} s`,
      // Other jobs may have been sent before, and these as well if this is a repeat.
      next: 'no job is sent before enough of them do: wait until they are back, or ask for fewer',
    });
  }

  // One command behind the other's reply: each has the deadline of a call to itself.
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
      if (!confirmed.disk) return { doubt: `Redis has not confirmed ${within} that it is on its disk` };
    }
    return { confirmed };
  }

  async #ask(command: 'WAIT' | 'WAITAOF', ...args: number[]): Promise<Reply> {
    try {
      return await this.#line.call(command, ...args);
    } catch (error) {
      throw isDelayqError(error) ? explained(error, this.#line.address) : error;
    }
  }
}

/** What a refusal of WAIT or WAITAOF means. */
function explained(error: DelayqError, address: string): DelayqError {
  const said = error.cause instanceof Error ? error.cause.message : '';
  const what = 'this Redis cannot confirm that a job is on its disk';
  if (/unknown command .?WAITAOF/i.test(said)) {
    return new DelayqError('config', what, {
      why: `Redis at ${address} has no WAITAOF, which needs Redis 7.2 or newer, or Valkey`,
      next: 'upgrade it; or leave out --durable, and set appendfsync always, or ask for --replicas instead',
      cause: error,
    });
  }
  if (/appendonly is disabled/.test(said)) {
    return new DelayqError('config', what, {
      why: `Redis at ${address} writes no AOF (appendonly is off)`,
      next: 'turn it on: CONFIG SET appendonly yes, and the same in its configuration file',
      cause: error,
    });
  }
  if (/cannot be used with replica/.test(said)) {
    return new DelayqError('temporary', `Redis at ${address} refused the call`, {
      why: said,
      next: 'this is a replica: connect to the primary',
      cause: error,
    });
  }
  return error;
}

/** The error for jobs that are there, as far as anybody knows, but were not confirmed. */
export function unconfirmed(jobs: readonly Enqueued[], { doubt, next }: Doubt): DelayqError {
  const one = jobs.length === 1;
  return new DelayqError(
    'unknown',
    one
      ? `job ${jobs[0]?.id} is there, but its durability is unknown`
      : `${jobs.length} jobs are there, but their durability is unknown`,
    {
      why: doubt,
      next: `${next ? `${next}; then ` : ''}repeat with ${one ? `--id ${jobs[0]?.id}` : 'the same ids'} until it is confirmed: that makes no second job while the first is there`,
      ids: jobs.map(({ id }) => id),
      stored: true,
    },
  );
}
