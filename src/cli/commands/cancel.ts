import { Command } from 'commander';
import { Operator } from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { addEditOptions, type EditOptions, editJobs } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

const STATES = ['dead', 'active', 'pending'] as const;

export function cancelCommand(context: Context): Command {
  const command = new Command('cancel').description('Remove jobs from a queue, in any state.');
  addEditOptions(command, STATES).action((queue: string, ids: string[], options: EditOptions) =>
    cancel(context, queue, ids, options),
  );
  details(command, [
    'The handler of an active job is not stopped: it finishes its work, and its ack',
    'then changes nothing.',
  ]);
  examples(command, [
    'delayq cancel order-close order:42',
    'delayq cancel --pending --from 14:00 --to 15:00 --dry-run order-close',
    'delayq list --dead order-close | jq -r .id | delayq cancel order-close -',
  ]);
  return addGlobals(command);
}

async function cancel(context: Context, queue: string, ids: string[], options: EditOptions): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  await editJobs(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'cancel',
    participle: 'cancelled',
    results: resultsOf(queue).cancel,
    apply: (some, states) => operator.cancel(queue, some, states),
  });
}
