import { Command } from 'commander';
import { addGlobals, details, examples } from '../args/options.js';
import { addEdit } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

export function cancelCommand(context: Context): Command {
  const command = new Command('cancel').description('Remove jobs from a queue, in any state.');
  addEdit(context, command, ['dead', 'active', 'pending'], (queue) => ({
    verb: 'cancel',
    participle: 'cancelled',
    results: resultsOf(queue).cancel,
    apply: (operator, some, states) => operator.cancel(queue, some, states),
  }));
  details(command, [
    'The handler of an active job is not stopped: it finishes its work, and its ack',
    'then changes nothing.',
  ]);
  examples(command, [
    'delayq cancel order-close order:42',
    'delayq cancel --pending --from 14:00 --to 15:00 --dry-run order-close',
    'delayq list --ids --dead order-close | delayq cancel order-close -',
  ]);
  return addGlobals(command);
}
