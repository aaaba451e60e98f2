import { Command } from 'commander';
import { Operator } from '../../internal.js';
import { addGlobals, examples } from '../args/options.js';
import { type ActOptions, actOn, addAct } from '../bulk/edit.js';
import type { Context } from '../host/context.js';

const STATES = ['dead', 'active', 'pending'] as const;

export function cancelCommand(context: Context): Command {
  const command = new Command('cancel').description(
    'Removes jobs, whatever state they are in. A handler that runs is not stopped: what it does, it does; only its ack then removes nothing.',
  );
  addAct(command, STATES).action((queue: string, ids: string[], options: ActOptions) =>
    cancel(context, queue, ids, options),
  );
  examples(command, [
    'delayq cancel order-close order:42',
    'delayq cancel --pending --from 14:00 --to 15:00 --dry-run order-close',
    `delayq list order-close | jq -r 'select(.payload.shop == 7) | .id' | delayq cancel order-close -`,
  ]);
  return addGlobals(command);
}

async function cancel(context: Context, queue: string, ids: string[], options: ActOptions): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'cancel',
    done: 'cancelled',
    answers: {
      pending: { good: true },
      active: {
        good: true,
        says: 'was being handled: its handler is not stopped',
        sum: 'were being handled: their handlers are not stopped',
      },
      dead: { good: true },
      missing: { good: false, elsewhere: true, says: `is not in ${queue}: it is done, or was never there` },
    },
    act: (some, states) => operator.cancel(queue, some, states),
  });
}
