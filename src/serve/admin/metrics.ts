import { once } from 'node:events';
import { type Measured, metricsText } from '../../internal.js';
import type { Keyring } from '../access/keyring.js';
import { BUCKETS } from '../http/figures.js';
import { type Admin, type AdminCall, poolsOf } from './call.js';

/** The time limit for the queues of all pools, ms. Reports a queue without an answer by then as down. */
const LIMIT_MS = 4_000;

/** How many queues of a pool are asked at once. */
const AT_ONCE = 50;

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
  const measured: Measured[] = [];
  const look = async () => {
    for (const queue of await inspector.queues()) measured.push({ queue, snapshot: undefined, labels: { pool: name } });
    let next = 0;
    const lookAtOthers = async () => {
      for (let i = next++; i < measured.length && !over.aborted; i = next++) {
        const one = measured[i] as Measured;
        measured[i] = { ...one, snapshot: await inspector.inspect(one.queue).catch(() => undefined) };
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, lookAtOthers));
  };
  await Promise.race([look().catch(() => {}), once(over, 'abort')]);
  return measured;
}

type Sample = readonly [labels: Readonly<Record<string, string>>, value: number, suffix?: string];

function ofServer({ rings, refused, figures, memory, listeners, running }: Admin): string {
  const ofRoute = (key: string) => {
    const [method = '', route = '', status = ''] = key.split(' ');
    return { method, route, ...(status && { status }) };
  };
  return [
    family(
      'pool_up',
      'gauge',
      'Whether the Redis of a pool answers (1) or not (0).',
      [...rings].map(([pool, { isUp }]) => [{ pool }, Number(isUp)]),
    ),
    family(
      'requests_total',
      'counter',
      'Requests that have ended; status gone: the client went away before it had its answer.',
      [...figures.requests].map(([key, count]) => [ofRoute(key), count]),
    ),
    family(
      'request_seconds',
      'histogram',
      'How long requests took, with the time for which they waited for jobs.',
      [...figures.durations].flatMap(([key, { counts, sum }]): Sample[] => {
        let count = 0;
        const buckets = counts.map((more, i): Sample => {
          count += more;
          return [{ ...ofRoute(key), le: BUCKETS[i] === undefined ? '+Inf' : String(BUCKETS[i]) }, count, '_bucket'];
        });
        return [...buckets, [ofRoute(key), sum, '_sum'], [ofRoute(key), count, '_count']];
      }),
    ),
    family(
      'refused_requests_total',
      'counter',
      'Requests refused before they were looked at, by reason; reason connections: connections, one for each.',
      [...refused.counts].map(([reason, count]) => [{ reason }, count]),
    ),
    family('running_requests', 'gauge', 'Requests that have not ended.', [[{}, running()]]),
    family('waiting_requests', 'gauge', 'Requests that wait for a job.', [[{}, figures.waiting]]),
    family('released_jobs_total', 'counter', 'Jobs that went back because the client that asked had gone.', [
      [{}, figures.released],
    ]),
    family('body_bytes', 'gauge', 'Bytes of requests and answers in memory.', [[{}, memory.used]]),
    family(
      'connections',
      'gauge',
      'Open connections.',
      [...listeners].map(([name, { connections }]) => [{ listener: name.toLowerCase() }, connections]),
    ),
  ].join('');
}

/** A metric of the server. All values of labels are ours: none needs to be escaped. */
function family(name: string, type: string, help: string, samples: readonly Sample[]): string {
  if (samples.length === 0) return '';
  const full = `delayq_http_${name}`;
  const lines = samples.map(([labels, value, suffix = '']) => {
    const inside = Object.entries(labels).map(([label, text]) => `${label}="${text}"`);
    return `${full}${suffix}${inside.length > 0 ? `{${inside.join(',')}}` : ''} ${value}\n`;
  });
  return `# HELP ${full} ${help}\n# TYPE ${full} ${type}\n${lines.join('')}`;
}
