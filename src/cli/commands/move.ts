import { checkName, DelayqError, type Moved, moveLine, type Transfer } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { isFiltered } from '../args/filters.js';
import { access, requireQueue } from '../args/queues.js';
import { addEditOptions, type EditOptions, editJobs, NAME_JOBS } from '../bulk/edit.js';
import { type EditResult, resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';
import { document, many, say, shownId } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends EditOptions {
  readonly into?: string;
}

const STATES = ['dead', 'pending'] as const;

export function moveCommand(command: CliCommand, context: Context): void {
  command.description(
    'Move pending and dead jobs to another queue. They keep their id, state, times, counts and payload.',
  );
  addEditOptions(command, STATES)
    .option('--into <queue>', 'the queue to move them to')
    .action((queue: string, ids: string[], options: Options) => move(context, queue, ids, options));
  command.details(`
    Active jobs stay. If the command is interrupted, even by SIGKILL, run it again: it first finishes what it had begun,
    whatever the filter. Without ids and filter it does only that. No job is lost or duplicated. Exit status 1: some jobs
    stay, because the other queue has a different payload under their id.
  `);
  command.examples([
    'delayq move order-close --into order-close-2 order:42',
    'delayq move order-close --into order-close-2 --dead',
    `delayq move order-close --into slow --grep '"shop":7' --yes`,
    'delayq move order-close --into order-close-2    # finish an interrupted move',
  ]);
}

async function move(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const { into } = options;
  if (into === undefined) {
    const why = options.to === undefined ? undefined : '--to is a filter: the last due time';
    throw usageError('no queue to move to is named', `name it with --into: ${moveLine(queue, 'other …')}`, why);
  }
  if (checkName(into) === checkName(queue))
    throw usageError(`the jobs are in ${queue} already`, 'name another queue with --into');
  const { redis, prefix, transfer } = access(context, options);
  const asked = ids.length > 0 || options.all || isFiltered(options);
  await requireQueue(redis, prefix, queue);
  const finished = options.dryRun ? await count(transfer, queue, into) : await finish(context, transfer, queue, into);
  if (finished > 0 && !options.quiet) {
    const moved = options.dryRun ? 'would be moved first' : 'moved';
    say(context, `${many(finished, 'job')} of an interrupted move to ${into} ${moved}`);
  }
  if (!asked) {
    if (finished === 0) {
      throw new DelayqError('missing', `no job is named, and no move from ${queue} to ${into} was interrupted`, {
        next: NAME_JOBS,
      });
    }
    if (options.json) await context.write(document({ queue, into, finished }));
    return;
  }
  await editJobs(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'move',
    participle: 'moved',
    where: `from ${queue} to ${into}`,
    results: resultsOf(queue, into).move,
    fields: { into, finished },
    apply: (_, some, states) =>
      transfer.move(queue, some, { to: into, states: STATES.filter((s) => states.includes(s)) }),
  });
}

async function count(transfer: Transfer, queue: string, into: string): Promise<number> {
  let found = 0;
  for await (const ids of transfer.unfinished(queue, into)) found += ids.length;
  return found;
}

/** Finishes interrupted moves. Returns the number of their jobs. */
async function finish(context: Context, transfer: Transfer, queue: string, into: string): Promise<number> {
  const results: Record<Moved, EditResult> = resultsOf(queue, into).move;
  const meter = new Meter(context, 'moved');
  let moved = 0;
  for await (const slice of transfer.resume(queue, into)) {
    for (const [i, answer] of slice.answers.entries()) {
      const { isDone, isElsewhere, text } = results[answer];
      // A job that has gone was moved by another process.
      if (isDone || isElsewhere) continue;
      meter.say(`${shownId(slice.ids[i])} ${text}`);
      context.outcomes.add('incomplete');
    }
    moved += slice.ids.length;
    meter.add(slice.ids.length);
  }
  meter.clear();
  return moved;
}
