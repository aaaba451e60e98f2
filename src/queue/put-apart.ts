import { type DelayqError, isDelayqError, unknownOutcome } from '../model/errors.js';
import type { Enqueued, ReadyJob } from '../model/job.js';
import { byId } from '../partitions/by-id.js';
import type { Partitions } from '../partitions/partitions.js';
import type { QueueKeys } from '../redis/keys.js';
import { MAX_CALL } from '../redis/script.js';
import { replaceActive } from '../scripts/jobs.js';

/**
 * Enqueues jobs into the partitions of their ids: `put` those of one. Throws its error if all failed with one. If some
 * jobs were stored and others not, throws `unknown` with the ids of the others: a repeat with the same ids is safe.
 */
export async function putApart(
  parts: Partitions,
  jobs: readonly ReadyJob[],
  ifExists: 'keep' | 'replace',
  put: (keys: QueueKeys, some: readonly ReadyJob[]) => Promise<Enqueued[]>,
): Promise<Enqueued[]> {
  const stored = new Set<ReadyJob>();
  try {
    return await byId<ReadyJob, Enqueued>(parts, jobs, {
      idOf: ({ id }) => id,
      act: async (keys, all) => {
        const some = all.slice(0, MAX_CALL);
        const results = await put(keys, some);
        for (const job of some) stored.add(job);
        return results;
      },
      isNew: ({ ours }) => ours,
      ...(ifExists === 'keep'
        ? { ifActive: (job) => resultOf(job, 'kept', Date.now()) }
        : {
            onActive: async (keys, all) => {
              const some = all.slice(0, MAX_CALL);
              const { now, outcomes } = await replaceActive(parts.redis, keys, some);
              return outcomes.map((outcome, i) => outcome && resultOf(some[i] as ReadyJob, outcome, now));
            },
          }),
    });
  } catch (error) {
    if (stored.size === 0 || !isDelayqError(error)) throw error;
    throw partly(
      jobs.filter((job) => !stored.has(job)),
      error,
    );
  }
}

function resultOf(job: ReadyJob, outcome: Enqueued['outcome'], now: number): Enqueued {
  return { id: job.id, outcome, due: job.at ?? now + job.in };
}

function partly(rest: readonly ReadyJob[], { why, message }: DelayqError): DelayqError {
  const ids = rest.map(({ id }) => id);
  return unknownOutcome(
    ids,
    `other jobs of the same call are in other partitions, and were enqueued: ${why ?? message}`,
  );
}
