import { formatDuration, type Id, type Operator, Spread } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { AT_WORDS, addDueTime, dueText, ratePerSecond, readAt } from '../args/options.js';
import { addEdit, type EditOptions } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

interface Options extends EditOptions {
  readonly in?: number;
  readonly at?: string;
  readonly rate?: number;
}

export function rescheduleCommand(command: CliCommand, context: Context): void {
  addDueTime(command)
    .description('Change the due time of pending jobs. Several jobs keep their order.')
    .option('--rate <n/s>', 'spread the due times at this rate, from --in, --at or now: 10/s, 100/m', ratePerSecond);
  addEdit(context, command, ['pending'], (queue, options: Options) => planOf(context, queue, options));
  command.exclude({ in: ['at'] });
  command.details(`
    ${AT_WORDS}


    Active and dead jobs are left as they are. Failures stay counted. The time of --ttl starts at the new due time. With
    --rate all due times are set at once: nothing has to keep running.
  `);
  command.examples([
    'delayq reschedule --in 2h order-close order:42',
    'delayq reschedule --overdue --rate 20/s order-close    # spread a backlog',
    'delayq reschedule --failed --in 0s --rate 10/s webhook    # handler is mended',
    'delayq reschedule --from 14:00 --to 15:00 --at 16:00 --dry-run order-close',
    'delayq list --ids --overdue q | delayq reschedule --in 1h q -',
  ]);
}

async function planOf(context: Context, queue: string, options: Options) {
  const { in: inMs, at: text, rate } = options;
  if ((inMs ?? text ?? rate) === undefined)
    throw usageError('no due time is given', 'give --in 15m, --at 14:00 or --rate 10/s');
  const redis = context.redis(options);
  const at = await readAt(context, redis, options);
  // Without a rate they are due together, in their order.
  const stepMs = rate === undefined ? undefined : 1_000 / rate;
  const spread = new Spread({
    ...(at === undefined ? { in: inMs ?? 0 } : { at }),
    ...(stepMs !== undefined && { stepMs }),
  });
  const now = await redis.now();
  const due = at ?? now + (inMs ?? 0);
  const first = due > now ? dueText(due, now, context.zone(options), options) : 'now';
  return {
    verb: 'reschedule',
    participle: 'rescheduled',
    collect: true,
    results: resultsOf(queue).reschedule,
    detail: (jobs: number) =>
      stepMs === undefined || jobs === 1
        ? `: due ${first}`
        : `: the first due ${first}, the last ${formatDuration((jobs - 1) * stepMs)} later`,
    apply: (operator: Operator, some: readonly Id[]) => operator.reschedule(queue, some, spread),
  };
}
