import { Command } from 'commander';
import { Operator } from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { addEditOptions, type EditOptions, editJobs } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

interface Options extends EditOptions {
  readonly reason?: string;
}

const STATES = ['pending'] as const;

export function buryCommand(context: Context): Command {
  const command = new Command('bury').description(
    'Move pending jobs to the dead set: they are kept, but not delivered until you requeue them.',
  );
  command.option('--reason <text>', 'store this as their last error');
  addEditOptions(command, STATES).action((queue: string, ids: string[], options: Options) =>
    bury(context, queue, ids, options),
  );
  details(command, [
    'delayq requeue brings them back: due at once, with no failures counted. delayq',
    'list and delayq show print the due time that they had. Active jobs are left as',
    'they are.',
  ]);
  examples(command, [
    'delayq bury --reason "until the patch ships" order-close order:42',
    `delayq bury --grep '"shop":7' --reason "shop 7 is down" --dry-run order-close`,
    'delayq requeue --grep "until the patch ships" order-close    # and back',
  ]);
  return addGlobals(command);
}

async function bury(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  const { reason = '' } = options;
  await editJobs(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'bury',
    participle: 'buried',
    results: resultsOf(queue).bury,
    apply: (some) => operator.bury(queue, some, { reason }),
  });
}
