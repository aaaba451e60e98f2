import {
  formatTime,
  type Id,
  isOfTexts,
  JsonText,
  type Missed,
  type Put,
  printable,
  queueWord,
  type RecurringJob,
  shellWord,
  upcoming,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { decoded } from '../args/ids.js';
import { addJobOptions, choice, count, JOB_OPTIONS, type JobOptions } from '../args/options.js';
import { jsonArgument, readPayload } from '../args/payload.js';
import { access, requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, many, say, shownId, table, visible, writeJson } from '../terminal/output.js';
import { momentOf } from '../views/problems.js';
import { recurringJson, SHOWN, whenText } from '../views/recurring.js';

interface Options extends Globals, JobOptions, Partial<Record<Act, boolean>> {
  readonly id?: string;
  readonly tz?: string;
  readonly missed?: Missed;
  readonly overlap?: 'allow' | 'skip';
  readonly maxLost?: number;
  readonly quiet?: boolean;
}

/** What is done with recurring jobs that exist. */
const ACTS = ['list', 'remove', 'pause', 'resume'] as const;
type Act = (typeof ACTS)[number];

/** How many of those that cannot be read are named. */
const NAMED = 5;

export function everyCommand(command: CliCommand, context: Context): void {
  command
    .description(
      'Add a job again and again: by a cron expression, or an interval. The drains of the queue make the jobs.',
    )
    .usage('[options] <when> <queue> <payload>')
    .argument('[words...]')
    .option('--id <id>', 'name of the recurring job; every with the same id changes it')
    .option('--tz <zone>', 'time zone of the expression and of printed times (env DELAYQ_TZ, TZ)')
    .addOption(
      choice('--missed <which>', 'what to do with missed occurrences (default: once)', ['once', 'skip', 'all']),
    )
    .addOption(choice('--overlap <choice>', 'while its last job is not done (default: allow)', ['allow', 'skip']));
  addJobOptions(command)
    .option('--max-lost <n>', 'losses after which the job is dead', count)
    .option('--list', 'list the recurring jobs of queues, or of all')
    .option('--remove', 'remove recurring jobs; jobs that they have made stay')
    .option('--pause', 'make no jobs until --resume')
    .option('--resume', 'make jobs again, from the next time on')
    .option('-q, --quiet', 'print nothing')
    .option('--json', 'print one JSON document')
    .action((words: string[], options: Options) => every(context, words, options));
  const ofJob = ['id', 'missed', 'overlap', 'maxLost', ...JOB_OPTIONS];
  command.exclude({
    list: ['remove', 'pause', 'resume', ...ofJob],
    remove: ['pause', 'resume', ...ofJob],
    pause: ['resume', ...ofJob],
    resume: ofJob,
  });
  command.details(`
    With --list: names of queues, or none. With --remove, --pause, --resume: a queue and the ids of recurring jobs.

    When:
      interval  10s, 15m, 6h, 1d …, counted from when you put the job
      cron      in quotes: minute hour day month weekday; six fields begin with
                seconds. @hourly @daily @weekly @monthly @yearly
      fields    * 1,2 1-5 */15 8-18/2 jan mon-fri; weekday 0 or 7 is Sunday
      day       L the last of the month, 15W the weekday nearest to the 15th
      weekday   5L the last Friday, 1#2 the second Monday
      both      of a day and a weekday either is enough; with + before the
                weekday, both are needed

    When clocks change, a time of day that is skipped comes just after, once; one that comes twice counts once. With *
    or a step in the hours, both hours count.

    Missed times, at which nobody drained:
      once      make one job, for the latest time
      skip      make that one only if its time is at most a minute ago
      all       make a job for each, at most 1,000

    The payload is JSON; - reads it from stdin, @file from a file. The first drain of the queue to come after a time
    makes its job; several drains make one job. So keep a drain running (--watch). The ids of jobs are
    ID@2026-11-23T08:00:00Z. With --overlap skip, no job is made while the last one is not done.
  `);
  command.examples([
    `delayq every '0 9 * * 1-5' --tz Europe/Berlin --id daily-report report '{}'`,
    `delayq every 15m --id poll sync '{"from":"crm"}'`,
    'delayq every --list',
    'delayq every --pause report daily-report',
    'delayq every --remove report daily-report',
  ]);
}

async function every(context: Context, words: readonly string[], options: Options): Promise<void> {
  const act = ACTS.find((name) => options[name]);
  if (act === undefined) return put(context, words, options);
  if (act === 'list') return list(context, words, options);
  const [queue, ...ids] = words;
  if (queue === undefined || ids.length === 0) {
    const next = `write delayq every --${act} QUEUE ID; they are in delayq every --list`;
    throw usageError(`--${act} needs a queue and ids`, next);
  }
  await change(context, act, queue, ids, options);
}

async function put(context: Context, words: readonly string[], options: Options): Promise<void> {
  const [when, queue, payload, extra] = words;
  const form = `delayq every '0 9 * * 1-5' --id NAME QUEUE PAYLOAD`;
  if (when === undefined || queue === undefined || payload === undefined)
    throw usageError('a time, a queue and a payload are needed', `write ${form}; without data, the payload null`);
  if (extra !== undefined) {
    const next = `put the expression and the payload into quotes: ${form}`;
    throw usageError('there are too many arguments', next, `${printable(extra)} is left over`);
  }
  const { id, missed, overlap, tries, maxLost, ttl, onceFor, attr: attributes } = options;
  if (id === undefined)
    throw usageError('a recurring job needs an id', `name it, so that it can be changed and removed: ${form}`);
  const tz = context.zone(options);
  const source = payload === '-' ? context.stdin : payload.startsWith('@') ? payload.slice(1) : undefined;
  const text = source === undefined ? payload : await readPayload(source);
  const { redis, prefix, recurring } = access(context, options);
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
  const { redis, prefix, inspector, recurring } = access(context, options);
  for (const queue of words) await requireQueue(redis, prefix, queue);
  const queues = words.length > 0 ? words : await inspector.queues();
  const all: { queue: string; job: RecurringJob }[] = [];
  let isWhole = true;
  for (const queue of queues) {
    const { jobs, unreadable } = await recurring.listed(queue);
    all.push(...jobs.map((job) => ({ queue, job })));
    if (unreadable.length === 0) continue;
    isWhole = false;
    const ids = unreadable.slice(0, NAMED).map(shownId).join(', ') + (unreadable.length > NAMED ? ' …' : '');
    say(
      context,
      `${queue}: ${many(unreadable.length, 'recurring job')} cannot be read: ${ids}; what to do: delayq doctor ${queueWord(queue)}`,
    );
  }
  if (options.json) {
    const jobs = all.map(({ queue, job }) => recurringJson(queue, job));
    return writeJson(context, `{"schema":1,"jobs":[${jobs.join(',')}]}\n`);
  }
  if (all.length === 0) return isWhole ? say(context, 'no recurring jobs') : undefined;
  const now = await redis.now();
  const rows = all.map(({ queue, job }) => [
    visible(queue),
    visible(job.id),
    visible(job.when),
    visible(job.tz ?? ''),
    job.paused ? 'paused' : job.next === undefined ? 'never' : momentOf(job.next, now, job.tz ?? zone),
  ]);
  await context.write(`${await table(['queue', 'id', 'when', 'zone', 'next'], rows, [0, 1, 2, 3, 4])}\n`);
}

async function change(
  context: Context,
  act: Exclude<Act, 'list'>,
  queue: string,
  ids: readonly string[],
  options: Options,
): Promise<void> {
  const zone = context.zone(options);
  const { redis, prefix, recurring } = access(context, options);
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
    const missing = `${queue} has no recurring job ${visible(id)}`;
    say(context, done ? `${DONE[act]}: ${visible(id)} of ${queue}${then}` : missing);
  }
  if (options.json) await context.write(document({ results }));
}

const DONE = { remove: 'removed', pause: 'paused', resume: 'resumed' };
