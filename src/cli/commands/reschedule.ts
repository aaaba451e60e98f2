import { Command } from 'commander';
import { DelayqError, formatDuration, formatTime, Operator, Spread } from '../../internal.js';
import { readAt } from '../args/at.js';
import { addGlobals, details, duration, examples, ratePerSecond } from '../args/options.js';
import { type ActOptions, actOn, addAct } from '../bulk/edit.js';
import type { Context } from '../host/context.js';

interface Options extends ActOptions {
  readonly in?: number;
  readonly at?: string;
  readonly rate?: number;
}

const STATES = ['pending'] as const;

export function rescheduleCommand(context: Context): Command {
  const command = new Command('reschedule').description(
    'Gives pending jobs another due time. Several stay in the order in which they stand in line.',
  );
  command
    .option('--in <duration>', 'due after 500ms, 90s, 15m, 1h30m, 2d, 1w', duration)
    .option('--at <time>', 'due at 14:00, "2026-11-21 14:00", 2026-11-21T14:00:00+01:00 or @1795266000')
    .option('--rate <n/s>', 'let so many fall due from then on (default: from now on): 10/s, 100/m', ratePerSecond);
  addAct(command, STATES).action((queue: string, ids: string[], options: Options) =>
    reschedule(context, queue, ids, options),
  );
  details(command, [
    'Jobs that are being handled, or dead, are left. Failures so far stay counted; a time to live counts anew, from the new',
    'due time. With --rate all are scheduled at once: nothing has to be kept running.',
  ]);
  examples(command, [
    'delayq reschedule --in 2h order-close order:42',
    'delayq reschedule --overdue --rate 20/s order-close         # drain this backlog gently',
    'delayq reschedule --from 14:00 --to 15:00 --at 16:00 --dry-run order-close',
    `delayq list order-close | jq -r 'select(.payload.shop == 7) | .id' | delayq reschedule --in 1h order-close -`,
  ]);
  return addGlobals(command);
}

async function reschedule(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const { in: inMs, at: text, rate } = options;
  if (inMs !== undefined && text !== undefined)
    throw new DelayqError('usage', 'a job has one due time', { next: 'give --in or --at, not both' });
  if ((inMs ?? text ?? rate) === undefined)
    throw new DelayqError('usage', 'no due time is given', { next: 'give --in 15m, --at 14:00 or --rate 10/s' });
  const redis = context.redis(options);
  const operator = new Operator(redis, { prefix: context.prefix(options) });
  const at = await readAt(context, redis, options);
  const stepMs = rate === undefined ? undefined : 1_000 / rate;
  const spread = new Spread({
    ...(at === undefined ? { in: inMs ?? 0 } : { at }),
    ...(stepMs === undefined ? {} : { stepMs }),
  });
  const now = await redis.now();
  const due = at ?? now + (inMs ?? 0);
  const first = due > now ? `${formatTime(due, context.zone(options))}, in ${formatDuration(due - now)}` : 'now';
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'reschedule',
    done: 'rescheduled',
    stay: true,
    answers: {
      rescheduled: { good: true },
      active: { good: false, elsewhere: true, says: 'is being handled, and left' },
      dead: { good: false, elsewhere: true, says: 'is dead, and left: delayq requeue brings it back' },
      missing: { good: false, elsewhere: true, says: `is not in ${queue}: it is done, or was never there` },
    },
    detail: (jobs) =>
      stepMs === undefined || jobs === 1
        ? `: due ${first}`
        : `: the first due ${first}, the last ${formatDuration((jobs - 1) * stepMs)} later`,
    act: (some) => operator.reschedule(queue, some, spread),
  });
}
