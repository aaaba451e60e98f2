import { Command } from 'commander';
import { type Backoff, DelayqError, LONGEST_TIMER_MS, parseBackoff, Queue } from '../../internal.js';
import {
  addGlobals,
  count,
  details,
  duration,
  examples,
  longerThanNone,
  ratePerSecond,
  statuses,
} from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import { type Drain, DrainReport } from '../drain/drain.js';
import { drainToStdout } from '../drain/to-stdout.js';
import type { Context, Globals } from '../host/context.js';
import { say } from '../terminal/output.js';

interface Options extends Globals {
  readonly number?: number;
  readonly pipe?: string;
  readonly batch?: number;
  readonly parallel?: number;
  readonly timeout?: number;
  readonly killAfter?: number;
  readonly deadOn?: ReadonlySet<number>;
  readonly backoff?: Backoff;
  readonly maxFailures?: number;
  readonly rate?: number;
  readonly lease?: number;
  readonly envelope?: boolean;
  readonly text?: boolean;
  readonly atMostOnce?: boolean;
  readonly watch?: boolean;
  readonly for?: number;
  readonly grace?: number;
  readonly failIfEmpty?: boolean;
  readonly mustExist?: boolean;
  readonly verbose?: boolean;
  readonly quiet?: boolean;
  readonly yes?: boolean;
}

/** Options of the forms with handlers, by the names under which they are read and written. */
const FOR_HANDLERS = {
  parallel: '-P',
  timeout: '--timeout',
  killAfter: '--kill-after',
  backoff: '--backoff',
  maxFailures: '--max-failures',
  rate: '--rate',
  verbose: '-v',
} as const;

export function drainCommand(context: Context): Command {
  const command = new Command('drain')
    .description(
      'Takes due jobs, oldest due first, until none that was due at the start is left, and runs a handler for each ' +
        '(-- command), for many at a time (--pipe), or writes them to stdout, one a line.',
    )
    .usage('[options] <queue> [-- command args…]')
    .argument('<queue>', 'name of the queue, or several as high,low: the first is asked again before each batch')
    .argument('[command...]', 'after --: the handler and its arguments')
    .option('--pipe <command>', 'run this shell command for each batch')
    .option('--batch <n>', 'with --pipe: at most n jobs at a time (default: 100)', count)
    .option('-P, --parallel <n>', 'handlers at once (default: 1)', count)
    .option('--timeout <duration>', 'a handler that takes longer gets SIGTERM and has failed', longerThanNone)
    .option('--kill-after <duration>', 'SIGKILL so long after SIGTERM (default: 5s)', duration)
    .option('--dead-on <statuses>', 'exit statuses that mean: dead at once (default: 65,100)', statuses)
    .option('--backoff <waits>', 'wait before another try: 30s,1m,10m (the last repeats) or exponential', parseBackoff)
    .option('--max-failures <n>', 'stop after n failures in a row (default: 20)', count)
    .option('--rate <n/s>', 'start at most so many handlers: 10/s, 100/m', ratePerSecond)
    .option('-n, --number <n>', 'take at most n jobs', count)
    .option(
      '--lease <duration>',
      'how long a job is ours at a time; to stdout: leave the jobs leased and print envelopes, for delayq ack',
      longerThanNone,
    )
    .option('--envelope', 'write {"queue":…,"id":…,"receipt":…,"attempt":…,"due":…,"payload":…}')
    .option('--text', 'write the text of payloads that are JSON strings, as enqueue --text stores them')
    .option('--at-most-once', 'to stdout: remove jobs as they are taken: never twice, lost if anything dies on the way')
    .option('-w, --watch', 'go on, delivering each job when it falls due')
    .option('--for <duration>', 'watch for so long, then end', longerThanNone)
    .option(
      '--grace <duration>',
      'after SIGTERM or SIGINT wait so long for handlers or the reader (default: 30s)',
      duration,
    )
    .option('--fail-if-empty', 'exit 3 when nothing was due')
    .option('--must-exist', 'exit 3 when there is no such queue')
    .option('-v, --verbose', 'say on stderr what became of each job')
    .option('-q, --quiet', 'no sum at the end, no word on single jobs')
    .option('--yes', 'write to a terminal')
    .action((queues: string, handler: string[], options: Options, self: Command) =>
      drain(context, queues, handler, options, self),
    );
  examples(command, [
    'delayq drain order-close -- ./close-order',
    '* * * * *  delayq drain -q order-close -- /usr/local/bin/close-order   # in a crontab',
    'delayq drain --watch -P 8 --timeout 1m high,low -- ./work {id}         # in a service',
    'delayq drain --backoff 30s,1m,10m webhook -- ./post',
    "delayq drain mail --pipe 'jq -c .to | ./send-all'",
    'delayq drain --lease 5m order-close | ./close-orders | delayq ack',
    'delayq drain order-close | ./close-orders',
  ]);
  details(command, [
    'Forms:',
    '  -- command args…  a process a job, no shell. The payload comes on stdin; DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT,',
    '                    DELAYQ_TRIES, DELAYQ_DUE (ms) and DELAYQ_RECEIPT are in the environment; {id} and {queue} are',
    '                    replaced where they are a whole argument. Its lease is renewed while the handler runs.',
    "  --pipe 'command'  a shell command a batch, one job a line on its stdin: exit 0 and all are done, else all failed.",
    '  neither           to stdout. A job is removed once its reader has read 256 KiB more, once it has had it for a',
    '                    lease, or once the reader has read everything and ended. If the reader dies first, or drain is',
    '                    stopped, the rest comes again. With --lease, delayq ack removes jobs.',
    '',
    'Exit status of a handler:',
    '  0                 done: the job is removed',
    '  65, 100           dead at once (--dead-on)',
    '  255               failed, and nothing more is started',
    '  126, 127          before any other: it cannot be run. Stop, give back, count nothing, exit 78',
    '  other, a signal   failed: tried again after the backoff, until its tries are spent; then dead',
  ]);
  return addGlobals(command);
}

