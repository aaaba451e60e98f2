import {
  checkGrows,
  checkNoLimits,
  checkPartitions,
  DEFAULT_SETTINGS,
  DelayqError,
  formatDuration,
  formatSetting,
  type Growth,
  isPassing,
  MAX_PARTITIONS,
  moveLine,
  type Operator,
  type Partitioning,
  parseSetting,
  printable,
  queueWord,
  readSettings,
  SETTING_NAMES,
  type Settings,
  type SettingsChange,
  settingWord,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access, addCreate, type CreateOption, requireOrCreate } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { colours, document, fold, grouped, many, orNull, sizeOf, table } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';

/** What each setting means: short enough for a line of the table on a terminal. */
const MEANINGS: Record<keyof Settings, string> = {
  tries: 'failures until a job is dead',
  maxLost: 'losses until a job is dead',
  backoff: 'waits: 30s,1m,10m or exponential',
  lease: 'how long a consumer may hold a job',
  ttl: 'drop jobs that are later than this',
  rate: 'most jobs taken: 100/s, 5/m, 1/30s',
  burst: 'most jobs at once after a quiet time',
  maxActive: 'most active jobs, over all drains',
  onceFor: 'reserve an id after its job has ended',
  text: 'payloads are any text, not only JSON',
  events: 'keep the last so many events',
  eventTypes: 'types of events to keep: dead,lost',
  keepDone: 'keep done jobs and results: 24h',
  maxDone: 'most done jobs to keep',
};

const PARTITIONS = 'slots that the jobs are spread over';

export function configCommand(command: CliCommand, context: Context): void {
  addCreate(command)
    .description('Show or set the defaults of a queue for jobs and commands, and its number of partitions.')
    .argument('<queue>', 'name of the queue')
    .argument('[name=value...]', 'settings; name= removes one')
    .option('--json', 'print one JSON document')
    .action((queue: string, changes: string[], options: Globals & CreateOption) =>
      config(context, queue, changes, options),
    );
  const settings = SETTING_NAMES.map(
    (name) =>
      `      ${settingWord(name).padEnd(10)}  ${MEANINGS[name]} (${formatSetting(name, DEFAULT_SETTINGS[name])})`,
  );
  command.details(`
    Settings and their defaults:
${settings.join('\n')}
      partitions  ${PARTITIONS} (1)

    A loss is a lease that expired without an answer. The last wait of a backoff repeats. A consumer renews its leases
    while it works. Settings also apply to jobs that are in the queue already, from the next call on.

    rate, burst and max-active hold for all drains together. Every job that is taken counts against the rate. max-active
    counts leases, so it needs handlers, or drain --lease with ack. Without a burst, it is a tenth of the jobs of a
    second, at least one. A queue has such limits or partitions, not both.

    events and keep-done keep what happened to jobs, and those that are done, with what came out of them: see delayq
    events and delayq result. Without them, or with off, what was kept is removed.

    With text=on, enqueue and every take any text without --text, and drain -- gives it to handlers byte for byte. Lines
    of --jobs are still JSON.

    partitions=N spreads a queue over N slots of a Redis Cluster, and so over more than one node. The queue stays in use
    while its jobs are moved. An active job is moved when its consumer has finished it, so the command may wait. If it
    stops, repeat it: it goes on. A queue can have up to ${MAX_PARTITIONS} partitions. Their number cannot be reduced.
    With a power of two, all are equally large.
  `);
  command.examples([
    'delayq config webhook tries=4 backoff=30s,1m,10m lease=2m',
    'delayq config --create webhook rate=100/s   # before its first job',
    'delayq config webhook ttl=      # back to none',
    'delayq config webhook rate=100/s burst=20 max-active=10',
    'delayq config webhook events=10000 event-types=dead,lost keep-done=24h',
    'delayq config webhook',
    'delayq config order-close partitions=16',
  ]);
}

/** After how long a growth that waits for active jobs says so, ms. */
const SILENT_MS = 5_000;

async function config(
  context: Context,
  queue: string,
  words: readonly string[],
  options: Globals & CreateOption,
): Promise<void> {
  const changes = words.map(parseChange);
  const settings: SettingsChange = Object.assign({}, ...changes.map((change) => change.settings));
  const partitions = changes.findLast((change) => change.partitions !== undefined)?.partitions;
  const { redis, prefix, operator } = access(context, options);
  await requireOrCreate(redis, prefix, queue, options);
  if (partitions !== undefined) {
    // Bad input changes nothing.
    checkGrows(queue, (await operator.partitions(queue)).partitions, partitions);
    const unlimited = `remove them: delayq config ${queueWord(queue)} rate= burst= max-active=`;
    if (partitions > 1) checkNoLimits(queue, { ...(await operator.configure(queue, {})), ...settings }, unlimited);
  }
  // One after the other: a server that wants a password ends the connection after its first refusal.
  const stored = await operator.configured(queue, settings);
  if (partitions !== undefined) await grow(context, operator, queue, partitions);
  await show(context, queue, stored, await operator.partitions(queue), options);
}

