import {
  type Checked,
  check,
  DEFAULT_THRESHOLDS,
  DelayqError,
  eachQueue,
  exists,
  isDelayqError,
  type Limits,
  printable,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { duration, limit } from '../args/options.js';
import { access, unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { visible } from '../terminal/output.js';

type Limited = 'Lag' | 'DrainAge' | 'Dead' | 'Pending';
type Options = Globals & Partial<Record<`${'max' | 'warn'}${Limited}`, number>> & { failing?: Shares };

/** Shares of failed attempts, 0 to 1. */
interface Shares {
  readonly warn: number;
  readonly max: number;
}

export function checkCommand(command: CliCommand, context: Context): void {
  command
    .description('Print one line for monitoring, like a Nagios plugin: are queues within their limits?')
    .argument('[queue...]', 'names of queues (default: all)')
    .option('--max-lag <duration>', 'critical if a job has been due for longer', duration)
    .option('--max-drain-age <duration>', 'critical if the last drain is longer ago, or there was none', duration)
    .option('--max-dead <n>', 'critical if more jobs are dead', limit)
    .option('--max-pending <n>', 'critical if more jobs are pending, due or not', limit)
    .option('--failing <shares>', 'warning and critical if so many of the last attempts failed: 50%,100%', shares)
    .option('--warn-lag <duration>', 'warning, like --max-lag', duration)
    .option('--warn-drain-age <duration>', 'warning, like --max-drain-age', duration)
    .option('--warn-dead <n>', 'warning, like --max-dead', limit)
    .option('--warn-pending <n>', 'warning, like --max-pending', limit)
    .action((queues: string[], options: Options) => run(context, queues, options));
  command.details(`
    Default limits: --failing 50%,100% --warn-lag 2m --warn-dead 0 --max-lag 5m. That of --failing stays if you set
    others. A paused queue is at least a warning, and so is one whose handlers hang. Drains count even if they found no
    jobs, so an idle queue is OK while cron drains it. Performance data follows a |; with several queues each name
    starts with that of its queue.

    All attempts count as failed (100%) once ten have failed since a job was last done, or one has and none was done for
    a minute. A lease that expires is a failure. One job that is done ends that, and so do five minutes without another
    failure or try. Otherwise --failing looks at the last 5 minutes, if there were ten attempts. It leaves out a queue
    that is paused, or that nobody drains.

    While Redis is full, or cannot save, the state is CRITICAL.

    Exit status: 0 OK, 1 WARNING, 2 CRITICAL, 3 UNKNOWN: Redis cannot be reached, there is no such queue, or the usage
    is wrong.
  `);
  command.examples([
    'delayq check order-close',
    'delayq check --max-lag 2m --max-dead 0 --max-drain-age 5m order-close',
    'delayq check --warn-lag 30s --max-lag 2m --max-pending 100000 order-close mail',
  ]);
}

async function run(context: Context, names: readonly string[], options: Options): Promise<void> {
  const given = { max: limitsOf(options, 'max'), warn: limitsOf(options, 'warn') };
  const isLimited = [...Object.values(given.max), ...Object.values(given.warn)].some((one) => one !== undefined);
  const { max, warn } = DEFAULT_THRESHOLDS;
  const { max: all = max.failing, warn: some = warn.failing } = options.failing ?? {};
  const limits = isLimited ? given : DEFAULT_THRESHOLDS;
  const thresholds = { max: { ...limits.max, failing: all }, warn: { ...limits.warn, failing: some } };
  const { redis, prefix, inspector, auditor } = access(context, options);
  const listed = names.length > 0 ? names : await inspector.queues();
  // The list is lost, or there are no queues: their keys tell.
  const isLost = listed.length === 0;
  const found = isLost ? await auditor.queues(AbortSignal.timeout(LOOK_UP_MS)) : undefined;
  const queues = [...new Set(found?.queues ?? listed)];
  const checked: { readonly queue: string; readonly result: Checked }[] = [];
  for (const seen of await eachQueue(queues, (queue) => inspector.inspect(queue))) {
    const { queue } = seen;
    if ('error' in seen || (names.length > 0 && !exists(seen.found))) {
      // One unreadable queue must not hide the state of the others.
      const error = 'error' in seen ? seen.error : await unknownQueue(redis, prefix, queue);
      if (queues.length === 1) throw error;
      checked.push({ queue, result: { state: 'UNKNOWN', says: sentence(error), data: [] } });
    } else if (exists(seen.found)) {
      const result = check(seen.found, thresholds);
      checked.push({ queue, result: isLost ? unlisted(result) : result });
    }
    // Else the list of queues is out of date: one that has gone is no problem.
  }
  if (checked.length === 0) {
    throw new DelayqError('missing', 'there is no queue', {
      why: `nothing was ever enqueued at ${redis.address} with the prefix ${prefix}`,
      next: 'check the address and the prefix',
    });
  }
  const order = ORDER.flatMap((state) => checked.filter(({ result }) => result.state === state));
  const worst = (order[0] as (typeof order)[0]).result.state;
  context.outcomes.add(worst);
  const several = checked.length > 1;
  const shown = several ? order.filter(({ result }) => result.state !== 'OK') : order;
  const says = shown.map(({ queue, result }) => `${queue}: ${result.says}`).join('; ') || `${checked.length} queues`;
  const data = checked.flatMap(({ queue, result }) => result.data.map((one) => (several ? `${queue}.${one}` : one)));
  await line(context, worst, says, data);
}

/** Parses `50%,100%`; one share is for both. */
function shares(text: string): Shares {
  const [warn = Number.NaN, max = warn, more] = text
    .split(',')
    .map((part) => (/^\s*\d{1,3}(\.\d+)?%?\s*$/.test(part) ? Number.parseFloat(part) / 100 : Number.NaN));
  if (warn > 0 && warn <= max && max <= 1 && more === undefined) return { warn, max };
  throw usageError(
    `${printable(text)} is not two shares`,
    'write it as --failing 50%,100%',
    'the first is for a warning',
  );
}

/** How long to look through all keys of the database for queues, ms: monitoring does not wait. */
const LOOK_UP_MS = 3_000;

/** The result for a queue that is missing from the list of queues: `inspect` does not show it. */
function unlisted({ state, says, data }: Checked): Checked {
  const next = 'not in the list of queues: run delayq doctor --fix';
  return { state: state === 'OK' ? 'WARNING' : state, says: `${says}, ${next}`, data };
}

/** The worst first: a known problem is worse than an unknown state. */
const ORDER = ['CRITICAL', 'UNKNOWN', 'WARNING', 'OK'];

function limitsOf(options: Options, kind: 'max' | 'warn'): Limits {
  const pick = (name: Limited) => options[`${kind}${name}`];
  return { lag: pick('Lag'), drainAge: pick('DrainAge'), dead: pick('Dead'), pending: pick('Pending') };
}

/** Reports an error to monitoring: the state is unknown. */
export async function reportUnknown(context: Context, error: unknown): Promise<void> {
  const says = isDelayqError(error) ? sentence(error) : `delayq itself failed: ${String(error)}`;
  context.outcomes.add('UNKNOWN');
  await line(context, 'UNKNOWN', says, []).catch(() => {});
}

function sentence({ what, why, next }: DelayqError): string {
  return [what, why, next].filter((part) => part !== undefined).join('; ');
}

/** Prints the line. Performance data follows a |, so the words must not contain one. */
async function line(context: Context, state: string, says: string, data: readonly string[]): Promise<void> {
  const behind = data.length > 0 ? ` | ${data.join(' ')}` : '';
  await context.write(
    `DELAYQ ${state} - ${visible(context.withoutLogins(says).replace(/\s+/g, ' ')).replaceAll('|', '/')}${behind}\n`,
  );
}
