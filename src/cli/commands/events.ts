import type { Command } from 'commander';
import {
  checkEventTypes,
  DelayqError,
  EVENT_TYPES,
  type EventType,
  idWord,
  many,
  parseDuration,
  parseMoment,
  queueWord,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { idsOf } from '../args/ids.js';
import { access, handlerAfter, requireQueue } from '../args/queues.js';
import { EventCommand } from '../drain/event-command.js';
import { EventPipe } from '../drain/event-pipe.js';
import { attempt } from '../host/attempt.js';
import type { Context, Globals } from '../host/context.js';
import { findProgram } from '../host/program.js';
import { say } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

interface Options extends Globals {
  readonly follow?: boolean;
  readonly since?: string;
  readonly type?: readonly EventType[];
  readonly id?: string;
  readonly fromGroup?: string;
  readonly tz?: string;
}

export function eventsCommand(command: CliCommand, context: Context): void {
  command
    .description('Print what happened to the jobs of a queue, one event a line, as JSON Lines.')
    .usage('[options] <queue> [-- command args…]')
    .argument('<queue>', 'name of the queue')
    .argument('[command...]', 'after --: a command that is run for each event, and its arguments')
    .option('-f, --follow', 'keep running, and print events as they come')
    .option('--since <time>', 'from this time on: 1h, 14:00, "2026-11-21 14:00" …')
    .option('--type <types>', 'only these types: dead,lost', types)
    .option('--id <id>', 'only the events of this job')
    .option('--from-group <name>', 'go on where the last reader with this name has stopped')
    .option('--tz <zone>', 'time zone of the time given (env DELAYQ_TZ, TZ)')
    .action((queue: string, rest: string[], options: Options, self: Command) =>
      events(context, queue, rest, options, self),
    );
  command.details(`
    A queue keeps events if its setting events says how many: delayq config Q events=10000. Further ones replace the
    oldest. At 1,000 jobs a second, 10,000 events of all types are three seconds; with event-types=dead,lost they may
    be weeks.

    Types: ${EVENT_TYPES.join(', ')}.

    A line has queue, type, id, at (ms), and what applies of by (the consumer), attempt, due, reason, error. Those of
    several partitions come in the order of their times, each by the clock of its own server.

    -- command is run for each event, one after the other, for 30 s at most. The line is on its stdin; DELAYQ_QUEUE,
    DELAYQ_ID, DELAYQ_TYPE, DELAYQ_ATTEMPT, DELAYQ_BY, DELAYQ_REASON and DELAYQ_ERROR are in its environment. If it
    fails, it is run again, after 1 s to 1 min, until it succeeds.

    --from-group goes on where the last reader with this name has stopped, so that nothing is missed meanwhile. A new
    name begins now, or at --since. The position moves when the command has succeeded. Without one, it moves when the
    reader of the pipe has read the lines, as far as Linux tells that: what it has in hand when it dies is lost.

    Exit status: 0; 1 if events were removed before they were read: the stderr says how many; 3 if the queue keeps none.
  `);
  command.examples([
    'delayq config order-close events=10000',
    'delayq events order-close --since 1h --type dead,lost',
    'delayq events order-close --id order:42',
    'delayq events order-close --type dead --follow --from-group pager -- ./alert',
  ]);
}

const types = (text: string) => checkEventTypes(text.split(','));

async function events(
  context: Context,
  queue: string,
  rest: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const command = handlerAfter(queue, rest, self);
  // Told now, and not by the first event at night.
  if (command.length > 0) findProgram(command[0] ?? '', context.env.PATH);
  const { redis, prefix, inspector } = access(context, options);
  const { follow, type, fromGroup: group } = options;
  await requireQueue(redis, prefix, queue);
  if (!(await inspector.hasEvents(queue))) throw noEvents(queue);
  const since = options.since === undefined ? undefined : momentOf(context, options, await redis.now());
  const isSingle = command.length > 0;
  const stop = follow || isSingle ? context.stopSignal() : new AbortController().signal;
  const sink = isSingle ? new EventCommand(context, command, stop) : new EventPipe(context, options);
  const signal = AbortSignal.any([stop, sink.gone]);
  // Events have ids as they are printed.
  const [meant] = options.id === undefined ? [] : await idsOf(inspector, queue, [options.id]);
  const id = meant === undefined ? undefined : idWord(meant);
  const asked = { since, follow, types: type, id, group, signal };
  try {
    const how = { onTrouble: troubleReporter(context), isSingle };
    for await (const { events, missed } of inspector.eventBatches(queue, asked, how)) {
      if (missed !== 0) {
        context.outcomes.add('incomplete');
        const count = Number.isNaN(missed) ? 'some events' : many(missed, 'event');
        say(context, `${queue}: ${count} of all types were removed before they were read; to keep more, raise events`);
      }
      if (!(await sink.take(queue, events))) return;
    }
  } finally {
    sink.end();
  }
}

/** Parses --since: a time, or how long ago. */
function momentOf(context: Context, options: Options, now: number): number {
  const { since = '' } = options;
  const ago = attempt(() => parseDuration(since));
  return ago === undefined ? parseMoment(since, { zone: context.zone(options), now }) : now - ago;
}

const noEvents = (queue: string) =>
  new DelayqError('missing', `${queue} keeps no events`, {
    why: 'events is not set for this queue',
    next: `delayq config ${queueWord(queue)} events=10000; what happens from then on is kept`,
  });
