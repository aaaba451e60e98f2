import {
  type Answer,
  DEFAULT_SETTINGS,
  type Held,
  type Nacked,
  type Settings,
  Spread,
  type StoredJob,
} from '../../internal.js';
import { type Exchange, GONE, JSON_TYPE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { REPEAT_MS } from '../queues/enqueue-all.js';
import { type ApiCall, queueName, receiptOf } from './call.js';
import { jobJson } from './job-json.js';
import { msOf, wordOf } from './params.js';

/** How many expired jobs a peek passes over at most, and how many bytes of their payloads it reads for that. */
export const MAX_PASSED = { jobs: 200_000, bytes: 128 * 1024 * 1024 };

/** The time for which a renewed lease is held, ms. */
const TTR_MS = 120_000;

/** Returns a job as JSON; undefined if there is none, or it has expired: if it is still there, nothing delivers it. */
type Show = (job: StoredJob | undefined) => Promise<string | undefined>;

/** Takes back expired leases. Returns the time of Redis's clock, ms, and how to show the jobs of the queue then. */
async function viewOf({ pool, params: { ns = '', queue = '' } }: ApiCall, name: string) {
  const now = await pool.shared(name).takeBack();
  let read: Promise<Partial<Settings>> | undefined;
  /** Only jobs that others have enqueued need them: read once, if at all. */
  const settings = () => {
    read ??= pool.inspector.settings(name);
    return read;
  };
  const expiryOf = async ({ state, expires, ttl, due }: StoredJob) => {
    if (state === 'dead' || due === undefined || ttl !== undefined) return expires;
    const own = (await settings()).ttl;
    return own === undefined ? undefined : due + own;
  };
  const show: Show = async (job) => {
    if (!job) return undefined;
    const expires = await expiryOf(job);
    if (expires !== undefined && expires < now) return undefined;
    const allowed = job.deliveries ?? job.tries ?? (await settings()).tries ?? DEFAULT_SETTINGS.tries;
    const left = job.state === 'dead' ? 0 : allowed - job.attempts;
    return jobJson({ ...job, expires }, { ns, queue, now, left });
  };
  return { now, show };
}

/** `GET /api/:ns/:queue/job/:id` */
export async function job(call: ApiCall): Promise<void> {
  call.exchange.answer(200, await existing(call), JSON_TYPE);
}

/** The job of the request, as JSON. Throws a refusal (404) if there is none, or it has expired. */
async function existing(call: ApiCall): Promise<string> {
  const name = queueName(call.params);
  const { show } = await viewOf(call, name);
  const json = await show(await stored(call, name));
  if (json === undefined) throw NO_JOB;
  return json;
}

/** The job of the request, as it is stored. */
async function stored(call: ApiCall, name: string): Promise<StoredJob | undefined> {
  const { inspector } = call.pool;
  const [found] = await call.pool.shared(name).reads.take(() => inspector.show(name, [idOf(call)]));
  return found;
}

/** `GET /api/:ns/:queue/peek`: the job that is delivered next. */
export async function peek(call: ApiCall, limits = MAX_PASSED): Promise<void> {
  const { exchange, pool, params } = call;
  const name = queueName(params);
  const { now, show } = await viewOf(call, name);
  const json = await pool.shared(name).reads.take(() => firstIn(call, name, now, show, limits));
  if (json === undefined) throw new Refusal(404, 'the queue is empty');
  exchange.answer(200, json, JSON_TYPE);
}

/** The job that is due first, as JSON. Throws GONE if the client goes away. */
async function firstIn(
  { exchange, pool: { inspector } }: ApiCall,
  name: string,
  now: number,
  show: Show,
  limits: typeof MAX_PASSED,
): Promise<string | undefined> {
  let passed = 0;
  let bytes = 0;
  if (exchange.isGone) throw GONE;
  for await (const ids of inspector.ids(name, { states: ['pending'], to: now })) {
    // Read one first: nearly always it is the right one, and other payloads would be read in vain.
    const first = passed === 0 ? 1 : 0;
    for (const some of [ids.slice(0, first), ids.slice(first)]) {
      for await (const jobs of inspector.shown(name, some)) {
        for (const job of jobs) {
          // The job may have been taken or rescheduled since its id was read.
          const isDue = job?.state === 'pending' && job.due !== undefined && job.due <= now;
          const json = isDue ? await show(job) : undefined;
          if (json !== undefined) return json;
          passed++;
          bytes += job?.payload?.length ?? 0;
        }
        if (exchange.isGone) throw GONE;
        if (passed > limits.jobs || bytes > limits.bytes)
          throw new Refusal(503, 'too many expired jobs are first: consume drops them');
      }
    }
  }
  return undefined;
}

/** `GET /api/:ns/:queue/size`: how many jobs are due. */
export async function size({ exchange, params, pool }: ApiCall): Promise<void> {
  const name = queueName(params);
  const now = await pool.shared(name).takeBack();
  const size = await pool.inspector.count(name, { states: ['pending'], to: now });
  exchange.answer(200, { namespace: params.ns, queue: params.queue, size });
}

/** `DELETE /api/:ns/:queue`: removes all jobs that are due. Stops if the client goes away. */
export async function empty({ exchange, params, pool }: ApiCall): Promise<void> {
  const name = queueName(params);
  await pool.shared(name).takeBack();
  for await (const _ of pool.operator.purge(name, ['pending'], { due: true })) if (exchange.isGone) return;
  exchange.answer(204);
}

/** `POST /api/:ns/:queue/job/:id/nack`: gives a job back, or buries it, with `mode=dead`. */
export async function nack(call: ApiCall): Promise<void> {
  const { exchange, pool, params } = call;
  const { query } = exchange;
  const name = queueName(params);
  const held = heldOf(call);
  const delay = query.has('delay') ? msOf(query, 'delay', 0) : undefined;
  const mode = wordOf(query, 'mode', ['retry', 'dead', 'release']);
  const given = { ...held, delayMs: delay, error: query.get('error') ?? undefined };
  const [{ answer, delayMs }] = (await pool.queue(name).nack([given], { mode, repeatMs: REPEAT_MS })) as [Nacked];
  if (answer === 'lost' || answer === 'superseded') throw await notHeld(call, name, answer);
  exchange.answer(200, { job_id: held.id, state: answer, delay_ms: delayMs });
}

/** `POST /api/:ns/:queue/job/:id/renew`: holds a job for `ttr` from now on. */
export async function renew(call: ApiCall): Promise<void> {
  const { exchange, pool, params } = call;
  const name = queueName(params);
  const held = heldOf(call);
  const ttr = Math.max(1, msOf(exchange.query, 'ttr', TTR_MS));
  const [answer] = (await pool.queue(name).renew([held], ttr)) as [Answer];
  if (answer !== 'held') throw await notHeld(call, name, answer);
  exchange.answer(200, { job_id: held.id, state: 'active', ttr_ms: ttr });
}

/** `POST /api/:ns/:queue/job/:id/cancel`: removes a job in any state. A consumer that holds it loses its lease. */
export async function cancel(call: ApiCall): Promise<void> {
  const { exchange, pool, params } = call;
  await existing(call);
  const [was] = await pool.operator.cancel(queueName(params), [idOf(call)]);
  if (was !== 'pending' && was !== 'active' && was !== 'dead') throw NO_JOB;
  exchange.answer(200, { job_id: idOf(call), state: 'cancelled', was });
}

/** `POST /api/:ns/:queue/job/:id/reschedule`: makes a job due after `delay`, or `at` a time. */
export async function reschedule(call: ApiCall): Promise<void> {
  const { exchange, pool, params } = call;
  const name = queueName(params);
  const spread = spreadOf(exchange);
  await existing(call);
  const [done] = await pool.operator.reschedule(name, [idOf(call)], spread);
  if (done === 'missing') throw NO_JOB;
  if (done !== 'rescheduled') throw new Refusal(409, `job is ${done}`);
  exchange.answer(200, { job_id: idOf(call), state: 'pending', due: Number(spread.next) });
}

const NO_JOB = new Refusal(404, 'job not found');

const idOf = ({ params }: ApiCall) => params.id as string;

/** The job and the receipt of a request. Throws a refusal (400) without a receipt. */
function heldOf(call: ApiCall): Held {
  const receipt = receiptOf(call.exchange);
  if (!receipt) throw new Refusal(400, 'receipt is missing');
  return { id: idOf(call), receipt };
}

/** The refusal of a request whose lease is not held: 404 if there is no such job either. */
async function notHeld(call: ApiCall, name: string, lease: 'lost' | 'superseded'): Promise<Refusal> {
  return (await stored(call, name)) ? new Refusal(409, { error: 'the lease is no longer held', lease }) : NO_JOB;
}

/** When a job is to be due. `at`: ms since 1970, or a time with its zone as in RFC 3339. Throws a refusal (400). */
function spreadOf({ query }: Exchange): Spread {
  const at = query.get('at');
  if ((at === null) === !query.has('delay')) throw new Refusal(400, 'either delay or at is needed');
  if (at === null) return new Spread({ in: msOf(query, 'delay', 0), stepMs: 0 });
  const isText = /^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d)$/.test(at);
  const ms = isText ? Date.parse(at) : /^\d{11,16}$/.test(at) ? Number(at) : Number.NaN;
  // As a query, a plus that is not escaped is a space.
  if (!(Math.abs(ms) <= 8.64e15)) throw new Refusal(400, 'invalid at');
  return new Spread({ at: ms, stepMs: 0 });
}
