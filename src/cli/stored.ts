import type { StoredJob } from '../index.js';
import { parse, withPayload } from './sinks/form.js';

/** A job as one line of JSON, its payload byte for byte, `more` before everything else. What is not there is null. */
export function jobJson(queue: string, job: StoredJob, more: object = {}): string {
  const { payload, lease, ...rest } = job;
  const { by, since, ends } = lease ?? {};
  const head = JSON.stringify(
    { ...more, queue, ...rest, leasedBy: by, leasedAt: since, leaseEnds: ends },
    (_, value) => value ?? null,
  );
  if (!payload) return `${head.slice(0, -1)},"payload":null}`;
  return withPayload(head, payload, parse(payload.toString('utf8')) !== undefined).toString('utf8');
}

const REASONS: Record<string, string> = {
  failed: 'failed too often',
  refused: 'refused by its handler',
  lost: 'lost too often',
  orphaned: 'without a payload',
};

/** Why a job is dead, in words. */
export function reasonOf({ reason }: StoredJob): string {
  return reason === undefined ? 'no reason known' : (REASONS[reason] ?? reason);
}
