import { Command } from 'commander';
import { formatDuration, Operator, Spread } from '../../internal.js';
import { addGlobals, examples, ratePerSecond } from '../args/options.js';
import { type ActOptions, actOn, addAct } from '../bulk/edit.js';
import type { Context } from '../host/context.js';

interface Options extends ActOptions {
  readonly rate?: number;
}

const STATES = ['dead'] as const;

const BAD_ID = 'no handler can be given an id that is not UTF-8 or has a NUL byte; export, and import under another id';

export function requeueCommand(context: Context): Command {
  const command = new Command('requeue').description(
    'Makes dead jobs pending again, due now, as if they had never been tried. What they were enqueued with stays.',
  );
  command.option(
    '--rate <n/s>',
    'let so many fall due from now on: 10/s, 100/m (all are scheduled at once: nothing has to be kept running)',
    ratePerSecond,
  );
  addAct(command, STATES).action((queue: string, ids: string[], options: Options) =>
    requeue(context, queue, ids, options),
  );
  examples(command, [
    'delayq requeue order-close VbayYBj0B1VUn',
    'delayq requeue -n 10 order-close                # try some before --all',
    'delayq requeue --all --rate 5/s --yes order-close',
    'delayq requeue --grep "connection refused" --yes order-close',
    `delayq list --dead order-close | jq -r 'select(.reason == "failed") | .id' | delayq requeue order-close -`,
  ]);
  return addGlobals(command);
}

async function requeue(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  const stepMs = options.rate === undefined ? 0 : 1_000 / options.rate;
  const spread = new Spread({ stepMs });
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'requeue',
    done: 'requeued',
    answers: {
      requeued: { good: true },
      missing: { good: false, elsewhere: true, says: `is not among the dead of ${queue}` },
      orphaned: { good: false, says: 'has no payload and stays dead' },
      'bad-id': {
        good: false,
        says: `stays dead: ${BAD_ID}`,
        sum: `stay dead: ${BAD_ID}`,
      },
    },
    detail: (jobs) =>
      stepMs > 0 && jobs > 1 ? `: due from now on, the last in ${formatDuration((jobs - 1) * stepMs)}` : '',
    act: (some) => operator.requeue(queue, some, spread),
  });
}
