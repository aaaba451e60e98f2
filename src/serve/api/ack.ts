import type { Held } from '../../internal.js';
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
 * which count only if the lease is still held. Returns the outcomes of jobs that were not acked.
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
function givenOf(body: Buffer): (string | Held)[] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(body.toString());
  } catch {
    // Refused below.
  }
  const isText = (value: unknown) => typeof value === 'string' && value !== '';
  const isOne = (one: unknown) => isText(one) || (isText((one as Held)?.id) && isText((one as Held).receipt));
  if (Array.isArray(parsed) && parsed.length > 0 && parsed.length <= MAX_JOBS && parsed.every(isOne)) return parsed;
  throw new Refusal(400, `request body should be an array of 1 to ${MAX_JOBS} ids, or objects with id and receipt`);
}
