import { Command } from 'commander';
import {
  type Backoff,
  type Connection,
  DelayqError,
  isDelayqError,
  LONGEST_TIMER_MS,
  Operator,
  parseBackoff,
  Queue,
  queueWord,
  withRetries,
} from '../../internal.js';
import {
  addGlobals,
  count,
  details,
  duration,
  examples,
  positiveDuration,
  ratePerSecond,
  statuses,
} from '../args/options.js';
import { type HandlerWords, handlerAfter, requireQueue } from '../args/queues.js';
import { type Drain, DrainReport } from '../drain/drain.js';
import { drainToStdout } from '../drain/to-stdout.js';
import type { Context, Globals } from '../host/context.js';
import { findProgram } from '../host/program.js';
import { tellReady } from '../host/service.js';
import { isLine, NOT_A_LINE } from '../lines/drain-line.js';
import { many, say } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

/** How long a drain that watches waits for Redis at its start, ms: both may be started at the boot of a machine. */
const WAIT_MS = 60_000;

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
  readonly waitForRedis?: number;
  readonly grace?: number;
  readonly failIfEmpty?: boolean;
  readonly mustExist?: boolean;
  readonly verbose?: boolean;
  readonly quiet?: boolean;
  readonly yes?: boolean;
}

/** Options that only make sense with a handler: their names in the program and on the command line. */
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
      'Deliver due jobs, oldest first, until none is left that was due at the start: to a handler for each job ' +
        '(-- command), to a handler for each batch (--pipe), or to stdout, one a line.',
    )
    .usage('[options] <queue> [-- command args…]')
    .argument('<queue>', 'name of the queue, or several as high,low: the first has priority')
    .argument('[command...]', 'after --: the handler and its arguments')
    .option('--pipe <command>', 'run this shell command for each batch')
    .option('--batch <n>', 'with --pipe: jobs in a batch, at most (default: 100)', count)
    .option('-P, --parallel <n>', 'run n handlers at once (default: 1)', count)
    .option('--timeout <duration>', 'stop a handler by SIGTERM after this time: it failed', positiveDuration)
    .option('--kill-after <duration>', 'time from SIGTERM to SIGKILL (default: 5s)', duration)
    .option('--dead-on <statuses>', 'exit statuses that make a job dead at once (default: 65,100)', statuses)
    .option('--backoff <waits>', 'waits between tries: 30s,1m,10m (the last repeats) or exponential', parseBackoff)
    .option(
      '--max-failures <n>',
      'after n failures in a row stop; with --watch, try one job at a time (default: 20)',
      count,
    )
    .option('--rate <n/s>', 'start no more handlers than this: 10/s, 100/m', ratePerSecond)
    .option('-n, --number <n>', 'deliver n jobs at most', count)
    .option('--lease <duration>', "lease of each job (default: the queue's); to stdout: see below", positiveDuration)
    .option('--envelope', 'print each job with its queue, id, receipt, attempt and due time')
    .option('--text', 'deliver payloads that are JSON strings as plain text')
    .option('--at-most-once', 'to stdout: remove jobs before they are printed; a crash loses them')
    .option('-w, --watch', 'keep running, and deliver each job when it is due')
    .option('--for <duration>', 'keep running for this time', positiveDuration)
    .option('--wait-for-redis <duration>', 'wait for Redis at the start (default: 0s, with --watch 1m)', duration)
    .option(
      '--grace <duration>',
      'after SIGTERM or SIGINT wait this long for handlers or the reader (default: 30s)',
      duration,
    )
    .option('--fail-if-empty', 'exit 3 if nothing was due')
    .option('--must-exist', 'exit 3 if there is no such queue')
    .option('-v, --verbose', 'report each job on stderr')
    .option('-q, --quiet', 'print no summary, and report only jobs that die')
    .option('--yes', 'print jobs even to a terminal')
    .action((queues: string, handler: string[], options: Options, self: Command) =>
      drain(context, queues, handler, options, self),
    );
  examples(command, [
    'delayq drain order-close -- ./close-order',
    '* * * * *  delayq drain -q order-close -- /usr/local/bin/close-order',
    'delayq drain --watch -P 8 --timeout 1m high,low -- ./work {id}',
    'delayq drain --backoff 30s,1m,10m webhook -- ./post',
    'delayq drain mail --batch 50 --pipe ./send-all',
    'delayq drain --lease 5m order-close | ./close-orders | delayq ack',
    'delayq drain order-close | ./close-orders',
  ]);
  details(command, [
    'Forms:',
    '  -- command args…  One process for each job, without a shell. The payload is on',
    '                    its stdin. DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT,',
    '                    DELAYQ_TRIES, DELAYQ_DUE (ms), DELAYQ_RECEIPT and, for each',
    '                    attribute, DELAYQ_ATTR_NAME are in its environment.',
    '                    Arguments {id} and {queue} are replaced. The lease is',
    '                    renewed while it runs.',
    "  --pipe 'command'  One shell command for each batch, with a job a line on its",
    '                    stdin. Exit status 0 completes all of them, any other fails',
    '                    all.',
    '  neither           To stdout. A job is removed when its reader has read 256 KiB',
    '                    more, or has had the job for a lease, or has read everything',
    '                    and ended. What a program has read that crashes is lost: --',
    '                    and --pipe know of it, this form does not. With --lease',
    '                    drain prints envelopes, and jobs stay leased until delayq',
    '                    ack.',
    '',
    'Exit status of a handler after --:',
    '  0                 done: the job is removed',
    '  65, 100           dead at once (--dead-on)',
    '  126, 127          if no handler has run before: it cannot be run; drain gives',
    '                    the jobs back, counts no failure, and exits 78',
    '  other, a signal   failed: retried after the backoff, until no tries are left',
  ]);
  return addGlobals(command);
}

