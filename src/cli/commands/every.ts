import { Command, Option } from 'commander';
import {
  type Attributes,
  DelayqError,
  formatDuration,
  formatTime,
  type Id,
  Inspector,
  isOfTexts,
  JsonText,
  type Missed,
  type Put,
  printable,
  queueWord,
  Recurring,
  type RecurringJob,
  shellWord,
  upcoming,
} from '../../internal.js';
import { decoded } from '../args/ids.js';
import { addGlobals, attribute, count, details, duration, examples, positiveDuration } from '../args/options.js';
import { jsonArgument, readPayload } from '../args/payload.js';
import { requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, say, table, visible, writeJson } from '../terminal/output.js';
import { recurringJson, SHOWN, whenText } from '../views/recurring.js';

interface Options extends Globals {
  readonly list?: boolean;
  readonly remove?: boolean;
  readonly pause?: boolean;
  readonly resume?: boolean;
  readonly id?: string;
  readonly tz?: string;
  readonly missed?: Missed;
  readonly overlap?: 'allow' | 'skip';
  readonly tries?: number;
  readonly maxLost?: number;
  readonly ttl?: number;
  readonly onceFor?: number;
  readonly attr?: Attributes;
  readonly text?: boolean;
  readonly quiet?: boolean;
}

/** What is done with recurring jobs that exist. */
const ACTS = ['list', 'remove', 'pause', 'resume'] as const;

export function everyCommand(context: Context): Command {
  const command = new Command('every')
    .description(
      'Add a job again and again: by a cron expression, or an interval. The drains of the queue make the jobs.',
    )
    .usage('[options] <when> <queue> <payload>')
    .argument('[words...]')
    .option('--id <id>', 'names the recurring job; putting it again changes it')
    .option('--tz <zone>', 'time zone of the expression and of printed times (env DELAYQ_TZ, TZ)')
    .addOption(
      new Option('--missed <which>', 'jobs for times at which nobody drained (default: once)').choices([
        'once',
        'skip',
        'all',
      ]),
    )
    .addOption(
      new Option('--overlap <choice>', 'while its last job is pending or active (default: allow)').choices([
        'allow',
        'skip',
      ]),
    )
    .option('--tries <n>', 'failures after which a job is dead', count)
    .option('--max-lost <n>', 'losses after which a job is dead', count)
    .option(
      '--ttl <duration>',
      'drop a job if it is delivered later than this after its due time; 0s: no limit',
      duration,
    )
    .option('--once-for <duration>', 'the id of a job stays taken so long after it has ended', positiveDuration)
    .option('--attr <name=value>', 'a text for the handler beside the payload, such as tenant=7; repeatable', attribute)
    .option('--text', 'store any text as a JSON string')
    .option('--list', 'list the recurring jobs of queues, or of all')
    .option('--remove', 'remove recurring jobs; jobs that they have made stay')
    .option('--pause', 'make no jobs until --resume')
    .option('--resume', 'go on with the next time from now')
    .option('-q, --quiet', 'print nothing')
    .option('--json', 'print one JSON document')
    .action((words: string[], options: Options) => every(context, words, options));
  details(command, [
    'With --list: names of queues, or none. With --remove, --pause, --resume: a queue',
    'and the ids of recurring jobs.',
    '',
    'When: a cron expression in quotes, or an interval such as 10s, 15m, 6h, 1d,',
    'which counts from when it is put.',
    '  minute hour day month weekday, and seconds before them if there are six fields',
    '  *  1,2  1-5  */15  8-18/2  jan  mon-fri; weekday 0 or 7 is Sunday',
    '  day: L the last of the month, 15W the weekday nearest to it',
    '  weekday: 5L the last Friday, 1#2 the second Monday',
    '  With a day and a weekday, either is enough; with + before the weekday, both',
    '  are needed. @hourly @daily @weekly @monthly @yearly',
    'When clocks change: a time of day that is skipped comes just after, once; one',
    'that comes twice counts once. With * or a step in the hours, both hours count.',
    '',
    'The payload is JSON; - reads it from stdin, @file from a file. Jobs have the ids',
    'ID@2026-11-23T08:00:00Z. They are made by whichever drain of the queue comes',
    'first; any number of them make one job. So keep a drain running (--watch).',
    '--missed: once makes one job for the latest time, skip only if it is at most a',
    'minute ago, all makes a job for each, at most 1,000. --overlap skip: makes no',
    'job while the last one is not done.',
  ]);
  examples(command, [
    `delayq every '0 9 * * 1-5' --tz Europe/Berlin --id daily-report report '{}'`,
    `delayq every 15m --id poll sync '{"from":"crm"}'`,
    'delayq every --list',
    'delayq every --pause report daily-report',
    'delayq every --remove report daily-report',
  ]);
  return addGlobals(command);
}

const bad = (what: string, next: string, why?: string) => new DelayqError('usage', what, { next, why });

async function every(context: Context, words: readonly string[], options: Options): Promise<void> {
  const asked = ACTS.filter((act) => options[act]);
  const [act] = asked;
  if (asked.length > 1) throw bad(`--${asked[0]} and --${asked[1]} exclude each other`, 'give one of them');
  if (act === undefined) return put(context, words, options);
  const { missed, overlap, tries, maxLost, ttl, onceFor, attr, text, id } = options;
  if ([missed, overlap, tries, maxLost, ttl, onceFor, attr, text, id].some((option) => option !== undefined)) {
    const next = act === 'list' ? 'delayq every --list [queue...]' : `delayq every --${act} QUEUE ID`;
    throw bad(`--${act} takes no options of a job`, `write ${next}`);
  }
  if (act === 'list') return list(context, words, options);
  const [queue, ...ids] = words;
  if (queue === undefined || ids.length === 0)
    throw bad(
      `--${act} needs a queue and ids`,
      `write delayq every --${act} QUEUE ID; they are in delayq every --list`,
    );
  await change(context, act, queue, ids, options);
}

