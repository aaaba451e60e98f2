import type { JobResult } from '../../internal.js';
import { type Exchange, GONE } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import { type ApiCall, queueName } from './call.js';
import { msOf } from './params.js';

/** The longest wait, ms: longer ones are cut. */
const LONGEST_WAIT_MS = 600_000;

/** `GET /api/:ns/:queue/job/:id/result`: how a job has ended, at the latest after `timeout`. */
export async function result({ exchange, params, pool }: ApiCall): Promise<void> {
  const timeoutMs = Math.min(msOf(exchange.query, 'timeout', 0), LONGEST_WAIT_MS);
  const { watchlist } = pool.shared(queueName(params));
  const watch = watchlist.watch(params.id as string);
  const found = await watchlist.look(watch);
  if (exchange.isGone) throw GONE;
  // A client that has shut its side may have gone: it gets its answer, but no wait.
  if (found || timeoutMs === 0 || exchange.isShut) answer(exchange, found ?? watch.last);
  else {
    exchange.dropHead();
    const wait = watchlist.join(watch, timeoutMs, {
      tell: (one) => exchange.attempt(() => answer(exchange, one)),
      fail: (error) => exchange.refuse(error),
    });
    exchange.onEnd(wait.leave);
    exchange.onShut(wait.end);
  }
}

function answer(exchange: Exchange, found: JobResult): void {
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
