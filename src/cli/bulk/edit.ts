import type { Command } from 'commander';
import {
  DelayqError,
  type Filter,
  type Id,
  Inspector,
  idKey,
  Operator,
  type State,
  type StoredJob,
} from '../../internal.js';
import { addFilters, type FilterOptions, filterOf, isFiltered } from '../args/filters.js';
import { idsOf } from '../args/ids.js';
import { requireQueue } from '../args/queues.js';
import type { Context } from '../host/context.js';
import { colours, document, grouped, many, say, shownId, sizeOf, writeJson } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';
import { brief, jobTable } from '../views/jobs.js';
import { decline, isAgreed, requireTerminal } from './confirm.js';
import { LineInput } from './input.js';
import type { EditResult } from './results.js';

export interface EditOptions extends FilterOptions {
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

export interface Edit<R extends string> extends Plan<R> {
  readonly queue: string;
  /** The arguments of the command line: ids, or - for stdin. */
  readonly ids: readonly string[];
  readonly options: EditOptions;
  readonly states: readonly State[];
}

/** What an edit does with its jobs. */
interface Plan<R extends string> {
  /** As in "cancel 3 jobs" and "3 jobs cancelled". */
  readonly verb: string;
  readonly participle: string;
  readonly results: Readonly<Record<R, EditResult>>;
  /** Said after the number of jobs that are to be edited, or were. */
  detail?(jobs: number): string;
  /**
   * Edited jobs still match the filter, so all jobs are collected before the first is edited, and edited in the order
   * of their due times. (Otherwise the filter, or `delayq list` in a pipe before this command, would find them again.)
   */
  readonly collect?: boolean;
  /** The place in "3 jobs cancelled in order-close". */
  readonly where?: string;
  readonly fields?: object;
  /** Edits jobs. Returns a result for each. `states` are those that the options ask for. */
  apply(operator: Operator, ids: readonly Id[], states: readonly State[]): Promise<readonly R[]>;
}

interface Run {
  readonly context: Context;
  readonly edit: Edit<string>;
  readonly inspector: Inspector;
  readonly stop: AbortSignal;
  /** As in "cancelled in order-close", with the detail for so many jobs. */
  done(jobs: number): string;
}

/** The jobs to edit. */
interface Selection {
  readonly ids: AsyncIterable<readonly Id[]> | Iterable<readonly Id[]>;
  /** How many they are, if that is known. */
  readonly total?: number | undefined;
  readonly states: readonly State[];
}

const SAMPLES = 3;

/** The width of their table where no terminal has one, columns. */
const WIDTH = 1_000;

/** Ids of one call: few, so that a stop takes effect soon. */
const CHUNK = 200;

/** Adds the arguments and options that choose jobs of `states`, and say how to edit them. */
export function addEditOptions(command: Command, states: readonly State[]): Command {
  command
    .usage('[options] <queue> [id… | -]')
    .argument('<queue>', 'name of the queue')
    .argument('[id...]', 'ids of jobs; - reads them from stdin, one a line; base64:… gives the bytes of an id')
    .option('--all', `all ${states.length > 1 ? '' : `${states[0]} `}jobs`);
  return addFilters(command, states)
    .option('-y, --yes', 'do not ask for confirmation')
    .option('--dry-run', 'show which jobs would be edited, change nothing')
    .option('-q, --quiet', 'print no summary')
    .option('--json', 'print the counts as one JSON document');
}

/** Adds to a command what {@link addEditOptions} does, and the edit that `planOf` returns for a queue. */
export function addEdit<R extends string, O extends EditOptions>(
  context: Context,
  command: Command,
  states: readonly State[],
  planOf: (queue: string, options: O) => Plan<R> | Promise<Plan<R>>,
): Command {
  return addEditOptions(command, states).action(async (queue: string, ids: string[], options: O) => {
    const plan = await planOf(queue, options);
    await editJobs(context, { queue, ids, options, states, ...plan });
  });
}

/** Edits the jobs that ids or a filter name, and reports what became of them. */
export async function editJobs<R extends string>(context: Context, edit: Edit<R>): Promise<void> {
  const { queue, options, ids, participle, where = `in ${queue}` } = edit;
  checkChoice(ids, options);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  const done = (jobs: number) => `${participle} ${where}${detailOf(edit, jobs)}`;
  const run: Run = { context, edit: edit as unknown as Edit<string>, inspector, stop: context.stopSignal(), done };
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const selection = await (ids.length > 0 ? selectNamed(run) : selectFiltered(run, now));
  if (selection) await apply(run, new Operator(redis, { prefix }), selection);
}

/** Throws `usage` unless there is either an id or a filter. */
function checkChoice(ids: readonly string[], options: EditOptions): void {
  const isNamed = ids.length > 0;
  if (isNamed === Boolean(options.all || isFiltered(options))) {
    const what = isNamed ? 'ids and a filter exclude each other' : 'no job is named';
    throw new DelayqError('usage', what, { next: NAME_JOBS });
  }
  if (ids.includes('-') && ids.length > 1)
    throw new DelayqError('usage', '- and ids exclude each other', { next: 'give - alone, or ids' });
}

/** What to do when no job is named. */
export const NAME_JOBS =
  'give ids, or - for ids on stdin, or a filter such as -n 10, --from -2h, --grep TEXT, or --all';

/** The jobs that ids name; undefined after a dry run. */
async function selectNamed(run: Run): Promise<Selection | undefined> {
  const { edit, inspector, stop, context } = run;
  const { queue, ids, options, states } = edit;
  const toIds = (words: readonly string[]) => idsOf(inspector, queue, words);
  const wordsOnStdin = () => new LineInput(context).read(context.stdin, stop, (text) => text.trim());
  if (ids[0] === '-' && !edit.collect && !options.dryRun) {
    const stdin = async function* () {
      for await (const words of wordsOnStdin()) yield await toIds(words);
    };
    return { ids: stdin(), states };
  }
  const words = new Set(ids);
  if (words.delete('-')) for await (const some of wordsOnStdin()) for (const word of some) words.add(word);
  const found = await toIds([...words]);
  if (options.dryRun) return dryRunNamed(run, found);
  if (!edit.collect) return { ids: [found], states };
  const sorted = await inspector.inOrder(queue, found);
  return { ids: [sorted], total: sorted.length, states };
}

/** Reports which of the named jobs could be edited. */
async function dryRunNamed({ context, edit, inspector, done }: Run, ids: readonly Id[]): Promise<undefined> {
  const { queue, options, states } = edit;
  let jobs = 0;
  let before = 0;
  // Few at a time: jobs come with their payloads.
  for await (const some of inspector.shown(queue, ids)) {
    for (const [i, job] of some.entries()) {
      if (job && states.includes(job.state)) jobs += 1;
      else if (!options.json) say(context, `${shownId(ids[before + i])} is ${job ? job.state : `not in ${queue}`}`);
    }
    before += some.length;
  }
  if (jobs < ids.length) context.outcomes.add('incomplete');
  if (options.json) await context.write(document({ queue, dryRun: true, jobs }));
  else say(context, `${many(jobs, 'job')} would be ${done(jobs)}`);
}

/** The jobs that a filter finds; undefined after a dry run, and when the user does not agree. */
async function selectFiltered(run: Run, now: number): Promise<Selection | undefined> {
  const { context, edit, inspector, stop } = run;
  const { queue, options } = edit;
  const filter = await decided(run, filterOf(context, options, { states: edit.states, now }));
  const { states } = filter;
  // Some that are counted now may be missing from the list: they are on their way.
  const before = await inspector.movement(queue);
  const samples: StoredJob[] = [];
  const limit = Math.min(SAMPLES, filter.limit ?? SAMPLES);
  for await (const job of inspector.list(queue, { ...filter, limit })) samples.push(brief(job, WIDTH));
  const ids = edit.collect ? await collect(run, filter) : undefined;
  const count = ids?.length ?? (await countOf(run, filter));
  if (!stop.aborted && (count > 0 || options.dryRun)) {
    if (options.dryRun && options.json) {
      await writeJson(context, document({ queue, dryRun: true, jobs: count, samples: samples.map(({ id }) => id) }));
      return undefined;
    }
    if ((!options.yes || options.dryRun) && !(await preview(run, count, samples, { states, now }))) return undefined;
  }
  if (ids) return { ids: [ids], total: count, states };
  // At most as many as were counted: a job that dies again in the meantime must not be requeued for ever.
  let max = count;
  let left = filter.limit ?? Number.POSITIVE_INFINITY;
  let { to } = filter;
  const list = async function* () {
    for await (const some of inspector.ids(queue, { ...filter, to, limit: Math.min(max, left) })) {
      left -= some.length;
      yield some;
    }
    // For what a growth has kept from this list.
    max = Number.POSITIVE_INFINITY;
    if (states.every((state) => state === 'dead')) to = Math.min(to ?? now, now);
  };
  // What a growth is moving is not counted.
  const total = count > 0 ? count : undefined;
  return { ids: inspector.again(queue, list, { before, signal: stop }), total, states };
}

/** A filter that stays the same from here on. A job that a growth is moving just now must not make its error a mere text. */
async function decided({ edit, inspector, stop }: Run, asked: Filter): Promise<Filter> {
  if (asked.error === undefined) return asked;
  const decide = async function* () {
    yield await inspector.decided(edit.queue, asked);
  };
  let filter = asked;
  for await (filter of inspector.again(edit.queue, decide, { signal: stop }));
  return filter;
}

async function countOf({ edit, inspector, stop }: Run, filter: Filter): Promise<number> {
  const counted = await inspector.count(edit.queue, filter);
  if (counted !== undefined) return counted;
  let count = 0;
  for await (const some of inspector.ids(edit.queue, filter)) {
    count += some.length;
    if (stop.aborted) break;
  }
  return count;
}

/** All ids that a filter finds, in the order of their times. */
async function collect({ edit, inspector, stop }: Run, filter: Filter): Promise<readonly Id[]> {
  const found = new Map<string, Id>();
  let lists = 0;
  const list = () => {
    lists += 1;
    return inspector.ids(edit.queue, filter);
  };
  for await (const some of inspector.again(edit.queue, list, { signal: stop })) {
    for (const id of some) found.set(idKey(id), id);
    if (stop.aborted) break;
  }
  const ids = [...found.values()];
  // Failed jobs are not listed by their due times.
  return lists === 1 && !filter.failed ? ids : (await inspector.inOrder(edit.queue, ids)).slice(0, filter.limit);
}

/** Shows some of the jobs and, unless this is a dry run, asks. Returns whether to go on. */
async function preview(
  { context, edit, stop, done }: Run,
  count: number,
  samples: readonly StoredJob[],
  shown: { readonly states: readonly State[]; readonly now: number },
): Promise<boolean> {
  const { queue, options, verb, participle } = edit;
  const what = `${verb} ${many(count, 'job')}`;
  if (options.dryRun) say(context, `${many(count, 'job')} would be ${done(count)}`);
  else requireTerminal(context, what, 'see them with --dry-run, then repeat with --yes');
  const paint = await colours(context, context.stderr);
  const { width } = sizeOf(context, context.stderr);
  const how = { ...shown, paint, first: true, width, wholeIds: !context.stderr.isTTY };
  if (samples.length > 0) context.stderr.write(`${await jobTable(samples, how)}\n`);
  if (count > samples.length) context.stderr.write(`… and ${grouped(count - samples.length)} more\n`);
  if (options.dryRun) return false;
  if (await isAgreed(context, `${what} of ${queue}${detailOf(edit, count)}`, stop)) return true;
  decline(context, `nothing ${participle}`, stop);
  return false;
}

async function apply(run: Run, operator: Operator, { ids, total, states }: Selection): Promise<void> {
  const { context, edit, stop } = run;
  const { queue, options, verb, participle, results } = edit;
  const isNamed = edit.ids.length > 0;
  const counts: Record<string, number> = Object.fromEntries(Object.keys(results).map((result) => [result, 0]));
  const sum = (isMeant: (result: EditResult) => boolean) =>
    Object.entries(results).reduce((all, [result, one]) => all + (isMeant(one) ? (counts[result] ?? 0) : 0), 0);
  const done = () => sum(({ isDone, isElsewhere }) => isDone && !isElsewhere);
  const summary = () => `${many(done(), 'job')} ${run.done(done())}`;
  const progress = new Progress(context, !options.quiet && total !== undefined);
  try {
    if (total !== 0 && !stop.aborted) {
      for await (const some of inChunks(ids)) {
        for (const [i, result] of (await edit.apply(operator, some, states)).entries()) {
          counts[result] = (counts[result] ?? 0) + 1;
          const { text, total, isElsewhere } = results[result] as EditResult;
          if (text && (isNamed || !(total || isElsewhere))) {
            progress.clear();
            say(context, `${shownId(some[i])} ${text}`);
          }
        }
        progress.tell(() => `${participle} ${grouped(done())} of ${grouped(total ?? 0)}`);
        if (stop.aborted) break;
      }
    }
  } catch (error) {
    progress.clear();
    if (done() > 0 && !options.quiet) say(context, `${summary()} before this:`);
    throw error;
  }
  progress.clear();
  if (options.json) await context.write(document({ queue, ...counts, ...edit.fields }), summary());
  else if (!options.quiet) {
    say(context, `${summary()}${stop.aborted ? `; stopped: repeat the command to ${verb} the rest` : ''}`);
    for (const [result, { text, total }] of Object.entries(results)) {
      const n = counts[result] ?? 0;
      if (!isNamed && total && n > 0) say(context, `${grouped(n)} of them ${n === 1 ? text : total}`);
    }
  }
  if (sum(({ isDone, isElsewhere }) => !isDone && (isNamed || !isElsewhere)) > 0) context.outcomes.add('incomplete');
  if (stop.aborted) context.outcomes.add('interrupted');
}

async function* inChunks(ids: Selection['ids']): AsyncGenerator<readonly Id[]> {
  for await (const some of ids) for (let i = 0; i < some.length; i += CHUNK) yield some.slice(i, i + CHUNK);
}

function detailOf({ detail }: { detail?(jobs: number): string }, jobs: number): string {
  return jobs > 0 ? (detail?.(jobs) ?? '') : '';
}
