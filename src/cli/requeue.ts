import { Command } from 'commander';
import { Operator } from '../index.js';
import { type ActOptions, actOn, addAct } from './act.js';
import type { Context } from './context.js';
import { addGlobals, examples } from './options.js';

const STATES = ['dead'] as const;

export function requeueCommand(context: Context): Command {
  const command = new Command('requeue')
    .summary('put dead jobs back into their queue')
    .description(
      'Makes dead jobs pending again, due now, as if they had never been tried. What they were enqueued with stays.',
    );
  addAct(command, STATES).action((queue: string, ids: string[], options: ActOptions) =>
    requeue(context, queue, ids, options),
  );
  examples(command, [
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    'delayq requeue --grep "connection refused" --yes order-close',
    `delayq list --dead order-close | jq -r 'select(.reason == "failed") | .id' | delayq requeue order-close -`,
  ]);
  return addGlobals(command);
}

async function requeue(context: Context, queue: string, ids: string[], options: ActOptions): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'requeue',
    done: 'requeued',
    answers: {
      requeued: { good: true },
      missing: { good: false, says: `is not among the dead of ${queue}` },
      orphaned: { good: false, says: 'has no payload and stays dead' },
    },
    act: (some) => operator.requeue(queue, some),
  });
}
