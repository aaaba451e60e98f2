import { isPassing } from '../model/errors.js';
import type { Connection } from '../redis/connection.js';
import { queueKeys } from '../redis/keys.js';
import { slotOfKey } from '../redis/slots.js';
import { refusedOr } from './permissions.js';

/** Memory of a job with a small payload, bytes, if there are no jobs to measure. */
const JOB_BYTES = 300;

/** The most queues whose memory is measured, and the fewest jobs for a useful result. */
const MEASURED = 20;
const ENOUGH_JOBS = 100;

/** How many queues are counted at once. */
const AT_ONCE = 250;

/** What a queue holds. */
export interface Load {
  readonly queue: string;
  readonly slot: number;
  readonly jobs: number;
  readonly bytes: number;
}

/** Measures queues, and returns the largest first: their jobs, and the memory of a job. */
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
  const counted: { queue: string; jobs: number }[] = [];
  for (let i = 0; i < queues.length; i += AT_ONCE) {
    const some = queues.slice(i, i + AT_ONCE).map(async (queue) => {
      const jobs = await redis.call('HLEN', queueKeys(prefix, queue).payload).catch(none);
      return { queue, jobs: Number(jobs) };
    });
    counted.push(...(await Promise.all(some)));
  }
  counted.sort((a, b) => b.jobs - a.jobs);
  const measured: { jobs: number; bytes: number }[] = [];
  for (const { queue, jobs } of counted.slice(0, MEASURED)) {
    const { pending, payload, meta } = queueKeys(prefix, queue);
    const sizes = [pending, payload, meta].map((key) => redis.call('MEMORY', 'USAGE', key).catch(none));
    const bytes = (await Promise.all(sizes)).reduce<number>((sum, size) => sum + Number(size ?? 0), 0);
    measured.push({ jobs, bytes });
  }
  const all = measured.reduce((sum, { jobs, bytes }) => ({ jobs: sum.jobs + jobs, bytes: sum.bytes + bytes }), {
    jobs: 0,
    bytes: 0,
  });
  const jobBytes = all.jobs >= ENOUGH_JOBS ? Math.max(1, Math.round(all.bytes / all.jobs)) : JOB_BYTES;
  const loads = counted.map(({ queue, jobs }, i) => ({
    ...{ queue, jobs, slot: slotOfKey(queueKeys(prefix, queue).payload) },
    bytes: measured[i]?.bytes ?? jobs * jobBytes,
  }));
  return { loads, jobBytes };
}
