import { once } from 'node:events';
import { eachQueue, family, type Measured, metricsText, type Samples, type Snapshot } from '../../internal.js';
import type { Keyring } from '../access/keyring.js';
import { BUCKETS } from '../http/figures.js';
import { type Admin, type AdminCall, poolsOf } from './call.js';

/** The time limit for the queues of all pools, ms. Reports a queue without an answer by then as down. */
const LIMIT_MS = 4_000;

/** Measurements in progress, shared by requests that come meanwhile. */
const measuring = new WeakMap<object, Promise<string>>();

/** `GET /metrics`: of all queues of all pools, or of one, and of the server, as Prometheus reads it. */
export async function metrics(call: AdminCall): Promise<void> {
  const pools = poolsOf(call);
  const of = pools.length === 1 ? (pools[0] as object) : call.admin;
  let text = measuring.get(of);
  if (!text) {
    text = textOf(call.admin, pools).finally(() => measuring.delete(of));
    measuring.set(of, text);
  }
  call.exchange.answer(200, await text, ['Content-Type', 'text/plain; version=0.0.4; charset=utf-8']);
}

async function textOf(admin: Admin, pools: readonly Keyring[]): Promise<string> {
  const over = new AbortController();
  const cancel = admin.clock.after(LIMIT_MS, () => over.abort(), { ref: false });
  const measured = await Promise.all(pools.map((ring) => queuesOf(ring, over.signal)));
  cancel();
  return metricsText(measured.flat(), { version: admin.version }) + ofServer(admin);
}

/** Looks at the queues of a pool until the time is over. */
async function queuesOf({ pool: { name, inspector } }: Keyring, over: AbortSignal): Promise<Measured[]> {
  const found = new Map<string, Snapshot | undefined>();
  const look = async () => {
    const queues = await inspector.queues();
    for (const queue of queues) found.set(queue, undefined);
    await eachQueue(queues, async (queue) => found.set(queue, await inspector.inspect(queue)));
  };
  await Promise.race([look().catch(() => {}), once(over, 'abort')]);
  return [...found].map(([queue, snapshot]) => ({ queue, snapshot, labels: { pool: name } }));
}

function ofServer({ rings, refused, figures, memory, listeners, running }: Admin): string {
  const ofRoute = (key: string) => {
    const [method = '', route = '', status = ''] = key.split(' ');
    return { method, route, ...(status && { status }) };
  };
  return [
    family(
      'delayq_http_pool_up',
      'gauge',
      'Whether the Redis of a pool answers (1) or not (0).',
      [...rings].map(([pool, { isUp }]) => [{ pool }, Number(isUp)]),
    ),
    family(
      'delayq_http_requests_total',
      'counter',
      'Requests that have ended; status gone: the client went away before it had its answer.',
      [...figures.requests].map(([key, count]) => [ofRoute(key), count]),
    ),
    family(
      'delayq_http_request_seconds',
      'histogram',
      'How long requests took, with the time for which they waited for jobs.',
      [...figures.durations].flatMap(([key, { counts, sum }]): Samples => {
        let count = 0;
        const buckets = counts.map((more, i): Samples[number] => {
          count += more;
          return [{ ...ofRoute(key), le: BUCKETS[i] === undefined ? '+Inf' : String(BUCKETS[i]) }, count, '_bucket'];
        });
        return [...buckets, [ofRoute(key), sum, '_sum'], [ofRoute(key), count, '_count']];
      }),
    ),
    family(
      'delayq_http_refused_requests_total',
      'counter',
      'Requests refused before they were looked at, by reason; reason connections: connections, one for each.',
      [...refused.counts].map(([reason, count]) => [{ reason }, count]),
    ),
    family('delayq_http_running_requests', 'gauge', 'Requests that have not ended.', [[{}, running()]]),
    family('delayq_http_waiting_requests', 'gauge', 'Requests that wait for a job or for its end.', [
      [{}, figures.waiting],
    ]),
    family(
      'delayq_http_released_jobs_total',
      'counter',
      'Jobs that went back because the client that asked had gone.',
      [[{}, figures.released]],
    ),
    family('delayq_http_body_bytes', 'gauge', 'Bytes of requests and answers in memory.', [[{}, memory.used]]),
    family(
      'delayq_http_connections',
      'gauge',
      'Open connections.',
      [...listeners].map(([name, { connections }]) => [{ listener: name.toLowerCase() }, connections]),
    ),
  ].join('');
}
