import { consumersOf, lag, limitsOf, pausedUntil, stoppedGrowth } from '../admin/snapshot.js';
import { keysOf } from '../model/validate.js';
import type { Snapshot } from '../store/inspect.js';
import { failuresInARow } from './failing.js';

/** A queue for {@link metricsText}. */
export interface Measured {
  readonly queue: string;
  /** From {@link Inspector.inspect}; undefined if the queue could not be read. */
  readonly snapshot: Snapshot | undefined;
  /** Added to its lines, to tell queues of one name apart. */
  readonly labels?: Labels;
}

type Labels = Readonly<Record<string, string>>;

/** The values of a metric, with their labels. */
export type Samples = readonly (readonly [labels: Labels, value: number, suffix?: string])[];

interface MetricsOptions {
  readonly version?: string | undefined;
  readonly labels?: Labels;
}

const checkOptions = keysOf<MetricsOptions>('metricsText', { version: true, labels: true });

interface Metric {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  of(snapshot: Snapshot): Samples;
}

/** The counters in `stats`, by their names there. */
const COUNTERS: Readonly<Record<string, readonly [name: string, help: string]>> = {
  enqueued: ['enqueued', 'Jobs added to the queue.'],
  replaced: ['replaced', 'Jobs enqueued with the id of an existing job, which they replaced.'],
  kept: ['kept', 'Jobs enqueued with the id of an existing job, which was kept.'],
  skipped: ['skipped', 'Occurrences of recurring jobs that made no job: missed, or the last job was not done yet.'],
  delivered: ['delivered', 'Deliveries. A retried job counts again.'],
  acked: ['acked', 'Jobs that were done.'],
  removed: ['removed', 'Jobs removed as they were taken (at-most-once delivery).'],
  retried: ['retried', 'Failures after which a job is retried.'],
  released: ['released', 'Jobs that their handlers gave back, not counted as failures.'],
  lost: ['lost', 'Leases that expired and were taken back.'],
  // Not "dead", because delayq_jobs{state="dead"} is the number of jobs that are dead now.
  dead: ['died', 'Jobs moved to the dead set: failed or lost too often, or refused.'],
  requeued: ['requeued', 'Dead jobs made pending again.'],
  expired: ['expired', 'Jobs dropped because their time to live was over.'],
  orphaned: ['orphaned', 'Ids without a payload, moved to the dead set.'],
  cancelled: ['cancelled', 'Jobs cancelled.'],
  rescheduled: ['rescheduled', 'Jobs that got a new due time.'],
  buried: ['buried', 'Pending jobs that an operator moved to the dead set.'],
  purged: ['purged', 'Jobs removed by purge.'],
  moved: ['moved', 'Jobs moved to another queue.'],
  restored: ['restored', 'Jobs moved here from another queue, or imported.'],
  adopted: ['adopted', 'Jobs taken over from other software.'],
};

const gauge = (name: string, help: string, of: (snapshot: Snapshot) => number | undefined): Metric => ({
  name,
  type: 'gauge',
  help,
  of: (snapshot) => {
    const value = of(snapshot);
    return value === undefined ? [] : [[{}, value]];
  },
});

const METRICS: readonly Metric[] = [
  {
    name: 'delayq_jobs',
    type: 'gauge',
    help: 'Jobs in the queue, by state.',
    of: ({ pending, active, dead }) => Object.entries({ pending, active, dead }).map(([state, n]) => [{ state }, n]),
  },
  gauge('delayq_jobs_due', 'Pending jobs that are due.', ({ due }) => due),
  gauge('delayq_leases_run_out', 'Leases that have expired and are not taken back yet.', ({ runOut }) => runOut),
  gauge('delayq_lag_seconds', 'How long the oldest due job has been due; 0 if none is due.', (one) => lag(one) / 1_000),
  gauge('delayq_refused', 'Whether the server refuses new jobs: it is full, or cannot save (1), or not (0).', (one) =>
    Number(one.refusal !== undefined),
  ),
  gauge('delayq_paused', 'Whether the queue is paused (1) or not (0).', (one) =>
    Number(pausedUntil(one) !== undefined),
  ),
  gauge('delayq_growth_stopped', 'Whether a growth of the partitions was not finished (1) or not (0).', (one) =>
    Number(stoppedGrowth(one) !== undefined),
  ),
  gauge('delayq_limit_jobs_per_second', 'The rate of the queue, if set.', (one) => limitsOf(one).perSecond),
  gauge('delayq_limit_burst_jobs', 'The burst of the queue, if it has a rate.', (one) => limitsOf(one).burst),
  gauge('delayq_limit_active_jobs', 'The max-active of the queue, if set.', (one) => limitsOf(one).maxActive),
  gauge(
    'delayq_failures_in_a_row',
    'Attempts that have failed since a job was last done; 0 if that is long ago.',
    (one) => failuresInARow(one)?.inARow ?? 0,
  ),
  gauge(
    'delayq_failing_seconds',
    'Time since the first of the failures in a row; 0 without one.',
    (one) => (one.now - (failuresInARow(one)?.since ?? one.now)) / 1_000,
  ),
  gauge(
    'delayq_oldest_delivery_seconds',
    'How long ago the oldest job that is held was delivered; 0: none is.',
    (one) => Math.max(0, ...consumersOf(one).map(({ since = one.now }) => one.now - since)) / 1_000,
  ),
  gauge('delayq_recurring_jobs', 'Recurring jobs of the queue, paused ones too.', (one) => one.recurring?.count ?? 0),
  gauge('delayq_remembered_ids', 'Ids that stay taken though their jobs have ended.', ({ remembered }) => remembered),
  gauge('delayq_kept_events', 'Events of jobs that are kept.', ({ events }) => events),
  gauge('delayq_kept_done_jobs', 'Jobs that are done and kept, with their results.', ({ finished }) => finished),
  gauge(
    'delayq_last_drain_timestamp_seconds',
    'When a drain last asked for jobs or renewed a lease; missing if never.',
    ({ stats }) => (stats.drained === undefined ? undefined : stats.drained / 1_000),
  ),
  ...Object.entries(COUNTERS).map(
    ([field, [name, help]]): Metric => ({
      name: `delayq_jobs_${name}_total`,
      type: 'counter',
      help,
      of: ({ stats }) => [[{}, counter(stats[field])]],
    }),
  ),
  { name: 'delayq_lateness_seconds', type: 'histogram', help: 'How late jobs were delivered.', of: latenessOf },
  {
    name: 'delayq_handler_duration_seconds',
    type: 'histogram',
    help: 'How long handlers of drains and workers took to succeed.',
    of: durationsOf,
  },
];

