import { Command } from 'commander';
import { checkName, DelayqError, type Moved, Transfer } from '../../internal.js';
import { isFiltered } from '../args/filters.js';
import { addGlobals, details, examples } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import { type ActOptions, actOn, addAct } from '../bulk/edit.js';
import type { Context } from '../host/context.js';
import { document, many, say, shownId } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends ActOptions {
  readonly into?: string;
}

const STATES = ['dead', 'pending'] as const;

export function moveCommand(context: Context): Command {
  const command = new Command('move').description(
    'Moves pending and dead jobs to another queue, as they are: id, state, time, counts, payload. Jobs that consumers hold stay.',
  );
  addAct(command, STATES)
    .option('--into <queue>', 'the other queue')
    .action((queue: string, ids: string[], options: Options) => move(context, queue, ids, options));
  details(command, [
    'A job is held out of reach while it is copied. Interrupted, even by SIGKILL, the same command ends first what it has',
    'begun, whatever the filter; without ids or filter that is all it does. No job is lost, or there twice. Exit status 1:',
    'some jobs stay, as the other queue has another payload under their id.',
  ]);
  examples(command, [
    'delayq move order-close --into order-close-2 order:42',
    'delayq move order-close --into order-close-2 --dead',
    `delayq move order-close --into slow --grep '"shop":7' --yes`,
    'delayq move order-close --into order-close-2      # end what was interrupted',
  ]);
  return addGlobals(command);
}

async function move(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const { into } = options;
  if (into === undefined) {
    throw new DelayqError('usage', 'no queue is named to move jobs to', {
      why: options.to === undefined ? undefined : '--to is a time: the last at which a job may be due',
      next: `name it with --into: delayq move ${queue} --into other …`,
    });
  }
  if (checkName(into) === checkName(queue)) {
    throw new DelayqError('usage', `${queue} is the queue that the jobs are in`, { next: 'name another with --into' });
  }
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const transfer = new Transfer(redis, { prefix });
  const answers = {
    moved: { good: true },
    kept: {
      good: true,
      says: `was in ${into} already, with the same payload: it is there once now`,
      sum: `were in ${into} already, with the same payload: they are there once now`,
    },
    differs: { good: false, says: `stays in ${queue}: ${into} has another payload under this id` },
    'kept-dead': { good: false, says: `stays in ${queue}: it is dead in ${into}` },
    held: {
      good: false,
      says: `stays in ${queue}: a move that was interrupted holds this id in ${into} (see: delayq show ${into} ID)`,
    },
    active: { good: false, says: `stays in ${queue}: a consumer holds it`, elsewhere: true },
    orphaned: { good: false, says: `stays in ${queue}: it has no payload` },
    missing: { good: false, says: `is not in ${queue}`, elsewhere: true },
    superseded: { good: false, says: `was cancelled or replaced meanwhile; its copy in ${into} stays` },
  } as const satisfies Record<Moved, { good: boolean; says?: string; sum?: string; elsewhere?: boolean }>;
  const asked = ids.length > 0 || options.all || isFiltered(options);
  await requireQueue(redis, prefix, queue);
  const finished = options.dryRun
    ? await count(transfer, queue, into)
    : await finish(context, transfer, { queue, into, answers });
  if (finished > 0 && !options.quiet) {
    const would = options.dryRun ? 'would be ended first' : 'ended';
    say(context, `${many(finished, 'job')} of an interrupted move to ${into} ${would}`);
  }
  if (!asked) {
    if (finished === 0) {
      throw new DelayqError('missing', `no move from ${queue} to ${into} was interrupted, and no job is named`, {
        next: 'give ids, or - for ids on stdin, or a filter such as -n 10, --from -2h, --grep TEXT, or --all',
      });
    }
    if (options.json) await context.write(document({ queue, into, finished }));
    return;
  }
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'move',
    done: 'moved',
    where: `from ${queue} to ${into}`,
    answers,
    also: { into, finished },
    act: (some, states) => transfer.move(queue, some, { to: into, states: STATES.filter((s) => states.includes(s)) }),
  });
}

async function count(transfer: Transfer, queue: string, into: string): Promise<number> {
  let found = 0;
  for await (const ids of transfer.unfinished(queue, into)) found += ids.length;
  return found;
}

/** Ends what was interrupted. Returns for how many jobs. */
async function finish(
  context: Context,
  transfer: Transfer,
  { queue, into, answers }: { queue: string; into: string; answers: Record<Moved, { good: boolean; says?: string }> },
): Promise<number> {
  const meter = new Meter(context, 'ended');
  let ended = 0;
  for await (const slice of transfer.resume(queue, into)) {
    for (const [i, answer] of slice.answers.entries()) {
      const { good, says } = answers[answer];
      // A job that is gone by now was ended by another move.
      if (good || answer === 'missing' || answer === 'active') continue;
      meter.clear();
      say(context, `${shownId(slice.ids[i])} ${says}`);
      context.outcomes.add('incomplete');
    }
    ended += slice.ids.length;
    meter.add(slice.ids.length);
  }
  meter.clear();
  return ended;
}
