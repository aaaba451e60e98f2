import { setTimeout as sleep } from 'node:timers/promises';
import { Command } from 'commander';
import {
  type Connection,
  type DelayqError,
  exists,
  formatDuration,
  formatSetting,
  formatTime,
  Inspector,
  isDelayqError,
  lag,
  orphans,
  readSettings,
  type Settings,
  type Snapshot,
} from '../index.js';
import type { Context, Globals } from './context.js';
import { addGlobals, examples } from './options.js';
import { colours, document, grouped, type Paint, table, visible, visibleJson } from './output.js';
import { unknownQueue } from './queues.js';

interface Options extends Globals {
  readonly watch?: boolean;
  readonly tz?: string;
}

/** Jobs a second into and out of a queue, between two looks. */
interface Rates {
  readonly in: number;
  readonly out: number;
}

interface Row {
  readonly queue: string;
  readonly snapshot: Snapshot;
  readonly rates: Rates | undefined;
}

/** All queues as they are at one moment; one that cannot be read does not hide the others. */
interface Look {
  readonly rows: Row[];
  readonly broken: { readonly queue: string; readonly error: DelayqError }[];
}

/** How many of the next due times are shown for one queue. */
const UPCOMING = 5;

/** How many queues are asked at once. */
const AT_ONCE = 50;

export function inspectCommand(context: Context): Command {
  const command = new Command('inspect')
    .summary('show what is in the queues, and what is wrong')
    .description('Shows all queues in one table, or one queue in full. Into a pipe it writes JSON.')
    .argument('[queue]', 'name of one queue')
    .option('--json', 'write one JSON document (the default when stdout is not a terminal)')
    .option('-w, --watch', 'show it anew every second, with rates')
    .option('--tz <zone>', 'time zone of the times shown (env DELAYQ_TZ, TZ)')
    .action((queue: string | undefined, options: Options) => inspect(context, queue, options));
  examples(command, [
    'delayq inspect',
    'delayq inspect order-close',
    'delayq inspect --watch',
    `delayq inspect --json | jq '.queues[] | select(.lagMs > 120000)'`,
  ]);
  return addGlobals(command);
}

async function inspect(context: Context, name: string | undefined, options: Options): Promise<void> {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  const zone = context.zone(options);
  await redis.connect();
  const look = async (before?: Look): Promise<Look> => {
    const names = name === undefined ? await inspector.queues() : [name];
    const seen: Look = { rows: [], broken: [] };
    const lookAt = async (queue: string): Promise<void> => {
      try {
        const snapshot = await inspector.inspect(queue, name === undefined ? 1 : UPCOMING);
        const old = before?.rows.find((row) => row.queue === queue)?.snapshot;
        seen.rows.push({ queue, snapshot, rates: old && ratesOf(snapshot, old) });
      } catch (error) {
        if (name !== undefined || !isDelayqError(error, 'config')) throw error;
        seen.broken.push({ queue, error });
      }
    };
    for (let i = 0; i < names.length; i += AT_ONCE) await Promise.all(names.slice(i, i + AT_ONCE).map(lookAt));
    // Replies come in the order of the calls, but for scripts that Redis had to be told anew.
    seen.rows.sort((a, b) => (a.queue < b.queue ? -1 : 1));
    return seen;
  };
  const first = await look();
  if (name !== undefined && !first.rows.some(({ snapshot }) => exists(snapshot)))
    throw await unknownQueue(redis, prefix, name);
  if (first.broken.length > 0) context.exitCode = 1;
  const terminal = context.stdout.isTTY && !options.json;
  const show = async (seen: Look): Promise<string> => {
    if (!terminal) {
      const json = toJson(redis, prefix, seen);
      return context.stdout.isTTY ? visibleJson(json) : json;
    }
    const paint = await colours(context, context.stdout);
    return name === undefined ? overview(seen, redis, paint) : detail(seen.rows[0] as Row, zone, paint);
  };
  if (!options.watch) return context.write(await show(first));
  await watch(context, first, look, show, terminal);
}