function hasHandler(handler: readonly string[], { pipe }: Options): boolean {
  return handler.length > 0 || pipe !== undefined;
}

function check(context: Context, names: string, after: HandlerWords, options: Options): void {
  const clash = (what: string, next: string) => new DelayqError('usage', what, { next });
  const { handler, words: args, dashes } = after;
  const handled = hasHandler(handler, options);
  // A variable that is not set in a script must not turn this into a drain without a handler.
  if (handler.length === 0 && dashes === args.length - 2)
    throw clash('the queue is missing', `write delayq drain QUEUE -- ${names}`);
  if (handler[0] === '' || options.pipe?.trim() === '' || (handler.length === 0 && dashes >= 0))
    throw clash('the handler is empty', 'give a program after --, or a command after --pipe; is a variable not set?');
  // Without -- the options of the handler would be parsed as ours.
  if (handler.length > 0 && dashes !== args.length - handler.length - 1) {
    const before = dashes < 0 ? [] : handler.slice(0, handler.length - (args.length - dashes - 1));
    const areQueues = before.length > 0 && before.every((word) => /^\w[\w.:-]*$/.test(word));
    throw areQueues
      ? clash(
          'several queues need commas',
          `write delayq drain ${[names, ...before].join(',')} -- ${handler.slice(before.length).join(' ')}`,
        )
      : clash('the handler must follow --', `write delayq drain ${queueWord(names)} -- ${handler.join(' ')}`);
  }
  if (handler.length > 0 && options.pipe !== undefined)
    throw clash('there are two handlers', 'give either --pipe or a command after --');
  if (handled && options.atMostOnce)
    throw clash('--at-most-once is for stdout only', 'leave it out: a handler gets each job at least once');
  if (options.batch !== undefined && options.pipe === undefined)
    throw clash('--batch needs --pipe', 'leave it out, or add --pipe');
  if (options.deadOn && handler.length === 0)
    throw clash('--dead-on needs a handler after --', 'leave it out: with --pipe a batch succeeds or fails as a whole');
  for (const [name, flag] of Object.entries(FOR_HANDLERS)) {
    if (!handled && options[name as keyof typeof FOR_HANDLERS] !== undefined)
      throw clash(`${flag} needs a handler`, `add one: delayq drain ${queueWord(names)} -- ./handler`);
  }
  if (options.verbose && options.quiet) throw clash('-v and -q exclude each other', 'leave out one of them');
  if (options.lease !== undefined && options.atMostOnce)
    throw clash('--lease and --at-most-once exclude each other', 'leave out one of them');
  if (options.text && (options.envelope || (options.lease !== undefined && !handled)))
    throw clash('--text does not work with envelopes', 'leave out --text, or --envelope and --lease');
  if (!handled && context.stdout.isTTY && !options.yes) {
    throw new DelayqError('usage', `this would print the due jobs of ${names} here, and remove them`, {
      why: 'stdout is a terminal: no program reads them',
      next: `add a handler (-- ./handler), look with "delayq inspect ${queueWord(String(names.split(',')[0]))}", or pass --yes`,
    });
  }
}

