import type { Finishing } from '../../internal.js';
import { Refusal } from '../http/refusal.js';
import { REPEAT_MS } from '../queues/enqueue-all.js';
import { FINISH } from '../queues/shared-queue.js';
import { type ApiCall, queueName, receiptOf } from './call.js';

/** The most jobs of a request for many, and the most bytes of its body. */
const MAX_JOBS = 250;
const MAX_BYTES = 1024 * 1024;

/** `DELETE /api/:ns/:queue/job/:id`: the job is done. With a receipt, only if its lease is still held. */
export async function ack({ exchange, params, pool }: ApiCall): Promise<void> {
  const queue = pool.shared(queueName(params));
  const id = params.id as string;
  const receipt = receiptOf(exchange);
  if (receipt === null) await queue.finish(id);
  else {
    const answer = await queue.ack({ id, receipt });
    if (answer !== 'held') throw new Refusal(409, { error: 'the lease is no longer held', lease: answer });
  }
  exchange.answer(204);
}

/**
 * `POST /api/:ns/:queue/ack`: jobs are done. The body is a JSON array of ids, or of objects with an id and a receipt,
 * which count only if the lease is still held, and perhaps a result. Returns the outcomes of jobs that were not acked.
 */
export async function ackMany({ exchange, params, pool }: ApiCall): Promise<void> {
  const { queue } = pool.shared(queueName(params));
  const given = givenOf(await exchange.body(MAX_BYTES));
  const plain = given.filter((one) => typeof one === 'string');
  const held = given.filter((one) => typeof one !== 'string');
  const [finished, answers] = await Promise.all([
    plain.length > 0 ? queue.finish(plain, FINISH) : [],
    held.length > 0 ? queue.ack(held, { repeatMs: REPEAT_MS }) : [],
  ]);
  const others = [
    ...plain.map((id, i) => ({ job_id: id, state: finished[i] })),
    ...held.map(({ id }, i) => ({ job_id: id, state: answers[i] })),
  ].filter(({ state }) => state !== 'acked' && state !== 'held');
  exchange.answer(200, { acked: given.length - others.length, not_acked: others });
}

/** The ids of a body, some with receipts. Throws a refusal (400) if one is neither: then nothing is acked. */
function givenOf(body: Buffer): (string | Finishing)[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    // Refused below.
  }
  const given = Array.isArray(parsed) && parsed.length <= MAX_JOBS ? parsed.map(oneOf) : [];
  if (given.length > 0 && !given.includes(undefined)) return given as (string | Finishing)[];
  const what = `an array of 1 to ${MAX_JOBS} ids, or objects with id and receipt, and perhaps result, all strings`;
  throw new Refusal(400, `request body should be ${what}`);
}

/** An id, or what is known of a job that is done, and nothing else that the client sent; undefined: it is neither. */
function oneOf(one: unknown): string | Finishing | undefined {
  const isText = (value: unknown): value is string => typeof value === 'string' && value !== '';
  if (isText(one)) return one;
  const { id, receipt, result } = (one ?? {}) as Record<string, unknown>;
  if (!isText(id) || !isText(receipt)) return undefined;
  if (result === undefined) return { id, receipt };
  return typeof result === 'string' ? { id, receipt, result } : undefined;
}
