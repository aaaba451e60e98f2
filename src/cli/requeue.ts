import { Command } from 'commander';
import { DelayqError, Inspector } from '../index.js';
import type { Context, Globals } from './context.js';
import { lines } from './lines.js';
import { addGlobals, count, examples } from './options.js';
import { document, many, say, shownId } from './output.js';
import { requireQueue } from './queues.js';

interface Options extends Globals {
  readonly all?: boolean;
  readonly number?: number;
  readonly quiet?: boolean;
}

export function requeueCommand(context: Context): Command {
  const command = new Command('requeue')
    .summary('put dead jobs back into their queue')
    .description(
      'Makes dead jobs pending again, due now, as if they had never been tried. What they were enqueued with stays.',
    )
    .usage('[options] <queue> [id… | -]')
    .argument('<queue>', 'name of the queue')
    .argument('[id...]', 'ids of dead jobs; - reads them from stdin, one a line')
    .option('--all', 'all that are dead now')
    .option('-n, --number <n>', 'the n that have been dead for longest', count)
    .option('-q, --quiet', 'do not say how many')
    .option('--json', 'print how many as one JSON document')
    .action((queue: string, ids: string[], options: Options) => requeue(context, queue, ids, options));
  examples(command, [
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    `delayq list --dead order-close | jq -r 'select(.reason == "failed") | .id' | delayq requeue order-close -`,
  ]);
  return addGlobals(command);
}

async function requeue(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const ways = [ids.length > 0, options.all, options.number !== undefined].filter(Boolean).length;
  if (ways !== 1) {
    throw new DelayqError('usage', ways === 0 ? 'no job is named' : 'jobs are named in two ways', {
      next: 'give ids, or - for ids on stdin, or --all, or -n 10 for the ten that have been dead for longest',
    });
  }
  if (ids.includes('-') && ids.length > 1)
    throw new DelayqError('usage', '- stands alone', { next: 'leave out the ids' });
  const stop = context.stopSignal();
  stop.addEventListener('abort', () => context.stdin.destroy());
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const counts = { requeued: 0, missing: 0, orphaned: 0 };
  for await (const some of idsOf(context, inspector, queue, ids, options, stop)) {
    const answers = await inspector.requeue(queue, some);
    for (const [i, answer] of answers.entries()) {
      counts[answer] += 1;
      // Whoever asked for all did not ask for one that was requeued by somebody else meanwhile.
      if (answer === 'missing' && ids.length > 0) say(context, `${shownId(some[i])} is not among the dead of ${queue}`);
      if (answer === 'orphaned') say(context, `${shownId(some[i])} has no payload and stays dead`);
    }
    if (stop.aborted) break;
  }
  if (options.json) await context.write(document({ queue, ...counts }));
  else if (!options.quiet) say(context, `${many(counts.requeued, 'job')} requeued in ${queue}`);
  if (counts.orphaned > 0 || (counts.missing > 0 && ids.length > 0)) context.exitCode = 1;
  if (stop.aborted) context.exitCode = 130;
}

/** The ids to requeue, some at a time. */
async function* idsOf(
  context: Context,
  inspector: Inspector,
  queue: string,
  ids: string[],
  options: Options,
  stop: AbortSignal,
): AsyncGenerator<string[]> {
  if (ids[0] === '-') {
    try {
      for await (const some of lines(context.stdin)) {
        // A line that is no text names no job, and is said to be missing like any other.
        yield some.map(({ number, text, error }) => (error ? `(line ${number})` : text.trim()));
      }
    } catch (error) {
      if (!stop.aborted) throw error;
    }
  } else if (ids.length > 0) yield ids;
  else {
    // Those dead by now: one that dies again meanwhile must not go round for ever.
    const dead = (await inspector.inspect(queue)).dead;
    yield* inspector.ids(queue, 'dead', Math.min(dead, options.number ?? dead));
  }
}
