import {
  DEFAULT_SETTINGS,
  type DoneJob,
  type Id,
  type Inspector,
  idWord,
  nothingKept,
  type StoredJob,
  triesLeft,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { addFilters, type FilterOptions, filterOf } from '../args/filters.js';
import { access, requireQueue } from '../args/queues.js';
import { warnerOfGrowth } from '../bulk/growth.js';
import type { Context } from '../host/context.js';
import { colours, many, say, sizeOf, visible, writeJson } from '../terminal/output.js';
import { doneJson, doneTable } from '../views/done.js';
import { GROUP_LINES, groupJson, groupTable } from '../views/errors.js';
import { brief, jobJson, jobTable } from '../views/jobs.js';

interface Options extends FilterOptions {
  readonly errors?: boolean;
  readonly done?: boolean;
  readonly full?: boolean;
  readonly ids?: boolean;
}

/** Dead jobs first: they need attention. */
const STATES = ['dead', 'active', 'pending'] as const;

/** --errors looks at all pending and dead jobs. */
const NOT_OF_ERRORS = [...STATES, 'overdue', 'failed', 'from', 'to', 'grep', 'error', 'ids', 'done'] as const;

/** Nothing is kept of jobs that are done but when, by whom, and what came out. */
const NOT_OF_DONE = [...STATES, 'overdue', 'failed', 'grep', 'error'] as const;

/** Lines of a terminal that are not for rows: the command line, the head of the table, what is left out, the prompt. */
const OTHER_LINES = 4;

/** Rows that are laid out together: enough for a screen, few enough to appear at once. */
const ROWS = 200;

/** Rows are also written when they have this many bytes of payload. */
const BYTES = 1024 * 1024;

export function listCommand(command: CliCommand, context: Context): void {
  command
    .description('List jobs, those of each state in the order of their times.')
    .argument('<queue>', 'name of the queue');
  addFilters(command, STATES)
    .option('--done', 'jobs that are done, with their results, as long as the queue keeps them')
    .option('--errors', 'count pending and dead jobs by their errors, the most frequent first')
    .option('--full', 'do not cut payloads, errors and results')
    .option('--ids', 'print only ids, one a line')
    .option('--json', 'print JSON Lines, one a job, or one an error')
    .action((queue: string, options: Options) =>
      (options.errors ? errors : options.done ? listDone : list)(context, queue, options),
    );
  command.exclude({ ids: ['json'], errors: [...NOT_OF_ERRORS], done: [...NOT_OF_DONE] });
  command.details(`
    A terminal shows as many jobs as fit, a pipe gets all of them; -n sets another limit. Ids are cut only on a
    terminal, payloads, errors and results unless --full.

    --failed shows when each job failed last, and how many of its tries have failed: "2 of 5".

    --done lists those that were done longest ago first; --from -10m those of the last ten minutes. A queue keeps them
    if keep-done says for how long: delayq config Q keep-done=24h.

    --errors counts each job once, by the first line of its last error. Numbers, hosts and ids are written as …, so that
    the same failure of many jobs is one line. Below it are the ids of the jobs that failed last. To list or requeue the
    jobs of a line, give its error to --error, also as the table has cut it. In any other text, … stands for what differs.
  `);
  command.examples([
    'delayq list --dead order-close',
    'delayq list --failed order-close',
    'delayq list --errors order-close',
    "delayq list --error 'connect ECONNREFUSED …' order-close",
    'delayq list --overdue -n 10 order-close',
    `delayq list --from -2h --grep '"orderId":42' order-close`,
    'delayq list --done --from -10m thumbnail',
    'delayq list --ids --grep TypeError webhook | delayq cancel webhook -',
    `delayq list --json --dead order-close | jq -r 'select(.attempts > 3) | .id'`,
  ]);
}

async function list(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const filter = await inspector.decided(queue, filterOf(context, options, { states: STATES, now }));
  const warn = await warnerOfGrowth(context, inspector, queue);
  if (options.ids) {
    await listIds(context, inspector.ids(queue, filter));
    return warn();
  }
  const { states } = filter;
  const ofQueue = options.failed ? await triesOf(inspector, queue) : undefined;
  const { width: columns, height } = sizeOf(context, context.stdout);
  const width = options.json || options.full ? undefined : columns;
  const max = options.json ? Number.POSITIVE_INFINITY : Math.max(1, height - OTHER_LINES);
  // One more than is shown tells whether there are more.
  const limit = filter.limit ?? (Number.isFinite(max) ? max + 1 : undefined);
  const paint = options.json ? undefined : await colours(context, context.stdout);
  let shown = 0;
  let rows: StoredJob[] = [];
  let bytes = 0;
  const flush = async () => {
    if (rows.length === 0) return;
    const wholeIds = !context.stdout.isTTY || options.full;
    const left = (job: StoredJob) => (ofQueue === undefined ? {} : { triesLeft: triesLeft(job, ofQueue) });
    const how = { now, first: shown === 0, width, states, wholeIds, tries: ofQueue };
    if (!paint) await writeJson(context, Buffer.concat(rows.map((job) => jobJson(queue, job, left(job)))));
    else await context.write(`${await jobTable(rows, { ...how, paint })}\n`);
    shown += rows.length;
    rows = [];
    bytes = 0;
  };
  let isMore = false;
  for await (const job of inspector.list(queue, { ...filter, limit })) {
    isMore = filter.limit === undefined && shown + rows.length === max;
    if (isMore) break;
    const row = width === undefined ? job : brief(job, width);
    rows.push(row);
    bytes += row.payload?.length ?? 0;
    if (rows.length >= ROWS || bytes >= BYTES) await flush();
    if (context.outputClosed) return;
  }
  await flush();
  if (isMore) {
    const all = await inspector.count(queue, filter);
    const left = all === undefined ? 'more jobs' : many(Math.max(1, all - shown), 'more job');
    say(context, `not shown: ${left}; use -n N, or pipe the list to less`);
  }
  const { text, error, failed, from, to } = filter;
  const isNarrow = [text, error, failed, from, to].some((part) => part !== undefined);
  const kind = isNarrow ? 'such ' : states.length < STATES.length ? `${states.join(' or ')} ` : '';
  if (shown === 0 && !options.json) say(context, `${queue} has no ${kind}jobs`);
  await warn();
}

/** The tries of a queue. */
async function triesOf(inspector: Inspector, queue: string): Promise<number> {
  return (await inspector.settings(queue)).tries ?? DEFAULT_SETTINGS.tries;
}

/** Lists the errors of a queue. */
async function errors(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await requireQueue(redis, prefix, queue);
  const warn = await warnerOfGrowth(context, inspector, queue);
  const all = await inspector.errors(queue);
  const { width, height } = sizeOf(context, context.stdout);
  const max = options.json ? all.length : Math.max(1, Math.floor((height - OTHER_LINES) / GROUP_LINES));
  const groups = all.slice(0, options.number ?? max);
  if (options.json) await writeJson(context, groups.map((group) => groupJson(queue, group)).join(''));
  else if (groups.length === 0) say(context, `${queue} has no pending or dead job that failed`);
  else {
    const paint = await colours(context, context.stdout);
    const how = { now: await redis.now(), paint, width: options.full ? undefined : width };
    await context.write(`${await groupTable(groups, how)}\n`);
  }
  const left = all.length - groups.length;
  if (left > 0 && options.number === undefined)
    say(context, `not shown: ${many(left, 'more error')}; use -n N, or pipe the list to less`);
  await warn();
}

/** Lists the jobs of a queue that are done. */
async function listDone(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const { keepDone } = await inspector.settings(queue);
  if (keepDone === undefined) throw nothingKept(queue);
  const { from, to, limit: given } = filterOf(context, options, { states: STATES, now });
  const { width, height } = sizeOf(context, context.stdout);
  const isTable = !options.json && !options.ids;
  const limit = given ?? (isTable && Number.isFinite(height) ? Math.max(1, height - OTHER_LINES) : undefined);
  const paint = isTable ? await colours(context, context.stdout) : undefined;
  let shown = 0;
  let rows: DoneJob[] = [];
  const flush = async () => {
    if (rows.length === 0) return;
    const wholeIds = !context.stdout.isTTY || options.full === true;
    const how = { now, first: shown === 0, width: options.full ? undefined : width, wholeIds };
    if (paint) await context.write(`${await doneTable(rows, { ...how, paint })}\n`);
    else if (options.ids) await context.write(rows.map(({ id }) => `${visible(id)}\n`).join(''));
    else await writeJson(context, rows.map((job) => doneJson(queue, job)).join(''));
    shown += rows.length;
    rows = [];
  };
  for await (const job of inspector.done(queue, { from: from ?? now - keepDone, to })) {
    if (shown + rows.length === limit) {
      if (given === undefined) say(context, 'more jobs are not shown; use -n N, --from, or pipe the list to less');
      break;
    }
    rows.push(job);
    if (rows.length >= ROWS) await flush();
    if (context.outputClosed) return;
  }
  await flush();
  if (shown === 0 && isTable) say(context, `${queue} has no such jobs`);
}

async function listIds(context: Context, slices: AsyncIterable<Id[]>): Promise<void> {
  const shown = (id: Id) => (context.stdout.isTTY ? visible(idWord(id)) : idWord(id));
  for await (const ids of slices) {
    await context.write(ids.map((id) => `${shown(id)}\n`).join(''));
    if (context.outputClosed) return;
  }
}
