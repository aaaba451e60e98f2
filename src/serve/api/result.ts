import type { JobResult } from '../../internal.js';
import { GONE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { type ApiCall, queueName } from './call.js';
import { msOf } from './params.js';

/** The longest wait, ms: longer ones are cut. */
const LONGEST_WAIT_MS = 600_000;

/** `GET /api/:ns/:queue/job/:id/result`: how a job has ended, at the latest after `timeout`. */
export async function result({ exchange, params, pool }: ApiCall): Promise<void> {
  const timeout = Math.min(msOf(exchange.query, 'timeout', 0), LONGEST_WAIT_MS);
  const stop = new AbortController();
  exchange.onEnd(() => stop.abort());
  exchange.onShut(() => stop.abort());
  const found = await pool.shared(queueName(params)).result(params.id as string, { timeout, signal: stop.signal });
  if (exchange.isGone) throw GONE;
  if (found.state === 'missing') throw new Refusal(404, 'job not found');
  exchange.answer(200, jsonOf(found));
}

function jsonOf(found: JobResult): object {
  if (found.state === 'done') {
    const { id, done, attempts, tookMs, result = null } = found;
    return { job_id: id, state: 'done', done, attempts, took_ms: tookMs, result };
  }
  if (found.state !== 'dead') return { job_id: found.id, state: found.state };
  const { id, reason = null, error = null, attempts } = found;
  return { job_id: id, state: 'dead', reason, error, attempts };
}