function parseChange(text: string): { settings?: SettingsChange; partitions?: number } {
  const at = text.indexOf('=');
  const [name, value] = [text.slice(0, at), text.slice(at + 1)];
  if (at > 0 && name === 'partitions') {
    return { partitions: checkPartitions(/^[1-9]\d*$/.test(value) ? Number(value) : Number.NaN, value) };
  }
  if (at > 0) return { settings: parseSetting(name, value) };
  const next = 'write name=value, such as tries=4, or name= to remove a setting';
  throw usageError(`${printable(text)} does not set a value`, next);
}

/** Grows the queue, and says how far it is, until it is done or stopped. */
async function grow(context: Context, operator: Operator, queue: string, partitions: number): Promise<void> {
  const stop = context.stopSignal();
  const started = performance.now();
  const progress = new Progress(context);
  let moved = 0;
  const said = new Set<string>();
  const sayOnce = (text: string, what: string) => {
    if (!said.has(what)) progress.say(`${queue}: ${text}`);
    said.add(what);
  };
  try {
    for await (const growth of operator.partition(queue, partitions)) {
      moved = growth.moved;
      if (growth.to !== partitions)
        sayOnce(`a growth to ${growth.to} partitions was begun before: it goes on first`, 'other');
      // It may wait for as long as the longest handler takes.
      if (growth.active > 0 && performance.now() - started > SILENT_MS) sayOnce(waitsFor(queue, growth), 'waits');
      progress.tell(() => `${queue}: ${inWords(growth)}`);
      if (!stop.aborted || growth.done) continue;
      context.outcomes.add('interrupted');
      const { from, to } = growth;
      return progress.say(`stopped: ${queue} is growing from ${from} to ${to} partitions; repeat the command to go on`);
    }
  } catch (error) {
    if (!isPassing(error)) throw error;
    const why = error.why ?? error.what;
    const next = 'repeat the command: it goes on';
    throw new DelayqError('temporary', `the growth of ${queue} is not done`, { why, next, cause: error });
  } finally {
    progress.clear();
  }
  const took = formatDuration(performance.now() - started);
  if (progress.wanted && moved > 0) progress.say(`${many(moved, 'job')} moved in ${took}`);
}

function waitsFor(queue: string, { active, moves }: Growth): string {
  const held = moves.map((to) => `; an unfinished move holds some: ${moveLine(queue, to)}`).join('');
  return `waits for ${many(active, 'active job')}, to be moved when they are done or their leases expire${held}`;
}

function inWords({ from, to, moved, active }: Growth): string {
  const waits = active > 0 ? `, waits for ${many(active, 'active job')}` : '';
  return `growing from ${from} to ${to} partitions, ${grouped(moved)} moved${waits}`;
}

async function show(
  context: Context,
  queue: string,
  stored: Readonly<Record<string, string>>,
  { partitions, growth }: Partitioning,
  options: Globals,
): Promise<void> {
  const set = readSettings(stored);
  const all = { ...DEFAULT_SETTINGS, ...set };
  // An empty text is as good as none.
  const isUnreadable = (name: keyof Settings) => Boolean(stored[name]) && !(name in set);
  if (options.json) {
    const values = Object.fromEntries(SETTING_NAMES.map((name) => [name, all[name]]));
    const names = SETTING_NAMES.filter((name) => name in set);
    const unreadable = SETTING_NAMES.filter(isUnreadable);
    return context.write(document({ queue, ...values, partitions, growth, set: names, unreadable }, orNull));
  }
  const paint = await colours(context, context.stdout);
  const rows = SETTING_NAMES.map((name) => {
    const isBad = isUnreadable(name);
    const value = isBad ? paint.yellow(printable(stored[name] as string, 20)) : formatSetting(name, all[name]);
    const meaning = isBad ? paint.yellow('cannot be read: the default applies') : paint.dim(MEANINGS[name]);
    const standard = paint.dim(formatSetting(name, DEFAULT_SETTINGS[name]));
    return [settingWord(name), isBad || name in set ? value : '-', standard, meaning];
  });
  const far = growth && `growing from ${growth.from}: ${Math.floor(100 * growth.moved)}% moved`;
  rows.push(['partitions', partitions === 1 ? '-' : `${partitions}`, paint.dim('1'), far ?? paint.dim(PARTITIONS)]);
  const lines = (await table(['setting', 'value', 'default', 'meaning'], rows, [0, 1, 2, 3])).split('\n');
  const room = sizeOf(context, context.stdout);
  await context.write(lines.map((line) => `${fold(line, room, 12).join('\n')}\n`).join(''));
}
