import { isPassing } from '../model/errors.js';
import type { Connection } from '../redis/connection.js';
import { slotOfKey } from '../redis/slots.js';
import type { QueueKeys } from '../store/keys.js';
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
  const size = async (keys: QueueKeys, queue: string, partition?: number) => {
    const jobs = Number(await redis.call('HLEN', keys.payload).catch(none));
    return { keys, queue, partition, jobs };
  };
  const counted: Awaited<ReturnType<typeof size>>[] = [];
  for (let i = 0; i < queues.length; i += AT_ONCE) {
    const some = queues.slice(i, i + AT_ONCE).map(async (queue) => {
      const store = Store.of(redis, prefix, queue);
      const [first] = await Promise.all([size(store.keys(), queue), store.look().catch(none)]);
      if (store.count === 1) return [first];
      return Promise.all(store.map.tags.map((_, n) => size(store.keys(n), queue, n)));
    });
    counted.push(...(await Promise.all(some)).flat());
  }
  counted.sort((a, b) => b.jobs - a.jobs);
  const measured: { jobs: number; bytes: number }[] = [];
  for (const { keys, jobs } of counted.slice(0, MEASURED)) {
    const { pending, payload, meta } = keys;
    const sizes = [pending, payload, meta].map((key) => redis.call('MEMORY', 'USAGE', key).catch(none));
    const bytes = (await Promise.all(sizes)).reduce<number>((sum, size) => sum + Number(size ?? 0), 0);
    measured.push({ jobs, bytes });
  }
  const all = measured.reduce((sum, { jobs, bytes }) => ({ jobs: sum.jobs + jobs, bytes: sum.bytes + bytes }), {
    jobs: 0,
    bytes: 0,
  });
  const jobBytes = all.jobs >= ENOUGH_JOBS ? Math.max(1, Math.round(all.bytes / all.jobs)) : JOB_BYTES;
  const loads = counted.map(({ keys, queue, partition, jobs }, i) => ({
    ...{ queue, partition, jobs, slot: slotOfKey(keys.payload) },
    bytes: measured[i]?.bytes ?? jobs * jobBytes,
  }));
  return { loads, jobBytes };
}
