import { Command } from 'commander';
import { formatDuration, Operator, Spread } from '../../internal.js';
import { addGlobals, details, examples, ratePerSecond } from '../args/options.js';
import { addEditOptions, type EditOptions, editJobs } from '../bulk/edit.js';
import { resultsOf } from '../bulk/results.js';
import type { Context } from '../host/context.js';

interface Options extends EditOptions {
  readonly rate?: number;
}

const STATES = ['dead'] as const;

export function requeueCommand(context: Context): Command {
  const command = new Command('requeue').description(
    'Make dead jobs pending again: due now, with no failures and losses counted.',
  );
  command.option('--rate <n/s>', 'spread the due times at this rate: 10/s, 100/m', ratePerSecond);
  addEditOptions(command, STATES).action((queue: string, ids: string[], options: Options) =>
    requeue(context, queue, ids, options),
  );
  details(command, [
    'Jobs keep what they were enqueued with: payload, --tries, --ttl. With --rate all',
    'due times are set at once: nothing has to keep running.',
  ]);
  examples(command, [
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    'delayq requeue --all --rate 5/s --yes order-close',
    'delayq requeue --grep "connection refused" --yes order-close',
    'delayq list --dead order-close | jq -r .id | delayq requeue order-close -',
  ]);
  return addGlobals(command);
}

async function requeue(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  const stepMs = options.rate === undefined ? 0 : 1_000 / options.rate;
  const spread = new Spread({ stepMs });
  await editJobs(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'requeue',
    participle: 'requeued',
    results: resultsOf(queue).requeue,
    detail: (jobs) =>
      stepMs > 0 && jobs > 1 ? `: due from now on, the last in ${formatDuration((jobs - 1) * stepMs)}` : '',
    apply: (some) => operator.requeue(queue, some, spread),
  });
}
