import { setTimeout as sleep } from 'node:timers/promises';
import {
  formatDuration,
  LONGEST_TIMER_MS,
  partitionsOf,
  pausedUntil,
  problems,
  type Snapshot,
  withRetries,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { duration } from '../args/options.js';
import { access, requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, grouped, say } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';
import { troubleReporter } from '../terminal/trouble.js';

interface Options extends Globals {
  readonly timeout?: number;
  readonly quiet?: boolean;
}

const LOOK_MS = 500;

export function waitCommand(command: CliCommand, context: Context): void {
  command
    .description('Wait until queues are idle: no job is active and none is due. Made for deploys.')
    .argument('<queue...>', 'names of queues: all must be idle at the same time')
    .option('--timeout <duration>', 'give up after 30s, 5m and exit 1 (default: never)', duration)
    .option('-q, --quiet', 'do not print what is left')
    .option('--json', 'print what is left as one JSON document')
    .action((queues: string[], options: Options) => wait(context, queues, options));
  command.details(`
    A paused queue is idle when no job is active. A job whose lease has expired does not count: its holder is gone, and
    a drain takes the job back after the pause.

    Exit status: 0 idle, 1 not idle in time, 3 no such queue, 130 interrupted.
  `);
  command.examples([
    'delayq wait --timeout 5m order-close',
    'delayq pause q && delayq wait q && ./deploy; delayq resume q',
  ]);
}

async function wait(context: Context, queues: readonly string[], options: Options): Promise<void> {
  const started = performance.now();
  const end = started + (options.timeout ?? Number.POSITIVE_INFINITY);
  const stop = context.stopSignal();
  const { redis, prefix, inspector } = access(context, options);
  await Promise.all(queues.map((queue) => requireQueue(redis, prefix, queue)));
  const lookAt = async (queue: string) => {
    const snapshot = await inspector.inspect(queue);
    // Ends what a grower that has died holds: it counts as active, and nobody may drain this queue.
    if (partitionsOf(snapshot).from !== undefined) await inspector.movement(queue);
    return leftOf(queue, snapshot);
  };
  const look = () => Promise.all(queues.map(lookAt));
  const limits = {
    until: () => (stop.aborted ? 0 : end),
    onTrouble: troubleReporter(context),
  };
  const progress = new Progress(context, !options.quiet);
  let left = await look();
  while (!left.every(({ idle }) => idle) && !stop.aborted && performance.now() < end) {
    progress.show(`waiting for ${inWords(left)}`);
    // As many looks a second for several queues as for one.
    const pause = Math.min(LOOK_MS * queues.length, end - performance.now(), LONGEST_TIMER_MS);
    await sleep(Math.max(Math.ceil(pause), 1), undefined, { signal: stop }).catch(() => {});
    if (!stop.aborted) left = await withRetries(look, limits);
  }
  progress.clear();
  const idle = left.every((queue) => queue.idle);
  const waitedMs = Math.round(performance.now() - started);
  if (options.json) await context.write(document({ idle, waitedMs, queues: left }));
  else if (!idle && !options.quiet) say(context, `after ${formatDuration(waitedMs)} not idle: ${inWords(left)}`);
  if (!idle) context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
}

/** The jobs that keep a queue from being idle. */
function leftOf(queue: string, snapshot: Snapshot) {
  const { active, due, runOut } = snapshot;
  const paused = pausedUntil(snapshot) !== undefined;
  const idle = paused ? active <= runOut : active + due === 0;
  const { from, count } = partitionsOf(snapshot);
  const grows = from === undefined ? null : `its growth from ${from} to ${count} partitions is not done`;
  const growth = problems(queue, snapshot).find(({ check }) => check === 'growth')?.what ?? grows;
  return { queue, active, due, leasesRunOut: runOut, paused, idle, growth };
}

/** As in "order-close (2 active, 40 due)". */
function inWords(left: readonly ReturnType<typeof leftOf>[]): string {
  return left
    .filter(({ idle }) => !idle)
    .map(({ queue, active, due, leasesRunOut, paused, growth }) => {
      const ranOut = leasesRunOut > 0 ? `, ${grouped(leasesRunOut)} of them with an expired lease` : '';
      return `${queue} (${grouped(active)} active${ranOut}${paused ? ', paused' : `, ${grouped(due)} due`}${growth ? `; ${growth}` : ''})`;
    })
    .join(', ');
}
