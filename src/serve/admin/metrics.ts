import { setTimeout as sleep } from 'node:timers/promises';
import { type Measured, metricsText } from '../../index.js';
import type { Keyring } from '../access/guard.js';
import { BUCKETS } from '../http/figures.js';
import { type Admin, type AdminCall, poolsOf } from './call.js';

/** The most time for the queues of all pools, ms. A queue that has not answered by then is told to be down. */
const LIMIT_MS = 4_000;

/** How many queues of a pool are asked at once. */
const AT_ONCE = 50;

/** What is being measured: those who ask meanwhile get the same. */
const measuring = new WeakMap<object, Promise<string>>();

/** `GET /metrics`: of all queues of all pools, and of the server, as Prometheus reads it. */
export async function metrics(call: AdminCall): Promise<void> {
  const of = call.only ?? call.admin;
  let text = measuring.get(of);
  if (!text) {
    text = textOf(call).finally(() => measuring.delete(of));
    measuring.set(of, text);
  }
  call.exchange.answer(200, await text, ['Content-Type', 'text/plain; version=0.0.4; charset=utf-8']);
}

async function textOf(call: AdminCall): Promise<string> {
  const { admin } = call;
  const over = sleep(LIMIT_MS, undefined, { ref: false });
  const texts = poolsOf(call).map(async (ring) => {
    const queues = await queuesOf(ring, over);
    return metricsText(queues, { version: admin.version, labels: { pool: ring.pool.name } });
  });
  return merged(await Promise.all(texts)) + ofServer(admin);
}

/** Looks at the queues of a pool until the time is over. */
async function queuesOf({ pool: { inspector } }: Keyring, over: Promise<void>): Promise<Measured[]> {
  let isOver = false;
  const ended = over.then(() => {
    isOver = true;
    return undefined;
  });
  const names = (await Promise.race([inspector.queues().catch(() => undefined), ended])) ?? [];
  const measured: Measured[] = names.map((queue) => ({ queue, snapshot: undefined }));
  let next = 0;
  const lookAtOthers = async () => {
    for (let i = next++; i < measured.length && !isOver; i = next++) {
      const { queue } = measured[i] as Measured;
      const snapshot = await Promise.race([inspector.inspect(queue).catch(() => undefined), ended]);
      measured[i] = { queue, snapshot };
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, lookAtOthers));
  return measured;
}

/** Joins texts that have the same metrics: all lines of a metric must stand together. */
function merged(texts: readonly string[]): string {
  const families = new Map<string, string[]>();
  for (const text of texts) {
    for (const family of text.split(/^(?=# HELP )/m)) {
      const [, head = '', lines = ''] = /^(# HELP .*\n# TYPE .*\n)([\s\S]*)$/.exec(family) ?? [];
      families.set(head, [...(families.get(head) ?? []), lines]);
    }
  }
  return [...families].map(([head, lines]) => head + lines.join('')).join('');
}

type Sample = readonly [labels: Readonly<Record<string, string>>, value: number, suffix?: string];

function ofServer({ guard, watch, refused, figures, memory, listeners, running }: Admin): string {
  const ofRoute = (key: string) => {
    const [method = '', route = '', status = ''] = key.split(' ');
    return { method, route, ...(status && { status }) };
  };
  return [
    family(
      'pool_up',
      'gauge',
      'Whether the Redis of a pool answers (1) or not (0).',
      [...guard.rings.values()].map((ring) => [{ pool: ring.pool.name }, Number(watch.isUp(ring))]),
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
      'Requests refused before they were looked at, by reason.',
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