async function drain(
  context: Context,
  names: string,
  rest: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const after = handlerAfter(names, rest, self);
  const { handler } = after;
  check(context, names, after, options);
  // Told now, and not by the first job at night.
  if (handler.length > 0) findProgram(handler[0] ?? '', context.env.PATH);
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const queues = [...new Set(names.split(','))].map((name) => new Queue(redis, name, { prefix }));
  const watch = options.watch || options.for !== undefined;
  const stop = context.stopSignal();
  const started = performance.now();
  const waitMs = Math.min(options.waitForRedis ?? (watch ? WAIT_MS : 0), options.for ?? Number.POSITIVE_INFINITY);
  const connected = redisIsThere(context, stop, waitMs, async () => {
    await redis.connect();
    await Promise.all(queues.map(({ name }) => mayBeMissing(context, redis, name, options)));
  });
  if (!(await connected)) return;
  if (watch) tellReady(context);
  const verbosity = options.quiet ? 'quiet' : options.verbose ? 'verbose' : 'normal';
  const report = new DrainReport(context, verbosity, { watch });
  const handled = hasHandler(handler, options);
  const envelope = options.envelope || (options.lease !== undefined && !handled);
  const form = envelope ? 'envelope' : options.text ? 'text' : 'payload';
  /** Queues whose last jobs came with word that their payloads are texts. */
  const ofTexts = new Set<string>();
  const graceMs = options.grace ?? 30_000;
  const graceOver = new AbortController();
  stop.addEventListener('abort', () => {
    setTimeout(() => graceOver.abort(), Math.min(graceMs, LONGEST_TIMER_MS)).unref();
    report.stopping(graceMs);
  });
  const drain: Drain = {
    queues,
    globals: options,
    taking: {
      limit: options.number,
      leaseMs: options.lease,
      watch,
      forMs: options.for && Math.max(0, options.for - Math.floor(performance.now() - started)),
      onTrouble: report.trouble,
      onDrained: (queue, drained) => {
        if (drained.jobs.length > 0) ofTexts[drained.texts ? 'add' : 'delete'](queue.name);
        report.drained(queue, drained);
      },
    },
    graceMs,
    stop,
    graceOver: graceOver.signal,
    formOf: (queue) => (form === 'payload' && ofTexts.has(queue) ? 'exact' : form),
    bury: ({ name }, ids, reason) => new Operator(redis, { prefix }).bury(name, ids, { reason }),
    report,
  };
  try {
    const into = handled ? intoHandlers(context, drain, handler, options) : toStdout(context, drain, options);
    if (!(await into)) context.outcomes.add('incomplete');
  } finally {
    if (report.end()) context.outcomes.add('incomplete');
  }
  if (options.failIfEmpty && report.taken === 0) context.outcomes.add('empty');
}

/**
 * Resolves with true once `connect` has succeeded: repeats it for `ms` while its errors pass. With false if `stop` aborts
 * before that.
 */
async function redisIsThere(
  context: Context,
  stop: AbortSignal,
  ms: number,
  connect: () => Promise<void>,
): Promise<boolean> {
  const end = performance.now() + ms;
  const connected = withRetries(connect, {
    until: () => (stop.aborted ? 0 : end),
    onTrouble: troubleReporter(context),
  });
  const stopped = new Promise<false>((resolve) => stop.addEventListener('abort', () => resolve(false)));
  return Promise.race([connected.then(() => true), stopped]);
}

/**
 * With --must-exist throws `missing` if there is no such queue. Otherwise says so where somebody reads it: cron, which
 * mails what is printed, may run this every minute before the first job comes.
 */
async function mayBeMissing(context: Context, redis: Connection, name: string, options: Options): Promise<void> {
  if (options.mustExist) return requireQueue(redis, context.prefix(options), name);
  if (options.quiet || !(options.verbose || context.stderr.isTTY)) return;
  // Other errors are those of the drain, which meets them too.
  await requireQueue(redis, context.prefix(options), name).catch((error: unknown) => {
    if (isDelayqError(error, 'missing')) say(context, `${error.what}; ${error.next}`);
  });
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
  const { pipe } = options;
  const recipe = pipe === undefined ? execRecipe(context, drain, handler) : pipeRecipe(context, drain, pipe);
  return drainIntoHandlers(context, drain, recipe, {
    name: handler[0] ?? `--pipe '${pipe}'`,
    batch: pipe === undefined ? 1 : options.batch,
    concurrency: options.parallel ?? 1,
    timeoutMs: options.timeout,
    killAfterMs: options.killAfter ?? 5_000,
    deadOn: options.deadOn ?? new Set(pipe === undefined ? [65, 100] : []),
    ratePerSecond: options.rate,
    maxFailures: options.maxFailures ?? 20,
    backoff: options.backoff,
    ...(pipe !== undefined && { refuse: (job) => (options.envelope || isLine(job) ? undefined : NOT_A_LINE) }),
  });
}

async function toStdout(context: Context, drain: Drain, options: Options): Promise<boolean> {
  const delivery = options.atMostOnce ? 'once' : options.lease === undefined ? 'behind' : 'lease';
  const lost = await drainToStdout(context, drain, delivery);
  if (lost > 0) say(context, `${many(lost, 'job')} printed after the lease had expired: they may be delivered again`);
  return lost === 0;
}
