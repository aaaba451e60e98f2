import { isPassing } from '../model/errors.js';
import type { Connection } from '../redis/connection.js';
import { bytesAt, jobsAt, slotOf } from '../store/sizes.js';
import { Store } from '../store/store.js';
import { refusedOr } from './permissions.js';

/** Memory of a job with a small payload, bytes, if there are no jobs to measure. */
const JOB_BYTES = 300;

/** The most queues whose memory is measured, and the fewest jobs for a useful result. */
const MEASURED = 20;
const ENOUGH_JOBS = 100;

/** How many queues are counted at once. */
const AT_ONCE = 250;

/** What a queue holds, or a partition of one. */
export interface Load {
  readonly queue: string;
  /** Which partition; undefined: the queue has none. */
  readonly partition?: number | undefined;
  readonly slot: number;
  readonly jobs: number;
  readonly bytes: number;
}

/** Measures queues and partitions, and returns the largest first: their jobs, and the memory of a job. */
export async function measure(
  redis: Connection,
  prefix: string,
  queues: readonly string[],
): Promise<{ loads: Load[]; jobBytes: number }> {
  const none = (error: unknown) => {
    // A node of a cluster may be down.
    if (redis.sharded && isPassing(error)) return 0;
    return refusedOr(0)(error);
  };
  const count = async (store: Store, i: number) => ({ store, i, jobs: await jobsAt(store, i).catch(none) });
  const counted: Awaited<ReturnType<typeof count>>[] = [];
  for (let i = 0; i < queues.length; i += AT_ONCE) {
    const some = queues.slice(i, i + AT_ONCE).map(async (queue) => {
      const store = Store.of(redis, prefix, queue);
      const [first] = await Promise.all([count(store, 0), store.look().catch(none)]);
      const others = Array.from({ length: store.count - 1 }, (_, n) => count(store, n + 1));
      return [first, ...(await Promise.all(others))];
    });
    counted.push(...(await Promise.all(some)).flat());
  }
  counted.sort((a, b) => b.jobs - a.jobs);
  const measured: { jobs: number; bytes: number }[] = [];
  for (const { store, i, jobs } of counted.slice(0, MEASURED)) {
    measured.push({ jobs, bytes: await bytesAt(store, i).catch(none) });
  }
  const all = measured.reduce((sum, { jobs, bytes }) => ({ jobs: sum.jobs + jobs, bytes: sum.bytes + bytes }), {
    jobs: 0,
    bytes: 0,
  });
  const jobBytes = all.jobs >= ENOUGH_JOBS ? Math.max(1, Math.round(all.bytes / all.jobs)) : JOB_BYTES;
  const loads = counted.map(({ store, i, jobs }, n) => ({
    queue: store.queue,
    partition: store.count === 1 ? undefined : i,
    jobs,
    slot: slotOf(store, i),
    bytes: measured[n]?.bytes ?? jobs * jobBytes,
  }));
  return { loads, jobBytes };
}