function hasHandler(handler: readonly string[], { pipe }: Options): boolean {
  return handler.length > 0 || pipe !== undefined;
}

function check(context: Context, names: string, handler: readonly string[], options: Options, self: Command): void {
  const clash = (what: string, next: string) => new DelayqError('usage', what, { next });
  const handled = hasHandler(handler, options);
  const args = self.parent?.args ?? [];
  // An unset variable of a script must not turn a drain into one that runs nothing, or writes to stdout.
  if (handler[0] === '' || options.pipe?.trim() === '' || (handler.length === 0 && args.includes('--')))
    throw clash('the handler is empty', 'name a program after --, or a command after --pipe: was a variable not set?');
  // Without it a handler's options would be read as ours.
  if (handler.length > 0 && args.indexOf('--') !== args.length - handler.length - 1)
    throw clash('a handler stands after --', `write delayq drain ${names} -- ${handler.join(' ')}`);
  if (handler.length > 0 && options.pipe !== undefined)
    throw clash('there are two handlers', 'give --pipe or a command after --, not both');
  if (handled && options.atMostOnce)
    throw clash('a handler is told to of its job at least once', 'leave out --at-most-once');
  if (options.batch !== undefined && options.pipe === undefined) throw clash('--batch is for --pipe', 'leave it out');
  if (options.deadOn && handler.length === 0)
    throw clash('--dead-on is for a handler after --', 'with --pipe a batch is done or goes back as a whole');
  for (const [name, flag] of Object.entries(FOR_HANDLERS)) {
    if (!handled && options[name as keyof typeof FOR_HANDLERS] !== undefined)
      throw clash(`${flag} is for handlers`, `add one: delayq drain ${names} -- ./handler`);
  }
  if (options.verbose && options.quiet) throw clash('-v and -q contradict each other', 'leave out one of them');
  if (options.lease !== undefined && options.atMostOnce)
    throw clash('--at-most-once holds no lease', 'leave out one of them');
  if (options.text && (options.envelope || (options.lease !== undefined && !handled)))
    throw clash('an envelope is JSON', 'leave out --text');
  if (!handled && context.stdout.isTTY && !options.yes) {
    throw new DelayqError('usage', `this would take the due jobs of ${names}, print them here and remove them`, {
      why: 'stdout is a terminal: no program reads them',
      next: `add a handler (-- ./handler), look with "delayq inspect ${names.split(',')[0]}", or pass --yes`,
    });
  }
}

async function drain(
  context: Context,
  names: string,
  handler: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  check(context, names, handler, options, self);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const queues = [...new Set(names.split(','))].map((name) => new Queue(redis, name, { prefix }));
  await redis.connect();
  if (options.mustExist) {
    for (const { name } of queues) await requireQueue(redis, prefix, name);
  }
  const report = new DrainReport(context, options.quiet ? 'quiet' : options.verbose ? 'verbose' : 'normal');
  const handled = hasHandler(handler, options);
  const envelope = options.envelope || (options.lease !== undefined && !handled);
  const stop = context.stopSignal();
  const graceMs = options.grace ?? 30_000;
  const drain: Drain = {
    queues,
    limit: options.number,
    leaseMs: options.lease,
    watch: options.watch || options.for !== undefined,
    forMs: options.for,
    graceMs,
    stop,
    graceOver: new Promise((resolve) => {
      stop.addEventListener('abort', () =>
        setTimeout(() => resolve('over'), Math.min(graceMs, LONGEST_TIMER_MS)).unref(),
      );
    }),
    form: envelope ? 'envelope' : options.text ? 'text' : 'payload',
    report,
  };
  const well = handled ? await intoHandlers(context, drain, handler, options) : await toStdout(context, drain, options);
  const died = report.end();
  if (!well || died) context.outcomes.add('incomplete');
  if (options.failIfEmpty && report.taken === 0) context.outcomes.add('empty');
}

async function intoHandlers(
  context: Context,
  drain: Drain,
  handler: readonly string[],
  options: Options,
): Promise<boolean> {
  const [{ drainIntoHandlers }, { execRecipe, pipeRecipe }] = await Promise.all([
    import('../drain/to-handlers.js'),
    import('../drain/command.js'),
  ]);
  const odd = (notice: string) => say(context, notice);
  const { pipe } = options;
  const env = context.handlerEnv();
  const recipe =
    pipe === undefined ? execRecipe(handler, drain.form, env, odd) : pipeRecipe(pipe, drain.form, env, odd);
  return drainIntoHandlers(context, drain, recipe, {
    name: handler[0] ?? `--pipe '${pipe}'`,
    batch: pipe === undefined ? 1 : (options.batch ?? 100),
    parallel: options.parallel ?? 1,
    timeoutMs: options.timeout,
    killAfterMs: options.killAfter ?? 5_000,
    deadOn: options.deadOn ?? new Set(pipe === undefined ? [65, 100] : []),
    ratePerSecond: options.rate,
    maxFailures: options.maxFailures ?? 20,
    backoff: options.backoff,
  });
}

async function toStdout(context: Context, drain: Drain, options: Options): Promise<boolean> {
  const delivery = options.atMostOnce ? 'once' : options.lease === undefined ? 'behind' : 'lease';
  const lost = await drainToStdout(context, drain, delivery);
  if (lost > 0)
    say(context, `${lost} jobs were written, but their leases had ended before: they may come a second time`);
  return lost === 0;
}
