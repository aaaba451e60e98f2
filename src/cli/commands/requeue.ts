import { Command } from 'commander';
import { formatDuration, Spread } from '../../internal.js';
import { addGlobals, details, examples, ratePerSecond } from '../args/options.js';
import { addEdit, type EditOptions } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

interface Options extends EditOptions {
  readonly rate?: number;
}

export function requeueCommand(context: Context): Command {
  const command = new Command('requeue').description(
    'Make dead jobs pending again: due now, with no failures and losses counted.',
  );
  command.option('--rate <n/s>', 'spread the due times at this rate: 10/s, 100/m', ratePerSecond);
  addEdit(context, command, ['dead'], (queue, { rate }: Options) => {
    const stepMs = rate === undefined ? 0 : 1_000 / rate;
    const spread = new Spread({ stepMs });
    return {
      verb: 'requeue',
      participle: 'requeued',
      results: resultsOf(queue).requeue,
      detail: (jobs) =>
        stepMs > 0 && jobs > 1 ? `: due from now on, the last in ${formatDuration((jobs - 1) * stepMs)}` : '',
      apply: (operator, some) => operator.requeue(queue, some, spread),
    };
  });
  details(command, [
    'Jobs keep what they were enqueued with: payload, --tries, --ttl. With --rate all',
    'due times are set at once: nothing has to keep running.',
  ]);
  examples(command, [
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    'delayq requeue --all --rate 5/s --yes order-close',
    'delayq requeue --grep "connection refused" --yes order-close',
    'delayq list --ids --dead order-close | delayq requeue order-close -',
  ]);
  return addGlobals(command);
}
