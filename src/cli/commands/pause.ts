import { Command } from 'commander';
import { formatDuration, formatTime, Operator, type Paused } from '../../internal.js';
import { addGlobals, details, examples, longerThanNone } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, say } from '../terminal/output.js';

interface Options extends Globals {
  readonly for?: number;
  readonly quiet?: boolean;
  readonly tz?: string;
}

export function pauseCommand(context: Context): Command {
  const command = new Command('pause')
    .description(
      'Has drains take nothing from a queue, for a time or until delayq resume. Pausing again sets a new end.',
    )
    .argument('<queue...>', 'names of queues')
    .option('--for <duration>', "end by itself after 30s, 10m, 2h, by Redis's clock", longerThanNone)
    .option('--tz <zone>', 'time zone of the time shown (env DELAYQ_TZ, TZ)')
    .option('-q, --quiet', 'say nothing')
    .option('--json', 'print one JSON document')
    .action((queues: string[], options: Options) =>
      each(context, queues, options, (operator, queue) => operator.pause(queue, { forMs: options.for })),
    );
  details(command, [
    'What was taken before goes on, and so do enqueue, ack, nack and renew; no lease is taken back, and nothing expires.',
    'Meanwhile delayq drain ends at once with nothing, and drain --watch waits.',
  ]);
  examples(command, [
    'delayq pause order-close',
    'delayq pause --for 10m order-close refund',
    'delayq pause order-close && delayq wait --idle --timeout 5m order-close    # then deploy, then resume',
  ]);
  return addGlobals(command);
}

export function resumeCommand(context: Context): Command {
  const command = new Command('resume')
    .description('Has drains take from paused queues again: those that wait, at once.')
    .argument('<queue...>', 'names of queues')
    .option('-q, --quiet', 'say nothing')
    .option('--json', 'print one JSON document')
    .action((queues: string[], options: Options) =>
      each(context, queues, options, (operator, queue) => operator.resume(queue)),
    );
  examples(command, ['delayq resume order-close', 'delayq resume order-close refund']);
  return addGlobals(command);
}

async function each(
  context: Context,
  queues: readonly string[],
  options: Options,
  act: (operator: Operator, queue: string) => Promise<Paused>,
): Promise<void> {
  const zone = context.zone(options);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const operator = new Operator(redis, { prefix });
  // A name that is mistyped must not leave half of them paused.
  for (const queue of queues) await requireQueue(redis, prefix, queue);
  const told: object[] = [];
  for (const queue of queues) {
    const { was, until } = await act(operator, queue);
    const end = (ms: number | undefined) => (ms === Number.POSITIVE_INFINITY ? 'inf' : (ms ?? null));
    told.push({ queue, paused: until !== undefined, until: end(until), was: end(was) });
    if (options.quiet || options.json) continue;
    if (until === undefined) say(context, `${queue} ${was === undefined ? 'was not paused' : 'is taken from again'}`);
    else if (until === Number.POSITIVE_INFINITY) say(context, `${queue} is paused until delayq resume ${queue}`);
    else say(context, `${queue} is paused until ${formatTime(until, zone)}, for ${formatDuration(options.for ?? 0)}`);
  }
  if (options.json) await context.write(document({ queues: told }));
}
