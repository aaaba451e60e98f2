import { exists, queueWord, type State } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { access, unknownQueue } from '../args/queues.js';
import { ask, decline, requireTerminal } from '../bulk/confirm.js';
import type { Context, Globals } from '../host/context.js';
import { document, grouped, many, say } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';

interface Options extends Globals, Partial<Record<State, boolean>> {
  readonly forget?: boolean;
  readonly yes?: boolean;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

const STATES = ['dead', 'active', 'pending'] as const;

export function purgeCommand(command: CliCommand, context: Context): void {
  command
    .description('Remove all jobs of a queue, or all in one state. This cannot be undone.')
    .argument('<queue>', 'name of the queue')
    .option('--dead', 'dead jobs')
    .option('--active', 'active jobs; their handlers keep running')
    .option('--pending', 'pending jobs')
    .option('--forget', 'also remove counters, settings, remembered ids, events, results and name of the queue')
    .option('-y, --yes', 'do not ask for confirmation')
    .option('--dry-run', 'show how many jobs are meant, change nothing')
    .option('-q, --quiet', 'print no summary')
    .option('--json', 'print the counts as one JSON document')
    .action((queue: string, options: Options) => purge(context, queue, options));
  command.exclude({ forget: STATES });
  command.details(`
    Without --dead, --active or --pending it removes all jobs, and entries that belong to no job. On a terminal it asks
    for the name of the queue. To remove only some jobs use delayq cancel. Recurring jobs stay: delayq every --remove.
  `);
  command.examples([
    'delayq purge order-close',
    'delayq purge --dead --yes order-close',
    'delayq purge --forget --yes order-close      # nothing is left of it',
  ]);
}

async function purge(context: Context, queue: string, options: Options): Promise<void> {
  const asked = STATES.filter((state) => options[state]);
  const states = asked.length > 0 ? asked : STATES;
  const stop = context.stopSignal();
  const { redis, prefix, inspector, operator } = access(context, options);
  const snapshot = await inspector.inspect(queue);
  // The name may be all that is left of a queue.
  if (!exists(snapshot) && !(options.forget && (await inspector.queues()).includes(queue)))
    throw await unknownQueue(redis, prefix, queue);
  const meant = sum(states, snapshot);
  if (options.dryRun) {
    if (options.json) return context.write(document({ queue, dryRun: true, ...countsOf(states, snapshot) }));
    return say(context, `${inWords(states, snapshot)} would be removed from ${queue}`);
  }
  if (!options.yes && (meant > 0 || options.forget)) {
    const jobs = inWords(states, snapshot);
    requireTerminal(context, `remove ${jobs}`, 'see them with --dry-run, then repeat with --yes');
    const ids = snapshot.remembered > 0 ? `, and ${many(snapshot.remembered, 'remembered id')}` : '';
    const besides = options.forget ? `, its counters and settings${ids}` : '';
    say(context, `this removes ${jobs} of ${queue}${besides}, for good`);
    const answer = await ask(context, 'type the name of the queue to go on: ', stop);
    if (answer !== queue) return decline(context, 'nothing removed', stop);
  }

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
  const done = `${inWords(states, removed)} removed from ${queue}${forgotten ? ', and forgotten' : ''}`;
  if (options.json) await context.write(document({ queue, ...countsOf(states, removed), forgotten }), done);
  if (!options.quiet) {
    if (!options.json) {
      // Jobs with windows that were removed are remembered as well.
      const kept = forgotten ? 0 : (await inspector.inspect(queue)).remembered;
      const rest = kept > 0 ? `; ${many(kept, 'remembered id')} kept (--forget drops them)` : '';
      const end = stop.aborted ? '; stopped: repeat the command to remove the rest' : '';
      say(context, `${done}${rest}${end}`);
    }
    const recurring = options.forget ? (snapshot.recurring?.count ?? 0) : 0;
    const list = `see delayq every --list ${queueWord(queue)}; --remove removes them`;
    if (recurring > 0) say(context, `${many(recurring, 'recurring job')} kept: ${list}`);
    if (removed.active > 0) say(context, 'handlers of active jobs keep running; their acks will change nothing');
  }
  if (options.forget && !forgotten && !stop.aborted) {
    say(context, `${queue} is not forgotten: new jobs were enqueued; stop its producers, then repeat the command`);
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
