import { Command } from 'commander';
import { Inspector, type StoredJob } from '../index.js';
import type { Context } from './context.js';
import { addGlobals, examples } from './options.js';
import { colours, say, sizeOf, visibleJson } from './output.js';
import { requireQueue } from './queues.js';
import { addFilters, type FilterOptions, filterOf } from './selection.js';
import { jobJson, jobTable } from './stored.js';

interface Options extends FilterOptions {
  readonly full?: boolean;
}

/** What is first on the list is what somebody has to look at. */
const STATES = ['dead', 'active', 'pending'] as const;

/** Rows that are put into columns together: enough for a screen, little enough to come at once. */
const ROWS = 200;

export function listCommand(context: Context): Command {
  const command = new Command('list')
    .description('Lists jobs, of each state in the order of their times. Into a pipe it writes JSON Lines, a job each.')
    .argument('<queue>', 'name of the queue');
  addFilters(command, STATES)
    .option('--full', 'payloads and errors in full')
    .option('--json', 'write JSON Lines (the default when stdout is not a terminal)')
    .action((queue: string, options: Options) => list(context, queue, options));
  examples(command, [
    'delayq list --dead order-close',
    'delayq list --overdue -n 10 order-close',
    `delayq list --from -2h --grep '"orderId":42' order-close`,
    `delayq list --dead order-close | jq -r 'select(.attempts > 3) | .id' | delayq requeue order-close -`,
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
  const json = (text: string) => (context.stdout.isTTY ? visibleJson(text) : text);
  const paint = terminal ? await colours(context, context.stdout) : undefined;
  let first = true;
  let rows: StoredJob[] = [];
  const flush = async () => {
    if (rows.length === 0) return;
    const text = paint
      ? await jobTable(rows, {
          now,
          paint,
          first,
          width: options.full ? undefined : sizeOf(context.stdout).width,
          states,
        })
      : json(rows.map((job) => jobJson(queue, job)).join('\n'));
    rows = [];
    first = false;
    await context.write(`${text}\n`);
  };
  for await (const job of inspector.list(queue, filter)) {
    rows.push(job);
    if (rows.length >= ROWS) await flush();
    if (context.outputClosed) return;
  }
  await flush();
  const { text, from, to } = filter;
  const finer = [text, from, to].some((part) => part !== undefined);
  const such = finer ? 'such ' : states.length < STATES.length ? `${states.join(' or ')} ` : '';
  if (first && terminal) say(context, `${queue} has no ${such}jobs`);
}
