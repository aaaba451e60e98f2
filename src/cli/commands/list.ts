import { type Id, idWord, type StoredJob } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { addFilters, type FilterOptions, filterOf } from '../args/filters.js';
import { access, requireQueue } from '../args/queues.js';
import { warnerOfGrowth } from '../bulk/growth.js';
import type { Context } from '../host/context.js';
import { colours, many, say, sizeOf, visible, writeJson } from '../terminal/output.js';
import { brief, jobJson, jobTable } from '../views/jobs.js';

interface Options extends FilterOptions {
  readonly full?: boolean;
  readonly ids?: boolean;
}

/** Dead jobs first: they need attention. */
const STATES = ['dead', 'active', 'pending'] as const;

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
    .option('--full', 'do not cut payloads and errors')
    .option('--ids', 'print only ids, one a line')
    .option('--json', 'print JSON Lines, one a job')
    .action((queue: string, options: Options) => list(context, queue, options));
  command.exclude({ ids: ['json'] });
  command.details(`
    A terminal shows as many jobs as fit, a pipe gets all of them; -n sets another limit. Ids are cut only on a
    terminal, payloads and errors unless --full.
  `);
  command.examples([
    'delayq list --dead order-close',
    'delayq list --overdue -n 10 order-close',
    `delayq list --from -2h --grep '"orderId":42' order-close`,
    'delayq list --ids --grep TypeError webhook | delayq cancel webhook -',
    `delayq list --json --dead order-close | jq -r 'select(.attempts > 3) | .id'`,
  ]);
}

async function list(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const filter = filterOf(context, options, { states: STATES, now });
  const warn = await warnerOfGrowth(context, inspector, queue);
  if (options.ids) {
    await listIds(context, inspector.ids(queue, filter));
    return warn();
  }
  const { states, text, from, to } = filter;
  const { width: columns, height } = sizeOf(context, context.stdout);
  const width = options.json || options.full ? undefined : columns;
  const most = options.json ? Number.POSITIVE_INFINITY : Math.max(1, height - OTHER_LINES);
  // One more than is shown tells whether there are more.
  const limit = filter.limit ?? (Number.isFinite(most) ? most + 1 : undefined);
  const paint = options.json ? undefined : await colours(context, context.stdout);
  let shown = 0;
  let rows: StoredJob[] = [];
  let bytes = 0;
  const flush = async () => {
    if (rows.length === 0) return;
    const wholeIds = !context.stdout.isTTY || options.full;
    if (!paint) await writeJson(context, Buffer.concat(rows.map((job) => jobJson(queue, job))));
    else await context.write(`${await jobTable(rows, { now, paint, first: shown === 0, width, states, wholeIds })}\n`);
    shown += rows.length;
    rows = [];
    bytes = 0;
  };
  let isMore = false;
  for await (const job of inspector.list(queue, { ...filter, limit })) {
    isMore = filter.limit === undefined && shown + rows.length === most;
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
  const isNarrow = [text, from, to].some((part) => part !== undefined);
  const kind = isNarrow ? 'such ' : states.length < STATES.length ? `${states.join(' or ')} ` : '';
  if (shown === 0 && !options.json) say(context, `${queue} has no ${kind}jobs`);
  await warn();
}

async function listIds(context: Context, slices: AsyncIterable<Id[]>): Promise<void> {
  const shown = (id: Id) => (context.stdout.isTTY ? visible(idWord(id)) : idWord(id));
  for await (const ids of slices) {
    await context.write(ids.map((id) => `${shown(id)}\n`).join(''));
    if (context.outputClosed) return;
  }
}