/**
 * Returns the state of queues in the text exposition format of Prometheus (0.0.4). Every counter of every queue is
 * included, even if it is 0. `labels` are added to every line, to tell several sources of one Prometheus apart.
 */
export function metricsText(queues: Iterable<Measured>, options: MetricsOptions = {}): string {
  const { version, labels = {} } = checkOptions(options);
  const all = [...queues];
  const build: Samples = version === undefined ? [] : [[{ version, ...labels }, 1]];
  const up = all.map(({ queue, snapshot, labels: own }) => [{ queue, ...labels, ...own }, snapshot ? 1 : 0] as const);
  const samples = ({ of }: Metric): Samples =>
    all.flatMap(({ queue, snapshot, labels: own }) =>
      (snapshot ? of(snapshot) : []).map(
        ([more, ...rest]) => [{ queue, ...labels, ...own, ...more }, ...rest] as const,
      ),
    );
  return [
    family('delayq_build_info', 'gauge', 'The version of delayq that wrote this.', build),
    family('delayq_queue_up', 'gauge', 'Whether the queue could be read (1) or not (0).', up),
    ...METRICS.map((metric) => family(metric.name, metric.type, metric.help, samples(metric))),
  ].join('');
}

/** All lines of one metric; empty if it has no sample. */
export function family(name: string, type: Metric['type'], help: string, samples: Samples): string {
  const lines = samples.map(([labels, value, suffix = '']) => {
    const inside = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    const braces = inside.length > 0 ? `{${inside.join(',')}}` : '';
    return `${name}${suffix}${braces} ${written(value)}\n`;
  });
  return lines.length === 0 ? '' : `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

/** Turns our buckets into those of Prometheus, each of which includes all lower ones. */
function latenessOf({ lateness: { buckets, sum } }: Snapshot): Samples {
  let count = 0;
  const cumulative = buckets.map(({ upTo, count: more }): Samples[number] => {
    count += counter(more);
    return [{ le: written(upTo / 1_000) }, count, '_bucket'];
  });
  return [...cumulative, [{}, counter(sum) / 1_000, '_sum'], [{}, count, '_count']];
}

/** The buckets of every second power of two from 4 ms on. The sum of durations is not known. */
function durationsOf({ durations }: Snapshot): Samples {
  let total = 0;
  const cumulative = durations.flatMap(({ upTo, count }, i): Samples => {
    total += counter(count);
    return i >= 2 && i % 2 === 0 && i <= 22 ? [[{ le: written(upTo / 1_000) }, total, '_bucket']] : [];
  });
  return [...cumulative, [{ le: '+Inf' }, total, '_bucket'], [{}, total, '_count']];
}

/** A valid value, because other software may have written anything. */
function counter(n = 0): number {
  return n > 0 && Number.isFinite(n) ? n : 0;
}

function escaped(text: string): string {
  const escapes: Record<string, string> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' };
  // Other software may have put control characters into a name.
  return text.replace(/[\\"\p{Cc}]/gu, (c) => escapes[c] ?? `\\\\x${c.charCodeAt(0).toString(16).padStart(2, '0')}`);
}

function written(value: number): string {
  return Number.isFinite(value) ? String(value) : Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
}
