import { Command } from 'commander';
import { formatDuration, Inspector, type StoredJob } from '../index.js';
import type { Context, Globals } from './context.js';
import { addGlobals, count, examples } from './options.js';
import { colours, type Paint, say, table, visible, visibleJson } from './output.js';
import { requireQueue } from './queues.js';
import { jobJson, reasonOf } from './stored.js';

interface Options extends Globals {
  readonly pending?: boolean;
  readonly active?: boolean;
  readonly dead?: boolean;
  readonly number?: number;
  readonly full?: boolean;
}

/** What is first on the list is what somebody has to look at. */
const STATES = ['dead', 'active', 'pending'] as const;

/** The least that errors and payloads are given of a line together, columns, unless all of them is asked for. */
const LEAST = 30;

/** A time further away than this was not meant as one, ms: a thousand years. */
const FAR_MS = 1_000 * 365 * 86_400_000;

/** Rows that are put into columns together: enough for a screen, little enough to come at once. */
const ROWS = 200;

export function listCommand(context: Context): Command {
  const command = new Command('list')
    .summary('list the jobs of a queue, dead ones first')
    .description('Lists jobs, of each state in the order of their times. Into a pipe it writes JSON Lines, a job each.')
    .argument('<queue>', 'name of the queue')
    .option('--dead', 'jobs that are dead, the longest dead first')
    .option('--active', 'jobs that a consumer holds')
    .option('--pending', 'jobs that wait, the next one due first')
    .option('-n, --number <n>', 'at most n jobs', count)
    .option('--full', 'payloads and errors in full')
    .option('--json', 'write JSON Lines (the default when stdout is not a terminal)')
    .action((queue: string, options: Options) => list(context, queue, options));
  examples(command, [
    'delayq list --dead order-close',
    `delayq list --dead order-close | jq -r 'select(.error // "" | test("timed out")) | .id' | delayq requeue order-close -`,
  ]);
  return addGlobals(command);
}

async function list(context: Context, queue: string, options: Options): Promise<void> {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const now = await redis.now();
  const asked = STATES.filter((state) => options[state]);
  const states = asked.length > 0 ? asked : STATES;
  const terminal = context.stdout.isTTY && !options.json;
  const json = (text: string) => (context.stdout.isTTY ? visibleJson(text) : text);
  const paint = terminal ? await colours(context, context.stdout) : undefined;
  let left = options.number ?? Number.POSITIVE_INFINITY;
  let first = true;
  let rows: StoredJob[] = [];
  const flush = async () => {
    if (rows.length === 0) return;
    const text = paint
      ? await toTable(rows, { now, paint, first, width: options.full ? undefined : context.stdout.columns, states })
      : json(rows.map((job) => jobJson(queue, job)).join('\n'));
    rows = [];
    first = false;
    await context.write(`${text}\n`);
  };
  for (const state of states) {
    if (left <= 0) break;
    for await (const job of inspector.list(queue, state, left)) {
      left -= 1;
      rows.push(job);
      if (rows.length >= ROWS) await flush();
      if (context.outputClosed) return;
    }
  }
  await flush();
  if (first && terminal) say(context, `${queue} has no ${asked.length > 0 ? `${asked.join(' or ')} ` : ''}jobs`);
}

/** Rows of a table, cut to `width` columns if that is given. The state is left out when all have the same. */
async function toTable(
  rows: readonly StoredJob[],
  how: { now: number; paint: Paint; first: boolean; width: number | undefined; states: readonly string[] },
): Promise<string> {
  const { now, paint, first, width, states } = how;
  const several = states.length > 1;
  const fixed = rows.map((job) => [
    visible(job.id),
    ...(several ? [job.state] : []),
    whenOf(job, now),
    String(job.attempts),
  ]);
  const head = ['id', ...(several ? ['state'] : []), several ? 'since or due' : 'when', 'attempts'];
  const used = head.reduce(
    (sum, name, i) => sum + Math.max(name.length, ...fixed.map((row) => row[i]?.length ?? 0)) + 2,
    0,
  );
  const room = width === undefined ? Number.POSITIVE_INFINITY : Math.max(LEAST, width - used - 2);
  const why = rows.map((job) => cut(whyOf(job), Math.ceil(room * 0.6)));
  const payloadRoom = room - Math.max('why'.length, ...why.map((text) => text.length));
  const cells = rows.map((job, i) => [
    ...(fixed[i] ?? []).map((cell) => (cell === 'dead' ? paint.red.bold(cell) : cell)),
    why[i] as string,
    job.payload ? cut(job.payload.toString('utf8'), payloadRoom) : paint.red.bold('none'),
  ]);
  const names = [...head, 'why', 'payload'].map((name) => paint.dim(name));
  return table(first ? names : undefined, cells, several ? [0, 1, 4, 5] : [0, 3, 4]);
}

function whenOf({ due, died, lease }: StoredJob, now: number): string {
  const ago = (ms: number) => (now - ms > FAR_MS ? 'long ago' : `${formatDuration(now - ms)} ago`);
  if (died !== undefined) return ago(died);
  if (lease) return ago(lease.since);
  if (due === undefined) return '';
  if (Math.abs(due - now) > FAR_MS) return due > now ? 'never' : 'long ago';
  return due > now ? `in ${formatDuration(due - now)}` : `${formatDuration(now - due)} late`;
}

/** Why a job stands where it does, as far as there is more to say than its state. */
function whyOf(job: StoredJob): string {
  const error = job.error?.split('\n')[0];
  if (job.state === 'dead') return error && job.reason !== 'lost' ? error : reasonOf(job);
  return error ?? '';
}

/** `text` on one line, cut to `room` columns. */
function cut(text: string, room: number): string {
  const shown = visible(text);
  return shown.length <= room ? shown : `${shown.slice(0, room - 1)}…`;
}