async function watch(
  context: Context,
  first: Look,
  look: (before: Look) => Promise<Look>,
  show: (seen: Look) => Promise<string>,
  terminal: boolean,
): Promise<void> {
  const stop = context.stopSignal();
  let seen = first;
  while (!stop.aborted && !context.outputClosed) {
    const text = await show(seen);
    await context.write(terminal ? picture(text, seen === first, context.stdout.rows) : text);
    await sleep(1_000, undefined, { signal: stop }).catch(() => {});
    if (!stop.aborted) seen = await look(seen);
  }
}

/** `text` drawn over the one before: from the top, each line cleared behind, never more than the screen has. */
function picture(text: string, first: boolean, rows: number): string {
  const lines = text.split('\n').slice(0, Math.max(rows - 1, 1));
  return `${first ? '\x1b[2J' : ''}\x1b[H${lines.map((line) => `${line}\x1b[K`).join('\n')}\x1b[J`;
}

function ratesOf(now: Snapshot, before: Snapshot): Rates | undefined {
  const seconds = (now.now - before.now) / 1000;
  const grown = (names: string[]) =>
    names.reduce((sum, name) => sum + (now.stats[name] ?? 0) - (before.stats[name] ?? 0), 0) / seconds;
  return seconds > 0 ? { in: grown(['enqueued']), out: grown(['acked', 'removed']) } : undefined;
}

function toJson(redis: Connection, prefix: string, { rows, broken }: Look): string {
  const queues = rows.map(({ queue, snapshot, rates }) => {
    const { now, pending, due, active, runOut, dead, lease, payload, meta, oldest, upcoming, stats, config } = snapshot;
    return {
      queue,
      now,
      pending,
      due,
      lagMs: lag(snapshot),
      oldestDue: oldest ?? null,
      nextDue: upcoming[0]?.due ?? null,
      active,
      leasesRunOut: runOut,
      dead,
      orphans: orphans(snapshot),
      ratePerSecond: rates ?? null,
      structures: { pending, active, lease, dead, payload, meta },
      upcoming,
      stats,
      config,
    };
  });
  const unreadable = broken.map(({ queue, error }) => ({ queue, error: error.why ?? error.message }));
  return document({ redis: redis.address, prefix, queues, unreadable });
}

const NONE = '–';

/** Colours for what is out of order: due for long is bad, due for a moment only worth a look. */
function late(snapshot: Snapshot, paint: Paint): string {
  const ms = lag(snapshot);
  if (snapshot.due === 0) return NONE;
  return (ms >= 60_000 ? paint.red.bold : ms >= 2_000 ? paint.yellow : paint)(`${formatDuration(ms)} late`);
}

function bad(n: number, paint: Paint): string {
  return n > 0 ? paint.red.bold(grouped(n)) : grouped(n);
}

function rate(perSecond: number | undefined): string {
  return perSecond === undefined ? NONE : grouped(Math.round(perSecond));
}

async function overview({ rows, broken }: Look, redis: Connection, paint: Paint): Promise<string> {
  if (rows.length + broken.length === 0)
    return `No queues at ${redis.address} yet. Put a job into one:\n  delayq enqueue --in 15m order-close '{"orderId":42}'\n`;
  const known = rows.some(({ rates }) => rates !== undefined);
  const head = [
    'queue',
    'pending',
    'due',
    'oldest',
    'next',
    'active',
    'run out',
    'dead',
    ...(known ? ['in/s', 'out/s'] : []),
  ];
  const cells = rows.map(({ queue, snapshot, rates }) => {
    const next = snapshot.upcoming[0];
    return [
      paused(snapshot) ? `${visible(queue)} ${paint.yellow('paused')}` : visible(queue),
      grouped(snapshot.pending),
      snapshot.due > 0 ? paint.bold(grouped(snapshot.due)) : '0',
      late(snapshot, paint),
      next ? formatDuration(next.due - snapshot.now) : NONE,
      grouped(snapshot.active),
      snapshot.runOut > 0 ? paint.yellow(grouped(snapshot.runOut)) : '0',
      bad(snapshot.dead, paint),
      ...(known ? [rate(rates?.in), rate(rates?.out)] : []),
    ];
  });
  const text = await table(
    head.map((cell) => paint.dim(cell)),
    cells,
  );
  const faults = [
    ...rows.flatMap(({ queue, snapshot }) => faultsOf(snapshot).map((fault) => `${visible(queue)}: ${fault}`)),
    ...broken.map(({ queue, error }) => `${visible(queue)}: cannot be read: ${visible(error.why ?? error.message)}`),
  ];
  return `${text}\n${faults.map((fault) => `${paint.red.bold('!')} ${fault}\n`).join('')}`;
}

function paused({ config, now }: Snapshot): boolean {
  return config.paused !== undefined && (config.paused === 'inf' || Number(config.paused) > now);
}

/** What cannot be in order, in words. */
function faultsOf(snapshot: Snapshot): string[] {
  const { ids, payloads } = orphans(snapshot);
  return [
    ...(ids > 0 ? [`${grouped(ids)} ids without a payload (orphans)`] : []),
    ...(payloads > 0 ? [`${grouped(payloads)} payloads without an id (orphans)`] : []),
  ];
}

/** A queue's config as people write it. */
function settingsOf(config: Readonly<Record<string, string>>): [string, string][] {
  const settings = readSettings(config);
  return Object.entries(config).map(([name, text]) => {
    const value = settings[name as keyof Settings];
    return [name, value === undefined ? text : formatSetting(name as keyof Settings, value)];
  });
}

function detail({ queue, snapshot, rates }: Row, zone: string, paint: Paint): string {
  const { now, pending, due, active, runOut, dead, lease, payload, meta, stats, config, upcoming } = snapshot;
  const { drained, ...totals } = stats;
  const at = (ms: number) =>
    `${formatTime(ms, zone)}  ${ms > now ? `in ${formatDuration(ms - now)}` : `${formatDuration(now - ms)} ago`}`;
  const line = (name: string, value: string) => `  ${paint.dim(name.padEnd(10))}  ${value}\n`;
  const list = (entries: [string, string][]) =>
    entries.map(([name, value]) => `${visible(name)} ${visible(value)}`).join(', ');
  let text = `${paint.bold(queue)}${paused(snapshot) ? ` ${paint.yellow('paused')}` : ''}\n`;
  text += line(
    'pending',
    `${grouped(pending)}${due > 0 ? `, ${paint.bold(grouped(due))} of them due, the oldest ${late(snapshot, paint)}` : ', none due'}`,
  );
  text += line(
    'active',
    `${grouped(active)}${runOut > 0 ? paint.yellow(`, ${grouped(runOut)} with a lease that ran out`) : ''}`,
  );
  text += line('dead', bad(dead, paint));
  text += line('stored', `payload ${grouped(payload)}, lease ${grouped(lease)}, meta ${grouped(meta)}`);
  for (const fault of faultsOf(snapshot)) text += line('', paint.red.bold(`! ${fault}`));
  text += line('config', list(settingsOf(config)) || 'defaults');
  text += line(
    'totals',
    list(
      Object.entries(totals)
        .sort()
        .map(([name, n]) => [name, grouped(n)]),
    ) || 'none',
  );
  if (rates) text += line('rates', `in ${rate(rates.in)}/s, out ${rate(rates.out)}/s`);
  text += line('last drain', drained === undefined ? 'never' : at(drained));
  for (const [i, job] of upcoming.entries())
    text += line(i === 0 ? 'next due' : '', `${at(job.due)}  ${paint.dim(visible(job.id))}`);
  return text;
}
