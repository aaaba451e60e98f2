import { Command, CommanderError } from 'commander';
import {
  type Checked,
  check,
  DEFAULT_THRESHOLDS,
  DelayqError,
  exists,
  Inspector,
  isDelayqError,
  type Limits,
} from '../../internal.js';
import { addGlobals, details, duration, examples } from '../args/options.js';
import { unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { visible } from '../terminal/output.js';

interface Options extends Globals {
  readonly maxLag?: number;
  readonly maxDrainAge?: number;
  readonly maxDead?: number;
  readonly maxPending?: number;
  readonly warnLag?: number;
  readonly warnDrainAge?: number;
  readonly warnDead?: number;
  readonly warnPending?: number;
}

export function checkCommand(context: Context): Command {
  const command = new Command('check')
    .description(
      'Says on one line, as a Nagios plugin, whether a queue (or each of several; none named: all) is in order.',
    )
    .argument('[queue...]', 'names of queues')
    .option('--max-lag <duration>', 'critical when a job has been due for longer', duration)
    .option('--max-drain-age <duration>', 'critical when the last drain is longer ago, or there was none', duration)
    .option('--max-dead <n>', 'critical when more jobs are dead', limit)
    .option('--max-pending <n>', 'critical when more jobs wait, due or not', limit)
    .option('--warn-lag <duration>', 'warning, as --max-lag', duration)
    .option('--warn-drain-age <duration>', 'warning, as --max-drain-age', duration)
    .option('--warn-dead <n>', 'warning, as --max-dead', limit)
    .option('--warn-pending <n>', 'warning, as --max-pending', limit)
    .action((queues: string[], options: Options) => run(context, queues, options));
  details(command, [
    'Without limits: --warn-lag 2m --warn-dead 0 --max-lag 5m. A queue that is paused is a warning, whatever the limits.',
    'A drain counts whether it found jobs or not, so that an idle queue which cron drains is in order.',
    '',
    'Exit status: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN: Redis cannot be reached, no such queue, or wrong usage.',
    'Behind | stands performance data; of several queues each name begins with that of its queue.',
  ]);
  examples(command, [
    'delayq check order-close',
    'delayq check --max-lag 2m --max-dead 0 --max-drain-age 5m order-close',
    'delayq check --warn-lag 30s --max-lag 2m --max-pending 100000 order-close remind',
  ]);
  return addGlobals(command);
}

/** Reads a limit: a whole number from 0. */
function limit(text: string): number {
  if (/^\d{1,15}$/.test(text)) return Number(text);
  throw new DelayqError('usage', `${JSON.stringify(text)} is not a limit`, {
    why: 'a whole number from 0 is needed',
    next: 'write it in digits, such as 100',
  });
}

/** Says of each queue what is out of its limits, the worst first, and sets the exit code. */
async function run(context: Context, names: readonly string[], options: Options): Promise<void> {
  const max: Limits = limitsOf(options, 'max');
  const warn: Limits = limitsOf(options, 'warn');
  const limited = [...Object.values(max), ...Object.values(warn)].some((one) => one !== undefined);
  const thresholds = limited ? { max, warn } : DEFAULT_THRESHOLDS;
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  const queues = [...new Set(names.length > 0 ? names : await inspector.queues())];
  const checked: { readonly queue: string; readonly result: Checked }[] = [];
  for (const queue of queues) {
    try {
      const snapshot = await inspector.inspect(queue);
      if (exists(snapshot)) checked.push({ queue, result: check(snapshot, thresholds) });
      // The list of queues is but a hint: one that is gone is no fault.
      else if (names.length > 0) throw await unknownQueue(redis, prefix, queue);
    } catch (error) {
      // One queue that cannot be read must not hide the state of the others.
      if (!isDelayqError(error, 'missing', 'usage', 'config', 'refused') || queues.length === 1) throw error;
      checked.push({ queue, result: { state: 'UNKNOWN', says: sentence(error), data: [] } });
    }
  }
  if (checked.length === 0) {
    throw new DelayqError('missing', 'there is no queue', {
      why: `nothing was ever enqueued at ${redis.address} with the prefix ${prefix}`,
      next: 'check the address and the prefix',
    });
  }
  const severity = (one: (typeof checked)[0]) => ORDER.indexOf(one.result.state);
  const order = [...checked].sort((a, b) => severity(b) - severity(a));
  const worst = (order[0] as (typeof order)[0]).result.state;
  context.outcomes.add(worst);
  const several = checked.length > 1;
  const told = several ? order.filter(({ result }) => result.state !== 'OK') : order;
  const says = told.map(({ queue, result }) => `${queue}: ${result.says}`).join('; ') || `${checked.length} queues`;
  const data = checked.flatMap(({ queue, result }) => result.data.map((one) => (several ? `${queue}.${one}` : one)));
  await line(context, worst, says, data);
}

/** From best to worst: what is known to be broken is worse than what is not known. */
const ORDER = ['OK', 'WARNING', 'UNKNOWN', 'CRITICAL'];

function limitsOf(options: Options, kind: 'max' | 'warn'): Limits {
  const pick = (name: 'Lag' | 'DrainAge' | 'Dead' | 'Pending') => options[`${kind}${name}`];
  return { lag: pick('Lag'), drainAge: pick('DrainAge'), dead: pick('Dead'), pending: pick('Pending') };
}

/** Reports an error to monitoring: the state is unknown. */
export async function reportUnknown(context: Context, error: unknown): Promise<void> {
  const says =
    error instanceof CommanderError
      ? error.message.replace(/^error: /, '')
      : isDelayqError(error)
        ? sentence(error)
        : `delayq itself failed: ${String(error)}`;
  context.outcomes.add('UNKNOWN');
  await line(context, 'UNKNOWN', says, []).catch(() => {});
}

function sentence({ message, why, next }: DelayqError): string {
  return [message, why, next].filter((part) => part !== undefined).join('; ');
}

/** The line. What stands behind a | is data, so the words have none. */
async function line(context: Context, state: string, says: string, data: readonly string[]): Promise<void> {
  const behind = data.length > 0 ? ` | ${data.join(' ')}` : '';
  await context.write(
    `DELAYQ ${state} - ${visible(context.withoutLogins(says).replace(/\s+/g, ' ')).replaceAll('|', '/')}${behind}\n`,
  );
}
