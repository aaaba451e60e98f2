import { formatDuration, Spread } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { count, duration, ratePerSecond } from '../args/options.js';
import { addEdit, type EditOptions } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

interface Options extends EditOptions {
  readonly rate?: number;
  readonly ttl?: number;
  readonly deliveries?: number;
}

export function requeueCommand(command: CliCommand, context: Context): void {
  command.description('Make dead jobs pending again: due now, with no failures and losses counted.');
  command
    .option('--rate <n/s>', 'spread the due times at this rate: 10/s, 100/m', ratePerSecond)
    .option('--ttl <duration>', 'replace the time to live of the jobs; 0s: no limit', duration)
    .option('--deliveries <n>', 'replace the limit of deliveries of the jobs', count);
  addEdit(context, command, ['dead'], (queue, { rate, ttl, deliveries }: Options) => {
    const stepMs = rate === undefined ? 0 : 1_000 / rate;
    const spread = new Spread({ stepMs });
    return {
      verb: 'requeue',
      participle: 'requeued',
      results: resultsOf(queue).requeue,
      detail: (jobs) =>
        stepMs > 0 && jobs > 1 ? `: due from now on, the last in ${formatDuration((jobs - 1) * stepMs)}` : '',
      apply: (operator, some) => operator.requeue(queue, some, spread, { ttl, deliveries }),
    };
  });
  command.details(`
    Jobs keep what they were enqueued with (payload, --tries, --ttl …), unless you replace it. With --rate all due times
    are set at once: nothing has to keep running.
  `);
  command.examples([
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    'delayq requeue --all --rate 5/s --yes order-close',
    "delayq requeue --error 'connection refused' --rate 5/s order-close",
    'delayq list --ids --dead order-close | delayq requeue order-close -',
  ]);
}
