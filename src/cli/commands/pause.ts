import { formatDuration, formatTime, type Operator, type Paused, queueWord } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { positiveDuration } from '../args/options.js';
import { access, addCreate, type CreateOption, requireOrCreate, requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, say } from '../terminal/output.js';

interface Options extends Globals, CreateOption {
  readonly for?: number;
  readonly quiet?: boolean;
  readonly tz?: string;
}

export function pauseCommand(command: CliCommand, context: Context): void {
  addCreate(command)
    .description('Stop delivering jobs from queues, for a time or until delayq resume.')
    .argument('<queue...>', 'names of queues')
    .option('--for <duration>', 'resume by itself after 30s, 10m, 2h', positiveDuration)
    .option('--tz <zone>', 'time zone of the printed time (env DELAYQ_TZ, TZ)')
    .option('-q, --quiet', 'print nothing')
    .option('--json', 'print one JSON document')
    .action((queues: string[], options: Options) =>
      each(context, queues, options, requireOrCreate, (operator, queue) =>
        operator.pause(queue, { forMs: options.for }),
      ),
    );
  command.details(`
    Jobs delivered before are not affected, and enqueue, ack, nack and renew work as always. During the pause no lease
    is taken back and no job expires. delayq drain returns at once without jobs; drain --watch waits. A second pause
    sets a new end.
  `);
  command.examples([
    'delayq pause order-close',
    'delayq pause --for 10m order-close refund',
    'delayq pause order-close && delayq wait order-close    # then deploy',
  ]);
}

export function resumeCommand(command: CliCommand, context: Context): void {
  command
    .description('Deliver jobs from paused queues again. Drains that wait continue at once.')
    .argument('<queue...>', 'names of queues')
    .option('-q, --quiet', 'print nothing')
    .option('--json', 'print one JSON document')
    .action((queues: string[], options: Options) =>
      each(context, queues, options, requireQueue, (operator, queue) => operator.resume(queue)),
    );
  command.examples(['delayq resume order-close', 'delayq resume order-close refund']);
}

async function each(
  context: Context,
  queues: readonly string[],
  options: Options,
  require: typeof requireOrCreate,
  act: (operator: Operator, queue: string) => Promise<Paused>,
): Promise<void> {
  const zone = context.zone(options);
  const { redis, prefix, operator } = access(context, options);
  // A mistyped name must not leave half of the queues paused.
  for (const queue of queues) await require(redis, prefix, queue, options);
  const results: object[] = [];
  for (const queue of queues) {
    const { was, until } = await act(operator, queue);
    const end = (ms: number | undefined) => (ms === Number.POSITIVE_INFINITY ? 'inf' : (ms ?? null));
    results.push({ queue, paused: until !== undefined, until: end(until), was: end(was) });
    if (options.quiet || options.json) continue;
    if (until === undefined) say(context, `${queue} ${was === undefined ? 'was not paused' : 'is resumed'}`);
    else if (until === Number.POSITIVE_INFINITY)
      say(context, `${queue} is paused until delayq resume ${queueWord(queue)}`);
    else say(context, `${queue} is paused until ${formatTime(until, zone)}, for ${formatDuration(options.for ?? 0)}`);
  }
  if (options.json) await context.write(document({ queues: results }));
}
