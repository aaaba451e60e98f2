import { lag, pausedUntil } from '../admin/snapshot.js';
import type { Snapshot } from '../scripts/inspect.js';

/** A queue as `metrics` tells of it: without a snapshot it could not be read. */
export interface Measured {
  readonly queue: string;
  readonly snapshot: Snapshot | undefined;
}

type Labels = Readonly<Record<string, string>>;

/** What a metric says of one queue: values with the labels they have besides the queue. */
type Samples = readonly (readonly [labels: Labels, value: number, suffix?: string])[];

interface Metric {
  readonly name: string;
  readonly type: 'counter' | 'gauge' | 'histogram';
  readonly help: string;
  of(snapshot: Snapshot): Samples;
}

/** The counters that scripts keep in `stats`, by their names there. */
const COUNTERS: Readonly<Record<string, readonly [name: string, help: string]>> = {
  enqueued: ['enqueued', 'Jobs that were put into the queue.'],
  replaced: ['replaced', 'Jobs that were enqueued again and took the place of the one with their id.'],
  kept: ['kept', 'Jobs that were enqueued again and not taken, because one with their id was there.'],
  delivered: ['delivered', 'Deliveries: a job that is tried again is counted again.'],
  acked: ['acked', 'Jobs that were done and removed.'],
  removed: ['removed', 'Jobs that were removed as they were taken (at most once).'],
  retried: ['retried', 'Failures after which a job is tried again.'],
  lost: ['lost', 'Leases that ended unanswered and were taken back.'],
  // Not "dead": the gauge of those that are dead now must not share a name with a counter.
  dead: ['died', 'Jobs that died: out of tries or losses, or refused.'],
  requeued: ['requeued', 'Dead jobs that were put back.'],
  expired: ['expired', 'Jobs that were dropped because their time to live was over.'],
  orphaned: ['orphaned', 'Ids without a payload that were set aside.'],
  cancelled: ['cancelled', 'Jobs that were cancelled.'],
  rescheduled: ['rescheduled', 'Jobs that were given another due time.'],
  buried: ['buried', 'Pending jobs that an operator put among the dead.'],
  purged: ['purged', 'Jobs that were removed by a purge.'],
  moved: ['moved', 'Jobs that were moved to another queue.'],
  restored: ['restored', 'Jobs that were put in as they stood elsewhere: moved here or imported.'],
  adopted: ['adopted', 'Jobs that were taken over from the queue of other software.'],
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
    help: 'Jobs in the queue, by where they stand.',
    of: ({ pending, active, dead }) => Object.entries({ pending, active, dead }).map(([state, n]) => [{ state }, n]),
  },
  gauge('delayq_jobs_due', 'Pending jobs that are due.', ({ due }) => due),
  gauge('delayq_leases_run_out', 'Leases that have run out and wait to be taken back.', ({ runOut }) => runOut),
  gauge(
    'delayq_lag_seconds',
    'How long the job first in line has been due; 0 when none is.',
    (snapshot) => lag(snapshot) / 1_000,
  ),
  gauge('delayq_paused', 'Whether the queue is paused: drains take nothing.', (snapshot) =>
    pausedUntil(snapshot) === undefined ? 0 : 1,
  ),
  gauge(
    'delayq_last_drain_timestamp_seconds',
    'When a drain last asked for jobs, or held on to some; missing: never.',
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
];

/**
 * The state of queues in the text exposition format of Prometheus (0.0.4). Every counter of every queue is there, 0 before
 * it first grew. `labels` stand on every line, to tell several sources apart that one Prometheus reads.
 */
export function metricsText(
  queues: Iterable<Measured>,
  { version, labels = {} }: { version?: string | undefined; labels?: Labels } = {},
): string {
  const all = [...queues];
  const families = [
    family('delayq_queue_up', 'gauge', 'Whether the queue could be read.', (line) => {
      for (const { queue, snapshot } of all) line({ queue, ...labels }, snapshot ? 1 : 0);
    }),
    ...METRICS.map(({ name, type, help, of }) =>
      family(name, type, help, (line) => {
        for (const { queue, snapshot } of all) {
          for (const [more, value, suffix] of snapshot ? of(snapshot) : [])
            line({ queue, ...labels, ...more }, value, suffix);
        }
      }),
    ),
  ];
  if (version !== undefined) {
    families.unshift(
      family('delayq_build_info', 'gauge', 'The delayq that wrote this.', (line) => line({ version, ...labels }, 1)),
    );
  }
  return families.join('');
}

/** All lines of one metric; nothing when it has no sample. */
function family(
  name: string,
  type: Metric['type'],
  help: string,
  fill: (line: (labels: Labels, value: number, suffix?: string) => void) => void,
): string {
  const lines: string[] = [];
  fill((labels, value, suffix = '') => {
    const inside = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`);
    lines.push(`${name}${suffix}{${inside.join(',')}} ${written(value)}\n`);
  });
  return lines.length === 0 ? '' : `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n${lines.join('')}`;
}

/** Each delivery is counted in one bucket; of Prometheus's each holds those below it, too. */
function latenessOf({ lateness: { buckets, sum } }: Snapshot): Samples {
  let count = 0;
  const cumulative = buckets.map(({ upTo, count: more }): Samples[number] => {
    count += counter(more);
    return [{ le: written(upTo / 1_000) }, count, '_bucket'];
  });
  return [...cumulative, [{}, counter(sum) / 1_000, '_sum'], [{}, count, '_count']];
}

/** A counter, where other software may have written anything. */
function counter(n = 0): number {
  return n > 0 && Number.isFinite(n) ? n : 0;
}

function escaped(text: string): string {
  return text.replace(/\\/g, '\\\\').replace(/"/g, '\\"').replace(/\n/g, '\\n');
}

function written(value: number): string {
  return Number.isFinite(value) ? String(value) : Number.isNaN(value) ? 'NaN' : value > 0 ? '+Inf' : '-Inf';
}
