import { Command } from 'commander';
import { Inspector, type StoredJob } from '../../internal.js';
import { addFilters, type FilterOptions, filterOf } from '../args/filters.js';
import { addGlobals, examples } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import type { Context } from '../host/context.js';
import { colours, say, sizeOf, visibleJson } from '../terminal/output.js';
import { brief, jobJson, jobTable } from '../views/jobs.js';

interface Options extends FilterOptions {
  readonly full?: boolean;
}

/** Dead jobs first: they need attention. */
const STATES = ['dead', 'active', 'pending'] as const;

/** Rows that are laid out together: enough for a screen, few enough to appear at once. */
const ROWS = 200;

/** Rows are also written when they have this many bytes of payload. */
const BYTES = 1024 * 1024;

export function listCommand(context: Context): Command {
  const command = new Command('list')
    .description('List jobs, those of each state in the order of their times. A pipe gets JSON Lines, a job a line.')
    .argument('<queue>', 'name of the queue');
  addFilters(command, STATES)
    .option('--full', 'do not cut payloads and errors')
    .option('--json', 'print JSON Lines (the default unless stdout is a terminal)')
    .action((queue: string, options: Options) => list(context, queue, options));
  examples(command, [
    'delayq list --dead order-close',
    'delayq list --overdue -n 10 order-close',
    `delayq list --from -2h --grep '"orderId":42' order-close`,
    `delayq list --dead order-close | jq -r 'select(.attempts > 3) | .id'`,
  ]);
  return addGlobals(command);
}

async function list(context: Context, queue: string, options: Options): Promise<void> {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const filter = filterOf(context, options, { states: STATES, now });
  const { states } = filter;
  const terminal = context.stdout.isTTY && !options.json;
  const paint = terminal ? await colours(context, context.stdout) : undefined;
  const width = terminal && !options.full ? sizeOf(context.stdout).width : undefined;
  let first = true;
  let rows: StoredJob[] = [];
  let bytes = 0;
  const flush = async () => {
    const some = rows;
    rows = [];
    bytes = 0;
    if (some.length === 0) return;
    if (paint) await context.write(`${await jobTable(some, { now, paint, first, width, states })}\n`);
    else {
      const lines = Buffer.concat(some.map((job) => jobJson(queue, job)));
      await context.write(context.stdout.isTTY ? visibleJson(lines.toString('utf8')) : lines);
    }
    first = false;
  };
  for await (const job of inspector.list(queue, filter)) {
    const row = width === undefined ? job : brief(job, width);
    rows.push(row);
    bytes += row.payload?.length ?? 0;
    if (rows.length >= ROWS || bytes >= BYTES) await flush();
    if (context.outputClosed) return;
  }
  await flush();
  const { text, from, to } = filter;
  const isNarrow = [text, from, to].some((part) => part !== undefined);
  const kind = isNarrow ? 'such ' : states.length < STATES.length ? `${states.join(' or ')} ` : '';
  if (first && terminal) say(context, `${queue} has no ${kind}jobs`);
}
