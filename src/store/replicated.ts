import { DelayqError, isDelayqError } from '../model/errors.js';
import type { Caller, Connection, Reply } from '../redis/connection.js';

/** How long to wait for replicas, ms: less than the time limit of a call. */
const WAIT_MS = 4_000;

/** The same for a call that others wait for, ms. Then it goes on: a replica that is so far behind would lose more. */
const SHORT_WAIT_MS = 200;

/** How long the number of replicas counts, ms. */
const KNOWN_MS = 1_000;

const known = new WeakMap<Caller, { readonly replicas: number | undefined; readonly at: number }>();

/**
 * Runs `write` on one connection to the owner of `key`, and waits until all replicas of that server have it: otherwise a
 * failover could undo one step of several. With `must`, throws `temporary` if they have it not within 4 s.
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
      // In a failover on purpose, the new primary has what the old one had.
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

/** Returns how many replicas have all that was written; undefined if the server has become a replica itself. */
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
  const found = known.get(caller);
  if (found && performance.now() - found.at < KNOWN_MS) return found.replicas;
  const role = (await caller.call('ROLE').catch((error: unknown) => {
    // Without permission to ask, nobody can wait.
    if (isDelayqError(error, 'refused')) return ['master', 0, []];
    throw error;
  })) as Reply[];
  const replicas = Array.isArray(role[2]) ? role[2].length : undefined;
  known.set(caller, { replicas, at: performance.now() });
  return replicas;
}
