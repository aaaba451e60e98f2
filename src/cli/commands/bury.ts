import type { CliCommand } from '../args/command.js';
import { addEdit, type EditOptions } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

export function buryCommand(command: CliCommand, context: Context): void {
  command.description('Move pending jobs to the dead set: they are kept, but not delivered until you requeue them.');
  command.option('--reason <text>', 'store this as their last error');
  addEdit(context, command, ['pending'], (queue, { reason = '' }: EditOptions & { reason?: string }) => ({
    verb: 'bury',
    participle: 'buried',
    results: resultsOf(queue).bury,
    apply: (operator, some) => operator.bury(queue, some, { reason }),
  }));
  command.details(`
    delayq requeue brings them back: due at once, with no failures counted. delayq list and delayq show print the due
    time that they had. Active jobs are left as they are.
  `);
  command.examples([
    'delayq bury --reason "until the patch ships" order-close order:42',
    `delayq bury --grep '"shop":7' --reason "shop 7 is down" --dry-run order-close`,
    'delayq requeue --grep "until the patch ships" order-close    # and back',
  ]);
}
