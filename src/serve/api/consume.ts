import { type JobsOfQueue, Request, type Wanted } from '../../consume/waitlist.js';
import type { Job } from '../../internal.js';
import { type Exchange, JSON_TYPE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import type { SharedQueue } from '../queues/shared-queue.js';
import { type ApiCall, queueName } from './call.js';
import { jobJson } from './job-json.js';
import { countOf, msOf } from './params.js';

/** The most jobs of a request. */
const MAX_JOBS = 100;

/** The most queues of a request. */
const MAX_QUEUES = 250;

/** The longest wait, ms: longer ones are cut. */
const LONGEST_WAIT_MS = 600_000;

/** What is kept of a request while it waits. */
interface Poll {
  readonly exchange: Exchange;
  readonly ns: string;
  readonly queues: readonly SharedQueue[];
  readonly wanted: Wanted;
  readonly withReceipts: boolean;
}

/** `GET /api/:ns/:queue[,:queue…]`. Not async: 10,000 of them may wait, and would each keep its state. */
export function consume(call: ApiCall): void {
  const { exchange, pool } = call;
  const poll = pollOf(call);
  exchange.dropHead();
  const request = new Request(
    poll.queues.map(({ waitlist }) => waitlist),
    poll.wanted,
    pool.host,
    (taken) => exchange.attempt(() => deliver(poll, taken)),
    (error) => exchange.refuse(error),
  );
  exchange.onEnd(() => request.leave());
  exchange.onShut(() => request.leave());
}

/** Parses the request. Throws a refusal (400). */
function pollOf({ exchange, params, pool }: ApiCall): Poll {
  const { query } = exchange;
  const { ns = '', queue = '' } = params;
  const names = queue.includes(',') ? [...new Set(queue.split(','))].filter((name) => name !== '') : [queue];
  if (names.length === 0 || names.length > MAX_QUEUES) throw new Refusal(400, 'invalid queue name(s)');
  const queues = names.map((name) => pool.shared(queueName(params, name)));
  // A lease of 0 would remove the jobs.
  const leaseMs = Math.max(1, msOf(query, 'ttr', 120_000));
  const timeoutMs = Math.min(msOf(query, 'timeout', 0), LONGEST_WAIT_MS);
  const count = countOf(query, 'count', 1, 1, MAX_JOBS);
  return { exchange, ns, queues, wanted: { count, leaseMs, timeoutMs }, withReceipts: query.get('receipts') === '1' };
}

/** Answers with what a poll got. */
function deliver({ exchange, ns, queues, wanted, withReceipts }: Poll, taken: readonly JobsOfQueue[]): void {
  // Without their payloads: idle connections must not keep those.
  const held = taken.map(({ queue, jobs }) => ({ queue, jobs: jobs.map(({ id, receipt }) => ({ id, receipt })) }));
  let isReleased = false;
  const release = () => {
    if (isReleased) return;
    isReleased = true;
    for (const { queue, jobs } of held) queues[queue]?.release(jobs, wanted.leaseMs);
  };
  if (exchange.isShut) release();
  if (exchange.isShut || taken.length === 0) {
    exchange.answer(404, '{"msg":"no job available"}', JSON_TYPE);
    return;
  }
  exchange.onEnd((delivered) => {
    if (!delivered) release();
  });
  exchange.onReset(release);
  const shown = taken.flatMap(({ queue, jobs, now }) => {
    const where = { ns, queue: (queues[queue] as SharedQueue).queue.name.slice(ns.length + 1), now };
    return jobs.map((job) => deliveryJson(job, where, withReceipts));
  });
  if (wanted.count > 1) exchange.answer(200, `[${shown.join(',')}]`, JSON_TYPE);
  else exchange.answer(200, shown[0], [...JSON_TYPE, 'X-Receipt', taken[0]?.jobs[0]?.receipt ?? '']);
}

function deliveryJson(job: Job, where: { ns: string; queue: string; now: number }, withReceipt: boolean): string {
  const { deliveries, attempt, tries, failures, receipt } = job;
  const left = deliveries === undefined ? tries - failures - 1 : deliveries - attempt;
  const more = withReceipt ? `"msg":"new job","receipt":"${receipt}",` : '"msg":"new job",';
  return jobJson(job, { ...where, left, more });
}
