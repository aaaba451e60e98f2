import { DelayqError, isDelayqError, isPassing, type NewJob, type Queue, RawPayload } from '../../internal.js';
import { type Exchange, JSON_TYPE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { REPEAT_MS } from '../queues/enqueue-all.js';
import { FINISH } from '../queues/shared-queue.js';
import { elementsOf } from './bulk.js';
import { type ApiCall, queueName } from './call.js';
import { countOf, LONGEST_MS, msOf, wordOf } from './params.js';

/** The largest body of one job and of a bulk request, bytes. */
const MAX_JOB = 1024 * 1024;
const MAX_BULK = 8 * MAX_JOB;

/** The most attributes of a job. */
const MAX_ATTRIBUTES = 16;

/** `PUT /api/:ns/:queue` */
export async function publish({ exchange, params, pool }: ApiCall): Promise<void> {
  const queue = pool.shared(queueName(params));
  const job = newJob(exchange);
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
export async function publishBulk({ exchange, params, pool }: ApiCall): Promise<void> {
  const queue = pool.queue(queueName(params));
  const job = newJob(exchange);
  const payloads = elementsOf(await exchange.body(MAX_BULK), MAX_JOB);
  const jobs = payloads.map((payload) => ({ ...job, payload: new RawPayload(payload) }));
  exchange.answer(201, { msg: 'published', job_ids: await enqueueParts(queue, partsOf(jobs)) });
}

/**
 * Enqueues parts of a bulk, a call for each, and returns the ids. In one call, 8 MiB would block Redis for too long.
 * Throws the error of a part if none of the jobs can be there; otherwise `unknown` with the ids of those that are or
 * may be.
 */
async function enqueueParts(queue: Queue, parts: readonly NewJob[][]): Promise<string[]> {
  // At once: each could take the time limit of a call.
  const ended = await Promise.allSettled(parts.map((part) => queue.enqueue(part, { repeatMs: REPEAT_MS })));
  const ids: string[] = [];
  let failure: unknown;
  for (const one of ended) {
    if (one.status === 'fulfilled') ids.push(...one.value.map(({ id }) => id));
    else {
      failure ??= one.reason;
      if (isDelayqError(one.reason)) ids.push(...one.reason.ids);
    }
  }
  if (failure === undefined) return ids;
  if (ids.length === 0 || !isPassing(failure)) throw failure;
  const { why, cause } = failure;
  throw new DelayqError('unknown', 'some jobs of a bulk may be enqueued', { why, cause, ids });
}

/** Jobs in groups of which each is one call: about {@link MAX_JOB} bytes. */
function partsOf<J extends { payload: RawPayload }>(jobs: readonly J[]): J[][] {
  const parts: J[][] = [];
  let bytes = MAX_JOB;
  for (const job of jobs) {
    const { length } = job.payload.bytes;
    if (bytes + length > MAX_JOB) {
      parts.push([]);
      bytes = 0;
    }
    parts.at(-1)?.push(job);
    bytes += length;
  }
  return parts;
}

/** `PUT /api/:ns/:queue/job/:id` */
export async function republish({ exchange, params, pool }: ApiCall): Promise<void> {
  const queue = pool.queue(queueName(params));
  const job = newJob(exchange);
  const payload = new RawPayload(await exchange.body(MAX_JOB));
  const { id } = await queue.swap(params.id as string, { ...job, payload }, FINISH);
  exchange.answer(201, { msg: 'published', job_id: id });
}

/** Reads the parameters and headers of new jobs. Throws a refusal (400). */
function newJob(exchange: Exchange): Omit<NewJob, 'payload'> {
  const { query } = exchange;
  const delay = msOf(query, 'delay', 0);
  const ttl = msOf(query, 'ttl', 86_400_000);
  const deliveries = countOf(query, 'tries', 1, 0, 65_535);
  if (deliveries === 0) throw new Refusal(400, "tries shouldn't be zero");
  if (ttl > 0 && ttl < delay) throw new Refusal(400, 'ttl is shorter than delay');
  // lmstfy's time to live begins at the publish, ours when the job is due.
  return {
    in: delay,
    ttl: ttl === 0 ? LONGEST_MS : Math.max(ttl - delay, 1_000),
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

const ATTRIBUTE = 'job-attr-';