async function put(context: Context, words: readonly string[], options: Options): Promise<void> {
  const [when, queue, payload, extra] = words;
  const form = `delayq every '0 9 * * 1-5' --id NAME QUEUE PAYLOAD`;
  if (when === undefined || queue === undefined || payload === undefined)
    throw bad('it needs a time, a queue and a payload', `write ${form}; without data, the payload null`);
  if (extra !== undefined)
    throw bad(
      'there are too many arguments',
      `quote the expression and the payload: ${form}`,
      `${printable(extra)} is left over`,
    );
  const { id, missed, overlap, tries, maxLost, ttl, onceFor, attr: attributes } = options;
  if (id === undefined)
    throw bad('a recurring job needs an id', `name it, so that it can be changed and removed: ${form}`);
  const tz = context.zone(options);
  const source = payload === '-' ? context.stdin : payload.startsWith('@') ? payload.slice(1) : undefined;
  const text = source === undefined ? payload : await readPayload(source);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const recurring = new Recurring(redis, { prefix });
  const isText = options.text || (await isOfTexts(redis, prefix, queue));
  const stored = isText ? JsonText.from(text) : source === undefined ? jsonArgument(text) : JsonText.parse(text);
  const job = { id, when, tz, payload: stored, missed, overlap, tries, maxLost, ttl, onceFor, attributes };
  await report(context, queue, await recurring.put(queue, job), { ...options, tz });
}

async function report(context: Context, queue: string, done: Put, options: Options & { tz: string }): Promise<void> {
  const { outcome, changes, job } = done;
  const times = await upcoming(job, SHOWN);
  if (options.json) {
    const more = { schema: 1, outcome, changes, upcoming: times };
    return writeJson(context, `${recurringJson(queue, job, more)}\n`);
  }
  if (options.quiet) return;
  await context.write(`${job.id}\n`);
  const what = outcome === 'replaced' ? `: ${changes.join(', ') || 'next time'}` : '';
  if (outcome !== 'created') say(context, `${outcome}${what}: ${job.id} was in ${queue} already`);
  if (job.paused) say(context, `it is paused: delayq every --resume ${queueWord(queue)} ${shellWord(job.id)}`);
  if (!context.stderr.isTTY) return;
  say(context, `recurs ${whenText(job, options.tz)}`);
  const zone = job.tz ?? options.tz;
  for (const [i, ms] of times.entries()) say(context, `${i === 0 ? 'next' : 'then'} ${formatTime(ms, zone)}`);
}

async function list(context: Context, words: readonly string[], options: Options): Promise<void> {
  const zone = context.zone(options);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const recurring = new Recurring(redis, { prefix });
  for (const queue of words) await requireQueue(redis, prefix, queue);
  const queues = words.length > 0 ? words : await new Inspector(redis, { prefix }).queues();
  const all: { queue: string; job: RecurringJob }[] = [];
  for (const queue of queues) for (const job of await recurring.list(queue)) all.push({ queue, job });
  if (options.json) {
    const jobs = all.map(({ queue, job }) => recurringJson(queue, job));
    return writeJson(context, `{"schema":1,"jobs":[${jobs.join(',')}]}\n`);
  }
  if (all.length === 0) return say(context, 'no recurring jobs');
  const now = await redis.now();
  const rows = all.map(({ queue, job }) => [
    visible(queue),
    visible(job.id),
    visible(job.when),
    visible(job.tz ?? ''),
    job.paused ? 'paused' : job.next === undefined ? 'never' : inWords(job.next, now, job.tz ?? zone),
  ]);
  await context.write(`${await table(['queue', 'id', 'when', 'zone', 'next'], rows, [0, 1, 2, 3, 4])}\n`);
}

function inWords(next: number, now: number, zone: string): string {
  return `${formatTime(next, zone)}, ${next > now ? `in ${formatDuration(next - now)}` : 'now'}`;
}

async function change(
  context: Context,
  act: 'remove' | 'pause' | 'resume',
  queue: string,
  ids: readonly string[],
  options: Options,
): Promise<void> {
  const zone = context.zone(options);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const recurring = new Recurring(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const results: object[] = [];
  for (const id of ids) {
    const actOn = async (one: Id) =>
      act === 'remove' ? (await recurring.remove(queue, [one]))[0] : recurring[act](queue, one as string);
    const bytes = decoded(id);
    const done = (await actOn(id)) || (bytes !== undefined && (await actOn(bytes)));
    const next = typeof done === 'object' ? (done.next ?? null) : null;
    results.push({ queue, id, outcome: done ? DONE[act] : 'missing', next });
    if (!done) context.outcomes.add('incomplete');
    if (options.json || (options.quiet && done)) continue;
    const then = next === null ? '' : `, next ${formatTime(next, zone)}`;
    say(
      context,
      done ? `${DONE[act]}: ${visible(id)} of ${queue}${then}` : `${queue} has no recurring job ${visible(id)}`,
    );
  }
  if (options.json) await context.write(document({ results }));
}

const DONE = { remove: 'removed', pause: 'paused', resume: 'resumed' };
