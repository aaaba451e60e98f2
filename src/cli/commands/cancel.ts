import { Inspector } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { addEdit, type EditOptions } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

export function cancelCommand(command: CliCommand, context: Context): void {
  command.description('Remove jobs from a queue, in any state.');
  const states = ['dead', 'active', 'pending'] as const;
  addEdit(context, command, states, async (queue, options: EditOptions & { keepId?: boolean }) => {
    const { keepId } = options;
    const inspector = new Inspector(context.redis(options), { prefix: context.prefix(options) });
    const needsOwn = keepId && (await inspector.settings(queue)).onceFor === undefined;
    let lost = 0;
    return {
      verb: 'cancel',
      participle: 'cancelled',
      results: resultsOf(queue).cancel,
      detail: () => (lost > 0 ? `; ${lost} without a window (--once-for), so not remembered` : ''),
      apply: async (operator, some, states) => {
        const jobs = needsOwn ? await inspector.show(queue, some) : [];
        const results = await operator.cancel(queue, some, states, { keepId });
        lost += jobs.filter((job, i) => job?.onceFor === undefined && results[i] === job?.state).length;
        return results;
      },
    };
  }).option('--keep-id', 'keep the ids reserved, as if the jobs were done (see enqueue --once-for)');
  command.details(`
    The handler of an active job is not stopped: it finishes its work, and its ack then changes nothing. The ids are free
    again, also those that are only reserved because their jobs are done (enqueue --once-for).
  `);
  command.examples([
    'delayq cancel order-close order:42',
    'delayq cancel --pending --from 14:00 --to 15:00 --dry-run order-close',
    'delayq list --ids --dead order-close | delayq cancel order-close -',
  ]);
}
