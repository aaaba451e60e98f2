import { isDelayqError } from '../model/errors.js';
import { checkName } from '../model/validate.js';
import type { Caller, Connection } from '../redis/connection.js';
import { listQueues, scanForQueues } from '../store/queues.js';

export interface Found {
  /** Queues in the list of queues, and others whose keys were found. */
  readonly queues: string[];
  /** Names in the list or in keys that are not valid names of queues. */
  readonly odd: string[];
  /** Why not all keys could be read, so that queues may be missing; undefined: all were. */
  readonly hidden: string | undefined;
}

/** Finds all queues: in the list of queues, and by a scan of all keys in the database. */
export async function findQueues(redis: Connection, prefix: string, signal?: AbortSignal): Promise<Found> {
  const seen = new Set<string>();
  let hidden: string | undefined;
  const nodes = await redis.nodes();
  // Without permission for one of the two, use the other; without one of several servers, the rest.
  const passable =
    nodes.length > 1 ? (['refused', 'unreachable', 'unknown', 'temporary'] as const) : ['refused' as const];
  const collect = async (names: () => Promise<void>) => {
    try {
      await names();
    } catch (error) {
      if (!isDelayqError(error, ...passable)) throw error;
      hidden = error.why ?? error.what;
    }
  };
  await collect(async () => {
    for (const name of await listQueues(redis, prefix)) seen.add(name);
  });
  const scan = async (node: Caller) => {
    for await (const names of scanForQueues(node, prefix)) {
      for (const name of names) seen.add(name);
      if (signal?.aborted) break;
    }
  };
  await Promise.all(nodes.map((node) => collect(() => scan(node))));
  const all = [...seen].sort();
  return { queues: all.filter(isName), odd: all.filter((name) => !isName(name)), hidden };
}

function isName(name: string): boolean {
  try {
    return checkName(name) === name;
  } catch {
    return false;
  }
}
