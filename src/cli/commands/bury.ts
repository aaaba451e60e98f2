import { Command } from 'commander';
import { Operator } from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { type ActOptions, actOn, addAct } from '../bulk/edit.js';
import type { Context } from '../host/context.js';

interface Options extends ActOptions {
  readonly reason?: string;
}

const STATES = ['pending'] as const;

export function buryCommand(context: Context): Command {
  const command = new Command('bury').description(
    'Puts pending jobs among the dead, where no drain takes them and nothing removes them.',
  );
  command.option('--reason <text>', 'kept as their last error, for whoever looks at the dead');
  addAct(command, STATES).action((queue: string, ids: string[], options: Options) =>
    bury(context, queue, ids, options),
  );
  details(command, [
    'delayq requeue brings them back: due at once, whenever they were due before, and as if never tried. Their first due',
    'time is still told by delayq list and delayq show. Jobs that are being handled are left.',
  ]);
  examples(command, [
    'delayq bury --reason "until the patch ships" order-close order:42',
    `delayq bury --grep '"shop":7' --reason "shop 7 is down" --dry-run order-close`,
    'delayq requeue --grep "until the patch ships" order-close    # and back',
  ]);
  return addGlobals(command);
}

async function bury(context: Context, queue: string, ids: string[], options: Options): Promise<void> {
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  const { reason = '' } = options;
  await actOn(context, {
    queue,
    ids,
    options,
    states: STATES,
    verb: 'bury',
    done: 'buried',
    answers: {
      buried: { good: true },
      active: { good: false, elsewhere: true, says: 'is being handled, and left' },
      dead: { good: false, elsewhere: true, says: 'is dead already' },
      missing: { good: false, elsewhere: true, says: `is not in ${queue}: it is done, or was never there` },
    },
    act: (some) => operator.bury(queue, some, { reason }),
  });
}
