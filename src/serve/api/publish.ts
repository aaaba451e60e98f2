import {
  DelayqError,
  isDelayqError,
  isPassing,
  LONGEST_MS,
  type NewJob,
  type Queue,
  RawPayload,
} from '../../internal.js';
import { type Exchange, JSON_TYPE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { REPEAT_MS } from '../queues/enqueue-all.js';
import { FINISH } from '../queues/shared-queue.js';
import { elementsOf } from './bulk.js';
import { type ApiCall, queueName } from './call.js';
import { countOf, msOf, ttlOf, wordOf } from './params.js';

/** The largest body of one job and of a bulk request, bytes. */
const MAX_JOB = 1024 * 1024;
const MAX_BULK = 8 * MAX_JOB;

/** The most attributes of a job, and how the names of their headers begin. */
const MAX_ATTRIBUTES = 16;
const ATTRIBUTE = 'job-attr-';

/** `PUT /api/:ns/:queue` */
export async function publish(call: ApiCall): Promise<void> {
  const { exchange, params, pool } = call;
  const queue = pool.shared(queueName(params));
  const job = newJob(call);
  const id = exchange.query.get('id');
  const payload = new RawPayload(await exchange.body(MAX_JOB));
  if (id === null) {
    const { id } = await queue.publish({ ...job, payload });
    return exchange.answer(201, `{"msg":"published","job_id":"${id}"}`, JSON_TYPE);
  }
  const ifExists = wordOf(exchange.query, 'if_exists', ['keep', 'replace']);
  const own = { ...job, payload, id, created: Date.now() };
  const { outcome } = await (ifExists === 'replace'
    ? queue.queue.enqueue(own, { ifExists, repeatMs: REPEAT_MS })
    : queue.publish(own));
  const isKept = outcome.startsWith('kept');
  exchange.answer(isKept ? 200 : 201, { msg: isKept ? 'kept' : 'published', job_id: id, outcome });
}

/** `PUT /api/:ns/:queue/bulk` */
export async function publishBulk(call: ApiCall): Promise<void> {
  const { exchange, params, pool } = call;
  const queue = pool.queue(queueName(params));
  const job = newJob(call);
  const payloads = elementsOf(await exchange.body(MAX_BULK), MAX_JOB);
  const ids = await enqueueBulk(
    queue,
    payloads.map((payload) => ({ ...job, payload: new RawPayload(payload) })),
  );
  exchange.answer(201, { msg: 'published', job_ids: ids });
}

/**
 * Enqueues the jobs of a bulk, in calls of about 1 MiB each: one of 8 MiB would block Redis for too long. Returns their
 * ids. Throws the error of a call if none of the jobs can be there; otherwise `unknown` with the ids of those that are
 * or may be.
 */
async function enqueueBulk(queue: Queue, jobs: readonly NewJob[]): Promise<string[]> {
  async function* all() {
    yield jobs;
  }
  const ids: string[] = [];
  let failure: unknown;
  for await (const result of queue.enqueueBatches(all(), { repeatMs: REPEAT_MS })) {
    if ('enqueued' in result) ids.push(...result.enqueued.map(({ id }) => id));
    else {
      failure ??= result.error;
      if (isDelayqError(result.error)) ids.push(...result.error.ids);
    }
  }
  if (failure === undefined) return ids;
  if (ids.length === 0 || !isPassing(failure)) throw failure;
  const { why, cause } = failure;
  throw new DelayqError('unknown', 'some jobs of a bulk may be enqueued', { why, cause, ids });
}

/** `PUT /api/:ns/:queue/job/:id` */
export async function republish(call: ApiCall): Promise<void> {
  const { exchange, params, pool } = call;
  const queue = pool.queue(queueName(params));
  const job = newJob(call);
  const payload = new RawPayload(await exchange.body(MAX_JOB));
  const { id } = await queue.swap(params.id as string, { ...job, payload }, FINISH);
  exchange.answer(201, { msg: 'published', job_id: id });
}

/** Reads the parameters and headers of new jobs. Throws a refusal (400). */
function newJob({ exchange, defaults }: ApiCall): Omit<NewJob, 'payload'> {
  const { query } = exchange;
  const delay = msOf(query, 'delay', 0);
  const ttl = ttlOf(query, defaults);
  const deliveries = countOf(query, 'tries', defaults.tries, 0, 65_535);
  if (deliveries === 0) throw new Refusal(400, "tries shouldn't be zero");
  if (ttl < delay) {
    const given = query.has('ttl') ? '' : `: without ttl= it is ${defaults.ttl / 1000} s`;
    throw new Refusal(400, `ttl is shorter than delay${given}`);
  }
  // lmstfy's time to live begins at the publish, ours when the job is due.
  return {
    in: delay,
    ttl: ttl === LONGEST_MS ? ttl : Math.max(ttl - delay, 1_000),
    deliveries,
    attributes: attributesOf(exchange),
  };
}

/** The attributes in headers, if the client says that it sends some. */
function attributesOf({ request }: Exchange): Record<string, string> | undefined {
  if (!/^yes$/i.test(String(request.headers['enable-job-version'] ?? ''))) return undefined;
  const found = Object.entries(request.headersDistinct).filter(([name]) => name.startsWith(ATTRIBUTE));
  if (found.length > MAX_ATTRIBUTES) throw new Refusal(400, `too many attributes, cannot exceed ${MAX_ATTRIBUTES}`);
  // Node reads headers as Latin-1; clients send UTF-8.
  const text = ([value = '']: readonly string[] = []) => Buffer.from(value, 'latin1').toString();
  return Object.fromEntries(found.map(([name, values]) => [name.slice(ATTRIBUTE.length), text(values)]));
}
