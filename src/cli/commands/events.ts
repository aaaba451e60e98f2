import { setTimeout as sleep } from 'node:timers/promises';
import {
  DelayqError,
  EVENT_TYPES,
  type EventType,
  type JobEvent,
  many,
  parseDuration,
  parseMoment,
  printable,
  queueWord,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access, requireQueue } from '../args/queues.js';
import { type Reader, readerOf } from '../drain/reader.js';
import { attempt } from '../host/attempt.js';
import type { Context, Globals } from '../host/context.js';
import { say, writeJson } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

interface Options extends Globals {
  readonly follow?: boolean;
  readonly since?: string;
  readonly type?: readonly EventType[];
  readonly id?: string;
  readonly fromGroup?: string;
  readonly tz?: string;
}

/** How often to look whether the reader of a pipe has read what was written, ms. */
const LOOK_MS = 10;

export function eventsCommand(command: CliCommand, context: Context): void {
  command
    .description('Print what happened to the jobs of a queue, one event a line, as JSON Lines.')
    .argument('<queue>', 'name of the queue')
    .option('-f, --follow', 'keep running, and print events as they come')
    .option('--since <time>', 'from this time on: 1h, 14:00, "2026-11-21 14:00" …')
    .option('--type <types>', 'only these types: dead,lost', types)
    .option('--id <id>', 'only the events of this job')
    .option('--from-group <name>', 'go on where the last reader with this name has stopped')
    .option('--tz <zone>', 'time zone of the time given (env DELAYQ_TZ, TZ)')
    .action((queue: string, options: Options) => events(context, queue, options));
  command.details(`
    A queue keeps events if its setting events says how many: delayq config Q events=10000. Further ones replace the
    oldest. At 1,000 jobs a second, 10,000 events of all types are three seconds; with event-types=dead,lost they may
    be weeks.

    Types: ${EVENT_TYPES.join(', ')}.

    A line has queue, type, id, at (ms), and what applies of by (the consumer), attempt, due, reason, error. Those of
    several partitions come in the order of their times, each by the clock of its own server.

    --from-group makes a program miss nothing while it is stopped. A new name begins now, or at --since. Its position
    moves when the reader of the pipe has read the lines: after a crash it may get some again.

    Exit status: 0; 1 if events were removed before they were read: the stderr says how many; 3 if the queue keeps none.
  `);
  command.examples([
    'delayq config order-close events=10000',
    'delayq events order-close --since 1h --type dead,lost',
    'delayq events order-close --id order:42',
    'delayq events order-close --type dead --follow --from-group pager | ./alert',
  ]);
}

function types(text: string): readonly EventType[] {
  const all = text.split(',');
  const wrong = all.find((word) => !EVENT_TYPES.includes(word as EventType));
  if (wrong === undefined) return all as EventType[];
  throw usageError(`${printable(wrong)} is no type of event`, `the types are ${EVENT_TYPES.join(', ')}`);
}

async function events(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  const { follow, type, id, fromGroup: group } = options;
  await requireQueue(redis, prefix, queue);
  if (!(await inspector.hasEvents(queue))) throw noEvents(queue);
  const since = options.since === undefined ? undefined : momentOf(context, options, await redis.now());
  const signal = follow ? context.stopSignal() : undefined;
  const reader = group === undefined ? undefined : readerOf(context);
  const asked = { since, follow, types: type, id, group, signal };
  for await (const { events, missed } of inspector.eventBatches(queue, asked, troubleReporter(context))) {
    if (missed !== 0) {
      context.outcomes.add('incomplete');
      const count = Number.isNaN(missed) ? 'some events' : many(missed, 'event');
      say(context, `${queue}: ${count} of all types were removed before they were read; to keep more, raise events`);
    }
    await writeJson(context, events.map((event) => line(queue, event)).join(''));
    if (context.outputClosed || (reader && !(await hasRead(reader, signal)))) return;
  }
}

const line = (queue: string, event: JobEvent) => `${JSON.stringify({ queue, ...event })}\n`;

/** Parses --since: a time, or how long ago. */
function momentOf(context: Context, { since = '', tz }: Options, now: number): number {
  const ago = attempt(() => parseDuration(since));
  return ago === undefined ? parseMoment(since, { zone: context.zone({ ...(tz && { tz }) }), now }) : now - ago;
}

/** Waits until the reader of our stdout has read all, as far as that can be known. Returns false if it does not. */
async function hasRead(reader: Reader, signal: AbortSignal | undefined): Promise<boolean> {
  while (reader.unread()) {
    if (signal?.aborted || (await reader.check()) === 'gone') return false;
    await sleep(LOOK_MS);
  }
  return true;
}

const noEvents = (queue: string) =>
  new DelayqError('missing', `${queue} keeps no events`, {
    why: 'events is not set for this queue',
    next: `delayq config ${queueWord(queue)} events=10000; what happens from then on is kept`,
  });
