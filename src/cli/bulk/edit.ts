import type { Command } from 'commander';
import { DelayqError, type Filter, type Id, Inspector, type StoredJob } from '../../internal.js';
import { addFilters, type FilterOptions, filterOf, isFiltered } from '../args/filters.js';
import { idsOf } from '../args/ids.js';
import { requireQueue } from '../args/queues.js';
import type { Context } from '../host/context.js';
import { lines } from '../lines/reader.js';
import { colours, document, grouped, many, say, shownId } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';
import { brief, jobTable } from '../views/jobs.js';

/*
 * What all commands have in common that act on jobs: ids, ids on stdin, or a filter; asking; progress; stopping.
 */

type State = StoredJob['state'];

/** Options of a command that acts on jobs. */
export interface ActOptions extends FilterOptions {
  readonly all?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

/** What can become of a job. */
interface Answer {
  /** It is as the caller wants it. */
  readonly good: boolean;
  /** What is said of it, behind its id; nothing when it is left out. */
  readonly says?: string;
  /** What is said of several that a filter found, behind how many they are, instead of a line for each. */
  readonly sum?: string;
  /** It was not where a filter found it, or never there: only who named it wants to know. */
  readonly elsewhere?: boolean;
}

/** An act on some jobs of a queue. */
export interface Act<A extends string> {
  readonly queue: string;
  /** As they stand on the command line: ids, or - for stdin. */
  readonly ids: readonly string[];
  readonly options: ActOptions;
  /** In which state jobs can be acted on. */
  readonly states: readonly State[];
  /** What it does to a job and has done, as in "cancel 3 jobs" and "3 jobs cancelled". */
  readonly verb: string;
  readonly done: string;
  readonly answers: Readonly<Record<A, Answer>>;
  /** What is said behind so many jobs that are to be acted on, or were. */
  detail?(jobs: number): string;
  /**
   * The jobs stay where a filter finds them, and so does `list` in a pipe before us: all of them are looked for before the
   * first is acted on, and then in the order in which they stand in line.
   */
  readonly stay?: boolean;
  /** Where it is done, as in "3 jobs cancelled in order-close", when that is not just the queue. */
  readonly where?: string;
  /** What else its JSON document tells. */
  readonly also?: object;
  /** Does it, and answers for each. `states` are those that were asked for. */
  act(ids: readonly Id[], states: readonly State[]): Promise<readonly A[]>;
}

/** So many jobs are shown before the question. */
const SAMPLES = 3;

/** How wide they are where no terminal says so, columns: payloads may be large. */
const WIDTH = 1_000;

/** So many ids are acted on at a time: what was asked to stop, stops soon. */
const CHUNK = 200;

/** Adds the arguments and options that choose jobs of `states`, and how they are acted on. */
export function addAct(command: Command, states: readonly State[]): Command {
  command
    .usage('[options] <queue> [id… | -]')
    .argument('<queue>', 'name of the queue')
    .argument('[id...]', 'ids of jobs; - reads them from stdin, one a line; base64:… for bytes that cannot be typed')
    .option('--all', `all ${states.length > 1 ? '' : `${states[0]} `}jobs`);
  return addFilters(command, states)
    .option('-y, --yes', 'do not ask: for scripts')
    .option('--dry-run', 'say which jobs are meant, and do nothing')
    .option('-q, --quiet', 'do not say how many')
    .option('--json', 'print how many as one JSON document');
}

/** Carries out an act; sets the exit code: 1 when a job that was named could not be acted on, 130 when it was stopped. */
export async function actOn<A extends string>(context: Context, act: Act<A>): Promise<void> {
  const { queue, ids, options, states, verb, done, answers, stay } = act;
  const named = checkWays(ids, options);
  const stop = context.stopSignal();
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  let filter = named ? { states } : filterOf(context, options, { states, now });
  let total: number | undefined;
  let chunks: AsyncIterable<readonly Id[]> | Iterable<readonly Id[]>;
  if (named) {
    const read = (words: readonly string[]) => idsOf(inspector, queue, words);
    if (options.dryRun) return dryRun(context, act, inspector, await read(await wordsNamed(context, ids, stop)));
    chunks = ids[0] === '-' ? idsOnStdin(context, read, stop) : [await read(await wordsNamed(context, ids, stop))];
    if (stay) {
      const all = await inspector.inOrder(queue, await read(await wordsNamed(context, ids, stop)));
      total = all.length;
      chunks = [all];
    }
  } else {
    const found = await look(inspector, act, filter, stop);
    total = found.count;
    if (!stop.aborted && (total > 0 || options.dryRun)) {
      if (!(await agreed(context, act, { ...found, now, filter, stop }))) return;
    }
    // No more than were counted: one that dies again meanwhile must not go round for ever.
    filter = { ...filter, limit: total };
    chunks = found.ids ?? inspector.ids(queue, filter);
  }

  const counts = Object.fromEntries(Object.keys(answers).map((answer) => [answer, 0])) as Record<A, number>;
  const good = () => sum(counts, (answer) => answers[answer].good);
  const detail = () => (good() > 0 ? (act.detail?.(good()) ?? '') : '');
  const progress = new Progress(context, !options.quiet && total !== undefined);
  try {
    if (total !== 0 && !stop.aborted) {
      for await (const some of inChunks(chunks)) {
        for (const [i, answer] of (await act.act(some, filter.states)).entries()) {
          counts[answer] += 1;
          const { says, sum, elsewhere } = answers[answer];
          if (says && (named || !(sum || elsewhere))) {
            progress.clear();
            say(context, `${shownId(some[i])} ${says}`);
          }
        }
        progress.tell(() => `${done} ${grouped(good())} of ${grouped(total ?? 0)}`);
        if (stop.aborted) break;
      }
    }
  } catch (error) {
    progress.clear();
    if (good() > 0 && !options.quiet)
      say(context, `${many(good(), 'job')} ${done} ${whereOf(act)}${detail()} before this:`);
    throw error;
  }
  progress.clear();
  if (options.json) await context.write(document({ queue, ...counts, ...act.also }));
  else if (!options.quiet) {
    const stopped = stop.aborted ? `; stopped, ${verb} the rest by repeating the command` : '';
    say(context, `${many(good(), 'job')} ${done} ${whereOf(act)}${detail()}${stopped}`);
    for (const [answer, n] of Object.entries<number>(counts)) {
      const { sum } = answers[answer as A];
      if (!named && sum && n > 0) say(context, `${grouped(n)} of them ${sum}`);
    }
  }
  if (sum(counts, (answer) => !answers[answer].good && (named || !answers[answer].elsewhere)) > 0)
    context.outcomes.add('incomplete');
  if (stop.aborted) context.outcomes.add('interrupted');
}

/** The same ids, few at a time. */
async function* inChunks(
  chunks: AsyncIterable<readonly Id[]> | Iterable<readonly Id[]>,
): AsyncGenerator<readonly Id[]> {
  for await (const ids of chunks) for (let i = 0; i < ids.length; i += CHUNK) yield ids.slice(i, i + CHUNK);
}

function whereOf<A extends string>({ where, queue }: Act<A>): string {
  return where ?? `in ${queue}`;
}

function sum<A extends string>(counts: Readonly<Record<A, number>>, which: (answer: A) => boolean): number {
  return (Object.keys(counts) as A[]).filter(which).reduce((all, answer) => all + counts[answer], 0);
}

/** Whether ids are given rather than a filter. Throws a `usage` error unless it is exactly one of them. */
function checkWays(ids: readonly string[], options: ActOptions): boolean {
  const named = ids.length > 0;
  const filtered = options.all || isFiltered(options);
  if (named === Boolean(filtered)) {
    throw new DelayqError('usage', named ? 'jobs are named in two ways' : 'no job is named', {
      next: 'give ids, or - for ids on stdin, or a filter such as -n 10, --from -2h, --grep TEXT, or --all',
    });
  }
  if (ids.includes('-') && ids.length > 1)
    throw new DelayqError('usage', '- stands alone', { next: 'leave out the ids' });
  return named;
}

/** The ids on stdin, as they come. */
async function* idsOnStdin(
  context: Context,
  read: (words: readonly string[]) => Promise<Id[]>,
  stop: AbortSignal,
): AsyncGenerator<Id[]> {
  for await (const words of wordsOnStdin(context, stop)) yield await read(words);
}

async function* wordsOnStdin(context: Context, stop: AbortSignal): AsyncGenerator<string[]> {
  stop.addEventListener('abort', () => context.stdin.destroy());
  try {
    for await (const some of lines(context.stdin)) {
      for (const { number, error } of some.filter((line) => line.error)) {
        say(context, `line ${number}: ${error?.message}`);
        context.outcomes.add('incomplete');
      }
      yield some.flatMap(({ text, error }) => (error ? [] : [text.trim()]));
    }
  } catch (error) {
    if (!stop.aborted) throw error;
  }
}

/** What names the ids, each once. */
async function wordsNamed(context: Context, ids: readonly string[], stop: AbortSignal): Promise<readonly string[]> {
  if (ids[0] !== '-') return [...new Set(ids)];
  const all = new Set<string>();
  for await (const some of wordsOnStdin(context, stop)) for (const id of some) all.add(id);
  return [...all];
}

interface Found {
  readonly count: number;
  readonly samples: readonly StoredJob[];
  /** All of them, when they had to be kept. */
  readonly ids: Id[][] | undefined;
}

/** Counts the jobs that a filter means. */
async function look<A extends string>(
  inspector: Inspector,
  { queue, stay }: Act<A>,
  filter: Filter,
  stop: AbortSignal,
): Promise<Found> {
  const samples: StoredJob[] = [];
  const limit = Math.min(SAMPLES, filter.limit ?? SAMPLES);
  for await (const job of inspector.list(queue, { ...filter, limit })) samples.push(brief(job, WIDTH));
  const ids: Id[][] | undefined = stay ? [] : undefined;
  const known = stay ? undefined : await inspector.count(queue, filter);
  if (known !== undefined) return { count: known, samples, ids };
  let count = 0;
  for await (const some of inspector.ids(queue, filter)) {
    count += some.length;
    ids?.push(some);
    if (stop.aborted) break;
  }
  return { count, samples, ids };
}

/** Shows what is meant and asks. Whether to go on. */
async function agreed<A extends string>(
  context: Context,
  act: Act<A>,
  { count, samples, now, filter, stop }: Found & { now: number; filter: Filter; stop: AbortSignal },
): Promise<boolean> {
  const { queue, options, verb, done } = act;
  const detail = count > 0 ? (act.detail?.(count) ?? '') : '';
  if (options.dryRun && options.json) {
    await context.write(document({ queue, dryRun: true, jobs: count, samples: samples.map(({ id }) => id) }));
    return false;
  }
  if (options.yes && !options.dryRun) return true;
  if (!options.dryRun && !context.canAsk) {
    throw new DelayqError('usage', `nobody is here to be asked whether to ${verb} ${many(count, 'job')}`, {
      why: 'a filter chose them, and stdin and stderr are no terminal',
      next: 'see them with --dry-run, then repeat with --yes',
    });
  }
  const paint = await colours(context, context.stderr);
  const { columns: width = WIDTH } = context.stderr;
  const { states } = filter;
  if (options.dryRun) say(context, `${many(count, 'job')} would be ${done} ${whereOf(act)}${detail}`);
  if (samples.length > 0)
    context.stderr.write(`${await jobTable(samples, { now, paint, first: true, width, states })}\n`);
  if (count > samples.length) context.stderr.write(`… and ${grouped(count - samples.length)} more\n`);
  if (options.dryRun) return false;
  const answer = await context.ask(`${verb} ${many(count, 'job')} of ${queue}${detail}? [y/N] `, stop);
  if (/^y(es)?$/i.test(answer.trim())) return true;
  say(context, `nothing ${done}`);
  context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
  return false;
}

/** Says which of the jobs that are named could be acted on. */
async function dryRun<A extends string>(
  context: Context,
  act: Act<A>,
  inspector: Inspector,
  ids: readonly Id[],
): Promise<void> {
  const { queue, options, states, done } = act;
  let there = 0;
  let at = 0;
  // A few at a time: they come with their payloads.
  for await (const some of inspector.shown(queue, ids)) {
    for (const [i, job] of some.entries()) {
      if (job && states.includes(job.state)) there += 1;
      else if (!options.json) say(context, `${shownId(ids[at + i])} is ${job ? job.state : `not in ${queue}`}`);
    }
    at += some.length;
  }
  if (there < ids.length) context.outcomes.add('incomplete');
  if (options.json) return context.write(document({ queue, dryRun: true, jobs: there }));
  const detail = there > 0 ? (act.detail?.(there) ?? '') : '';
  say(context, `${many(there, 'job')} would be ${done} ${whereOf(act)}${detail}`);
}
