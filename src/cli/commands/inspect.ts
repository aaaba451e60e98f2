import { formatDuration, formatTime } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access, unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { colours, type Room, say, sizeOf, visible, writeJson } from '../terminal/output.js';
import { type Trouble, watch } from '../terminal/watch.js';
import { lookJson } from '../views/look-json.js';
import { overview } from '../views/overview.js';
import { partitionTable } from '../views/partitions.js';
import { signLines } from '../views/problems.js';
import { detail } from '../views/queue.js';
import { type Look, lookAt, nothingThere, type Row, unreadOf } from '../views/snapshot.js';

interface Options extends Globals {
  readonly watch?: boolean;
  readonly partitions?: boolean;
  readonly tz?: string;
}

export function inspectCommand(command: CliCommand, context: Context): void {
  command
    .description('Show all queues in one table, or one queue in detail. What is wrong comes first.')
    .argument('[queue]', 'name of a queue')
    .option('--json', 'print one JSON document')
    .option('--partitions', 'one line for each partition of the queue')
    .option('-w, --watch', 'refresh every second, full screen, until q is pressed')
    .option('--tz <zone>', 'time zone of the printed times (env DELAYQ_TZ, TZ)')
    .action((queue: string | undefined, options: Options) => inspect(context, queue, options));
  command.details(`
    Columns:
      due       pending jobs that are due
      lag       how long the oldest of them has been due; ↑ growing, ↓ falling
      drained   time since a drain last asked for jobs, or last held some
      in, done  rates of jobs enqueued and completed, over the last five minutes;
                –: not known yet, or none
      failed    rate of attempts that failed; only if some did
      empty in  time until no job is due, at that rate; never while more fail than
                are done
      next      time until the next pending job is due
      active    jobs that a consumer holds; run out: their lease has expired, and
                the next drain takes them back
      dead      jobs that are not retried: see delayq list --dead, then requeue them
                or cancel them

    A queue with partitions is shown as the sums of them, with the largest lag.

    Exit status: 1 a queue cannot be read, 3 no such queue, 75 some partitions cannot be read: the sums are those of
    the others.
  `);
  command.examples([
    'delayq inspect',
    'delayq inspect order-close',
    'delayq inspect --partitions order-close',
    'delayq inspect --watch',
    `delayq inspect --json | jq '.queues[] | select(.lagMs > 120000)'`,
    `delayq inspect --json order-close | jq '.queues[0].ahead.hour[] | .count'`,
  ]);
}

async function inspect(context: Context, name: string | undefined, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  const zone = context.zone(options);
  if (options.partitions && name === undefined)
    throw usageError('--partitions is for one queue', 'name it: delayq inspect --partitions QUEUE');
  // Reports a bad time zone before anything is drawn. JSON has no zone.
  if (!options.json) formatTime(0, zone);
  await redis.connect();
  const first = await lookAt(inspector, name);
  if (name !== undefined && nothingThere(first)) throw await unknownQueue(redis, prefix, name);
  if (first.broken.length > 0) context.outcomes.add('incomplete');
  if (first.rows.some((row) => unreadOf(row).length > 0)) context.outcomes.add('partial');
  const paint = await colours(context, context.stdout);
  const picture = async (seen: Look, room: Room) => {
    const how = { address: redis.address, prefix, zone, paint, room };
    const [row] = seen.rows as [Row];
    if (options.partitions) return partitionTable(row, how);
    return name === undefined ? overview(seen, how) : detail(row, how);
  };
  const { stdout, env } = context;
  const foot = (at: number) =>
    `${clock(at, zone)}  ${visible(redis.address)}${prefix === 'delayq' ? '' : `  ${prefix}`}`;
  const print = async (seen: Look) => {
    if (options.json) return writeJson(context, lookJson(redis, prefix, seen, options.partitions));
    for (const { what } of missingIn(seen)) say(context, what);
    const { width, height } = sizeOf(context, stdout);
    // The command line above and the prompt below stay visible.
    const inside = await picture(seen, { width, height: height - (options.watch ? 3 : 2) });
    await context.write(`${[...inside, ...(options.watch ? [foot(Date.now()), ''] : [])].join('\n')}\n`);
  };
  if (!options.watch) return print(first);
  const lines = async (seen: Look, { at, trouble }: { at: number; trouble: Trouble | undefined }) => {
    const { width, height } = sizeOf(context, stdout);
    const signs = trouble ? [{ urgent: true, what: troubleOf(trouble, zone) }] : missingIn(seen);
    const above = signs.flatMap((sign) => signLines(sign, paint, { width, height })).slice(0, Math.floor(height / 3));
    // The footer stays at the bottom of the screen.
    const inside = await picture(seen, { width, height: height - above.length - 1 });
    const body = [...above, ...inside].slice(0, height - 1);
    const last = `${trouble ? 'seen ' : ''}${foot(at)}  q: quit`;
    return [...body, ...Array.from({ length: height - 1 - body.length }, () => ''), last];
  };
  const screen = stdout.isTTY && !options.json && env.TERM !== 'dumb';
  const look = (before: Look) => lookAt(inspector, name, before);
  await watch(context, { first, look, print, lines: screen ? lines : undefined });
}

function clock(ms: number, zone: string): string {
  return formatTime(ms, zone).slice(11, 19);
}

function troubleOf({ since, error }: Trouble, zone: string): string {
  const long = formatDuration(Date.now() - since);
  const what = error.code === 'temporary' ? 'Redis answers no calls' : 'cannot reach Redis';
  return `${what} since ${clock(since, zone)} (${long}): ${visible(error.why ?? error.what)}`;
}

/** Says which partitions cannot be read. */
function missingIn({ rows }: Look): { urgent: boolean; what: string }[] {
  const what = (row: Row) =>
    unreadOf(row).map((part) => `partition ${part.partition} of ${row.queue} cannot be read: ${visible(part.error)}`);
  return rows.flatMap(what).map((what) => ({ urgent: true, what }));
}
