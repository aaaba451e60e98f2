import { type NackOptions, withRetries } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { duration, positiveDuration } from '../args/options.js';
import { LineSettler, type Settle, type SettleOptions } from '../bulk/settle.js';
import type { Context } from '../host/context.js';

export function ackCommand(command: CliCommand, context: Context): void {
  settleCommand(context, command, 'Complete jobs: remove them from their queue.', () => {
    return (queue, jobs, limits) => queue.ackWithin(limits, jobs);
  });
  command.examples([
    'delayq drain --lease 5m order-close | ./close-orders | delayq ack',
    `delayq drain --lease 5m mail | jq -c 'select(.payload.ok?)' | delayq ack`,
    'delayq ack mail VbayYBj0B1VUn 2mXq0ZsL8Qe1      # queue, id, receipt',
  ]);
}

export function nackCommand(command: CliCommand, context: Context): void {
  settleCommand(context, command, 'Give jobs back to be retried; counts a failure of each.', (options) => {
    const mode = options.dead ? 'dead' : options.release ? 'release' : 'retry';
    const how: NackOptions = options.error === undefined ? { mode } : { mode, error: options.error };
    return async (queue, jobs, limits) => {
      const given = jobs.map(({ id, receipt }) => ({ id, receipt, delayMs: options.in }));
      return (await queue.nackWithin(limits, given, how)).map((nacked) => nacked.answer);
    };
  })
    .option('--in <duration>', "retry after this time, instead of the queue's backoff", duration)
    .option('--dead', 'do not retry: move the jobs to the dead set')
    .option('--release', 'count no failure; due as before, or after --in')
    .option('--error <text>', 'store this as the last error');
  command.exclude({ dead: ['release', 'in'], release: ['error'] });
  command.examples([
    'delayq nack --in 5m --error "rate limited" mail VbayYBj0B1VUn 2mXq0ZsL8Qe1',
    'delayq nack --dead --error "no address" < lines-in-hand.jsonl',
  ]);
}

export function renewCommand(command: CliCommand, context: Context): void {
  settleCommand(context, command, 'Extend the leases of jobs.', (options) => {
    return (queue, jobs, limits) => withRetries(() => queue.renew(jobs, options.lease), limits);
  }).option('--lease <duration>', "the new lease, from now (default: the queue's)", positiveDuration);
  command.examples([
    'delayq renew --lease 10m mail VbayYBj0B1VUn 2mXq0ZsL8Qe1',
    'delayq renew --lease 10m < lines-in-hand.jsonl',
  ]);
}

function settleCommand(
  context: Context,
  command: CliCommand,
  description: string,
  settleWith: (options: SettleOptions) => Settle,
): CliCommand {
  command
    .description(`${description} Jobs are named by arguments or by lines on stdin.`)
    .usage('[options] [<queue> <id> <receipt>]')
    .argument('[queue]', 'name of the queue')
    .argument('[id]', 'id of the job')
    .argument('[receipt]', 'receipt of its lease')
    .option('--json', 'print the counts as one JSON document')
    .action((queue: string | undefined, id: string | undefined, receipt: string | undefined, options: SettleOptions) =>
      settle(context, [queue, id, receipt], options, settleWith(options)),
    );
  return command.details(`
    Lines are those that "delayq drain --lease" prints: {"queue":…,"id":…,"receipt":…}; other keys are ignored. A job
    whose lease was lost is reported and left as it is; the exit status is then 1. A job that was replaced or cancelled
    is reported, too, but is no failure. Handlers of "delayq drain -- command" do not need these commands: their exit
    status decides.
  `);
}

async function settle(
  context: Context,
  named: readonly (string | undefined)[],
  options: SettleOptions,
  call: Settle,
): Promise<void> {
  const given = named.filter((part) => part !== undefined);
  if (given.length > 0 && given.length < 3)
    throw usageError('queue, id and receipt belong together', 'give all three, or none and lines on stdin');
  if (given.length === 0 && context.stdin.isTTY)
    throw usageError('no jobs are given', 'give queue, id and receipt, or pipe lines into it: see --help');

  const settler = new LineSettler(context, options, call);
  if (given.length === 3) {
    const [queue, id, receipt] = given as [string, string, string];
    await settler.add([{ queue, id, receipt, line: undefined }]);
  } else await settler.read();
  await settler.end();
}
