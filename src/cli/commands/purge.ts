import { Command } from 'commander';
import { DelayqError, exists, Inspector, Operator, type Snapshot, type StoredJob } from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, grouped, many, say } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';

type State = StoredJob['state'];

interface Options extends Globals, Partial<Record<State, boolean>> {
  readonly forget?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

const STATES = ['dead', 'active', 'pending'] as const;

export function purgeCommand(context: Context): Command {
  const command = new Command('purge')
    .description('Removes all jobs of a queue, or all that are dead, active or pending. They cannot be brought back.')
    .argument('<queue>', 'name of the queue')
    .option('--dead', 'dead jobs')
    .option('--active', 'jobs that a consumer holds; handlers that run are not stopped')
    .option('--pending', 'jobs that wait')
    .option('--forget', 'remove counters, settings and the name of the queue, too')
    .option('-y, --yes', 'do not ask: for scripts')
    .option('--dry-run', 'say how many jobs are meant, and do nothing')
    .option('-q, --quiet', 'do not say how many')
    .option('--json', 'print how many as one JSON document')
    .action((queue: string, options: Options) => purge(context, queue, options));
  details(command, [
    'Without --dead, --active or --pending it removes all three, and what belongs to no job. On a terminal it asks for the',
    "queue's name. For some of a queue's jobs: delayq cancel.",
  ]);
  examples(command, [
    'delayq purge order-close',
    'delayq purge --dead --yes order-close',
    'delayq purge --forget --yes order-close      # as if it had never been',
  ]);
  return addGlobals(command);
}

async function purge(context: Context, queue: string, options: Options): Promise<void> {
  const asked = STATES.filter((state) => options[state]);
  if (options.forget && asked.length > 0) {
    throw new DelayqError('usage', '--forget is for a whole queue', { next: `leave out --${asked[0]}, or --forget` });
  }
  const states = asked.length > 0 ? asked : STATES;
  const stop = context.stopSignal();
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  const operator = new Operator(redis, { prefix });
  const snapshot = await inspector.inspect(queue);
  // A name may be all that is left of a queue.
  if (!exists(snapshot) && !(options.forget && (await inspector.queues()).includes(queue)))
    throw await unknownQueue(redis, prefix, queue);
  const meant = sum(states, snapshot);
  if (options.dryRun) {
    if (options.json) return context.write(document({ queue, dryRun: true, ...countsOf(states, snapshot) }));
    return say(context, `${inWords(states, snapshot)} would be removed from ${queue}`);
  }
  if (!options.yes && !(await agreed(context, queue, { states, snapshot, stop, forget: options.forget ?? false })))
    return;

  const removed = { pending: 0, active: 0, dead: 0 };
  const progress = new Progress(context, !options.quiet);
  try {
    if (!stop.aborted) {
      for await (const chunk of operator.purge(queue, states)) {
        for (const state of STATES) removed[state] += chunk[state];
        progress.tell(() => `removed ${grouped(sum(STATES, removed))} of ${grouped(meant)}`);
        if (stop.aborted) break;
      }
    }
  } finally {
    progress.clear();
  }
  const forgotten = Boolean(options.forget && !stop.aborted && (await operator.forget(queue)));
  if (options.json) await context.write(document({ queue, ...countsOf(states, removed), forgotten }));
  else if (!options.quiet) {
    const end = stop.aborted ? '; stopped, remove the rest by repeating the command' : '';
    say(context, `${inWords(states, removed)} removed from ${queue}${forgotten ? ', and forgotten' : ''}${end}`);
  }
  if (removed.active > 0 && !options.quiet)
    say(context, 'handlers that ran are not stopped: their acks remove nothing');
  if (options.forget && !forgotten && !stop.aborted) {
    say(context, `${queue} is not forgotten: jobs came meanwhile; stop its producers, then repeat the command`);
    context.outcomes.add('incomplete');
  }
  if (stop.aborted) context.outcomes.add('interrupted');
}

type Counts = Readonly<Record<State, number>>;

function sum(states: readonly State[], counts: Counts): number {
  return states.reduce((all, state) => all + counts[state], 0);
}

function countsOf(states: readonly State[], counts: Counts): Partial<Counts> {
  return Object.fromEntries(states.map((state) => [state, counts[state]]));
}

/** As in "3 jobs (2 pending, 1 dead)". */
function inWords(states: readonly State[], counts: Counts): string {
  const parts = states.filter((state) => counts[state] > 0).map((state) => `${grouped(counts[state])} ${state}`);
  const all = sum(states, counts);
  return `${many(all, 'job')}${parts.length > 0 ? ` (${parts.reverse().join(', ')})` : ''}`;
}

/** Says what is meant and asks for the queue's name. Whether to go on. */
async function agreed(
  context: Context,
  queue: string,
  how: { states: readonly State[]; snapshot: Snapshot; stop: AbortSignal; forget: boolean },
): Promise<boolean> {
  const { states, snapshot, stop, forget } = how;
  if (!context.canAsk) {
    throw new DelayqError('usage', `nobody is here to be asked whether to remove ${inWords(states, snapshot)}`, {
      why: 'stdin and stderr are no terminal',
      next: 'see them with --dry-run, then repeat with --yes',
    });
  }
  const more = forget ? ', and its counters and settings' : '';
  say(context, `this removes ${inWords(states, snapshot)} of ${queue}${more}, for good`);
  const answer = await context.ask(`type the queue's name to go on: `, stop);
  if (answer.trim() === queue) return true;
  say(context, 'nothing removed');
  context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
  return false;
}
