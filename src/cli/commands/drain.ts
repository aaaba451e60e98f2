import { once } from 'node:events';
import type { Command } from 'commander';
import {
  type Backoff,
  type Connection,
  exists,
  Inspector,
  LONGEST_TIMER_MS,
  parseBackoff,
  Queue,
  queueWord,
  streamKey,
  withRetries,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { choice, count, duration, positiveDuration, ratePerSecond, size, statuses } from '../args/options.js';
import { access, handlerAfter, requireQueue, similarQueue } from '../args/queues.js';
import { memoryOf } from '../drain/descriptors.js';
import { type Drain, DrainReport } from '../drain/drain.js';
import { drainToStdout } from '../drain/to-stdout.js';
import { drainToStream } from '../drain/to-stream.js';
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
  readonly releaseOn?: ReadonlySet<number>;
  readonly stay?: boolean;
  readonly ahead?: number;
  readonly maxJobs?: number;
  readonly maxMemory?: number;
  readonly answers?: 'stdout';
  readonly backoff?: Backoff;
  readonly maxFailures?: number;
  readonly maxReleases?: number;
  readonly onDead?: string;
  readonly rate?: number;
  readonly lease?: number;
  readonly envelope?: boolean;
  readonly text?: boolean;
  readonly atMostOnce?: boolean;
  readonly toStream?: string | true;
  readonly maxUnacked?: number;
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

/** Far more entries than workers have in hand, and few enough not to fill Redis with what nobody reads. */
const MAX_UNACKED = 10_000;

/** Options that only make sense with a handler. */
const FOR_HANDLERS = [
  ...['parallel', 'timeout', 'killAfter', 'deadOn', 'releaseOn', 'backoff', 'maxFailures', 'maxReleases', 'rate'],
  'stay',
];

/** Options that only make sense with handlers that stay. */
const FOR_STAY = ['ahead', 'maxJobs', 'maxMemory', 'answers'];

/** Options that make no sense with a stream, besides. */
const NOT_TO_STREAM = [
  ...['pipe', 'batch', 'lease', 'envelope', 'text', 'atMostOnce', 'grace', 'yes'],
  ...FOR_HANDLERS,
  ...FOR_STAY,
];

export function drainCommand(command: CliCommand, context: Context): void {
  command
    .description(
      'Deliver due jobs, oldest first, until none is left that was due at the start: to a handler for each job ' +
        '(-- command), to handlers that stay (--stay), to one for each batch (--pipe), into a Redis stream ' +
        '(--to-stream), or to stdout, one a line.',
    )
    .usage('[options] <queue> [-- command args…]')
    .argument('<queue>', 'name of the queue, or several as high,low: the first has priority')
    .argument('[command...]', 'after --: the handler and its arguments')
    .option('--pipe <command>', 'run this shell command for each batch')
    .option('--batch <n>', 'with --pipe: jobs in a batch, at most (default: 100)', count)
    .option('--stay', 'with --: processes that stay, and get one job after another: see below')
    .option('--ahead <n>', 'with --stay: jobs that each process has in hand, at most (default: 1)', count)
    .option('--max-jobs <n>', 'with --stay: replace a process after n jobs', count)
    .option('--max-memory <size>', 'with --stay: replace a process that has grown over this: 256M', size)
    .addOption(choice('--answers <where>', 'with --stay: read answers from stdout, with their tickets', ['stdout']))
    .option('-P, --parallel <n>', 'run n handlers at once (default: 1)', count)
    .option('--timeout <duration>', 'SIGTERM to a handler after this time; counts as a failure', positiveDuration)
    .option('--kill-after <duration>', 'time from SIGTERM to SIGKILL (default: 5s)', duration)
    .option('--dead-on <statuses>', 'exit statuses that make a job dead at once (default: 65,100)', statuses)
    .option('--release-on <statuses>', 'exit statuses that put a job off, not counted as a failure', statuses)
    .option('--backoff <waits>', 'waits between tries: 30s,1m,10m (the last repeats) or exponential', parseBackoff)
    .option(
      '--max-failures <n>',
      'after n failures in a row stop; with --watch, try one job at a time (default: 20)',
      count,
    )
    .option('--max-releases <n>', 'a job that was put off more than n times is dead (default: 1000)', count)
    .option('--on-dead <command>', 'run this shell command for each job that dies: see below')
    .option('--rate <n/s>', 'start no more handlers than this: 10/s, 100/m', ratePerSecond)
    .option('-n, --number <n>', 'deliver n jobs at most', count)
    .option('--lease <duration>', "lease of each job (default: the queue's); to stdout: see below", positiveDuration)
    .option('--envelope', 'print each job with its queue, id, receipt, attempt and due time')
    .option('--text', 'deliver payloads that are JSON strings as plain text')
    .option('--at-most-once', 'to stdout: remove jobs before they are printed; a crash loses them')
    .option('--to-stream [key]', 'move jobs into a Redis stream (default: {queue}:stream with the prefix)')
    .option('--max-unacked <n>', 'with --to-stream: stop at n unacked entries (default: 10000)', count)
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
    .option('-q, --quiet', 'print no summary unless all failed, and report only jobs that die')
    .option('--yes', 'print jobs even to a terminal')
    .action((queues: string, handler: string[], options: Options, self: Command) =>
      drain(context, queues, handler, options, self),
    );
  command.exclude({
    verbose: ['quiet'],
    lease: ['atMostOnce'],
    text: ['envelope'],
    pipe: ['atMostOnce', 'deadOn', 'releaseOn', 'stay'],
    stay: ['text', 'envelope'],
  });
  command.details(`
    Forms:
      -- command args…  One process for each job, without a shell. The payload is on
                        its stdin. DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT,
                        DELAYQ_TRIES, DELAYQ_DUE (ms), DELAYQ_RECEIPT and, for each
                        attribute, DELAYQ_ATTR_NAME are in its environment.
                        Arguments {id} and {queue} are replaced. The lease is
                        renewed while it runs.
      --stay -- command Processes that stay. Each gets one job after another as a
                        JSON line on its stdin, with id, ticket, queue, attempt,
                        tries, due, attributes and payload, and answers each with a
                        line to descriptor 3: see below. -P says how many.
      --pipe 'command'  One shell command for each batch, with a job a line on its
                        stdin. Exit status 0 completes all of them, any other fails
                        all.
      neither           To stdout. A job is removed when its reader has read 256 KiB
                        more, or has had the job for a lease, or has read everything
                        and ended. If the reader crashes, what it has read is lost;
                        with -- and --pipe nothing is. With --lease drain prints
                        envelopes, and jobs stay leased until delayq ack.
      --to-stream       Into a stream, for consumer groups of your programs. The
                        script that removes a job adds an entry with the fields
                        id, queue, due, payload and, if it has some, attributes.
                        What all groups have acked is removed from the stream.

    --on-dead 'command' runs once for each job that dies by this drain: its handler
    failed for the last time or refused it, or it was lost too often. The payload is
    on its stdin. DELAYQ_ID, DELAYQ_QUEUE, DELAYQ_ATTEMPT, DELAYQ_REASON (failed,
    refused, released, lost, orphaned, bad id), DELAYQ_ERROR and DELAYQ_ATTR_NAME are
    in its environment. What it prints goes to stderr. 4 run at once, for 30 s at
    most. If it fails, that is reported, and changes nothing else.

    Answers, lines that a handler writes to descriptor 3 (DELAYQ_ANSWER_FD):
      ok [ticket [result]]  done: the job is removed
      retry [30s] [reason]  failed: retried after this time, or the backoff (-)
      release [10s]         put off, by default for 1s; not counted as a failure
      dead [reason]         dead at once
      A process that stays gets its next job when it has answered. With --ahead it
      has several in hand: the ticket of the job follows the first word (ok TICKET).
      A process for each job need not answer: its exit status says the same. An
      answer other than ok comes before it.

    Exit status of a handler after --:
      0                 done: the job is removed
      65, 100           dead at once (--dead-on)
      126, 127          if no handler has run before: it cannot be run; drain gives
                        the jobs back, counts no failure, and exits 78
      other, a signal   failed: retried after the backoff, until no tries are left

    Exit status of drain: 0 if a job was done, nothing was due, or a signal stopped it;
    1 if every handler failed, a job died, or --max-failures or --max-unacked stopped the run.
  `);
  command.examples([
    'delayq drain order-close -- ./close-order',
    '* * * * *  delayq drain -q order-close -- /usr/local/bin/close-order',
    'delayq drain --watch -P 8 --timeout 1m high,low -- ./work {id}',
    'delayq drain --watch --stay -P 4 order-close -- php worker.php',
    'delayq drain --backoff 30s,1m,10m webhook -- ./post',
    'delayq drain mail --batch 50 --pipe ./send-all',
    'delayq drain --lease 5m order-close | ./close-orders | delayq ack',
    'delayq drain order-close | ./close-orders',
    'delayq drain order-close --to-stream',
  ]);
}

/** Throws `usage` if the options do not go together with each other, the handler, or stdout. */
function check(context: Context, names: string, handler: readonly string[], self: Command): void {
  const options: Options = self.opts();
  const handled = handler.length > 0 || options.pipe !== undefined;
  const given = (names: readonly string[]) =>
    self.options.find(
      (option) => names.includes(option.attributeName()) && self.getOptionValue(option.attributeName()) !== undefined,
    );
  if (options.onDead?.trim() === '')
    throw usageError('the command of --on-dead is empty', 'give a command after --on-dead; is a variable not set?');
  if (options.toStream !== undefined) {
    const other = handler.length > 0 ? 'a handler' : given(NOT_TO_STREAM)?.long;
    if (other) throw usageError(`--to-stream does not work with ${other}`, 'leave out one of them');
    if (names.includes(','))
      throw usageError(
        'several queues cannot go to one stream',
        'run a drain for each queue',
        'each has a slot of its own',
      );
    return;
  }
  if (options.maxUnacked !== undefined)
    throw usageError('--max-unacked needs --to-stream', 'leave it out, or add --to-stream');
  if (options.pipe?.trim() === '')
    throw usageError('the handler is empty', 'give a command after --pipe; is a variable not set?');
  if (handler.length > 0 && options.pipe !== undefined)
    throw usageError('there are two handlers', 'give either --pipe or a command after --');
  if (handler.length > 0 && options.atMostOnce)
    throw usageError('--at-most-once is for stdout only', 'leave it out: a handler gets each job at least once');
  if (options.batch !== undefined && options.pipe === undefined)
    throw usageError('--batch needs --pipe', 'leave it out, or add --pipe');
  const forHandler = given([...FOR_HANDLERS, 'verbose']);
  if (forHandler && !handled)
    throw usageError(`${forHandler.long} needs a handler`, `add one: delayq drain ${queueWord(names)} -- ./handler`);
  const forStay = given(FOR_STAY);
  if (forStay && !options.stay)
    throw usageError(
      `${forStay.long} needs --stay`,
      'leave it out, or add --stay: processes that get one job after another',
    );
  if (options.stay && handler.includes('{id}'))
    throw usageError('{id} is not known when a handler that stays is started', 'take the id from the line of each job');
  if (options.maxMemory !== undefined && memoryOf(process.pid) === undefined)
    throw usageError('--max-memory needs /proc, which this system has not', 'use --max-jobs');
  if (options.text && options.lease !== undefined && !handled)
    throw usageError('--text does not work with envelopes', 'leave out --text, or --lease');
  if (!handled && context.stdout.isTTY && !options.yes) {
    const look = `look with "delayq inspect ${queueWord(String(names.split(',')[0]))}"`;
    throw usageError(
      `this would print the due jobs of ${names} here, and remove them`,
      `add a handler (-- ./handler), ${look}, or pass --yes`,
      'stdout is a terminal: no program reads them',
    );
  }
}

async function drain(
  context: Context,
  names: string,
  rest: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const handler = handlerAfter(names, rest, self);
  check(context, names, handler, self);
  // Told now, and not by the first job at night.
  if (handler.length > 0) findProgram(handler[0] ?? '', context.env.PATH);
  const { redis, prefix, operator } = access(context, options);
  const queues = [...new Set(names.split(','))].map((name) => new Queue(redis, name, { prefix }));
  const { toStream } = options;
  const stream = toStream !== undefined && {
    key: streamKey(prefix, names, toStream === true ? undefined : toStream),
    maxUnacked: options.maxUnacked ?? MAX_UNACKED,
  };
  const watch = options.watch || options.for !== undefined;
  const stop = context.stopSignal();
  const started = performance.now();
  const waitMs = Math.min(options.waitForRedis ?? (watch ? WAIT_MS : 0), options.for ?? Number.POSITIVE_INFINITY);
  const end = started + waitMs;
  const connect = async () => {
    await redis.connect();
    if (options.mustExist) await Promise.all(queues.map(({ name }) => requireQueue(redis, prefix, name)));
  };
  const limits = { until: () => (stop.aborted ? 0 : end), onTrouble: troubleReporter(context) };
  const stopped = once(stop, 'abort').then(() => 'stopped');
  if ((await Promise.race([withRetries(connect, limits), stopped])) === 'stopped') return;
  if (watch) tellReady(context);
  const verbosity = options.quiet ? 'quiet' : options.verbose ? 'verbose' : 'normal';
  const report = new DrainReport(context, verbosity, { watch });
  const handled = handler.length > 0 || options.pipe !== undefined;
  const envelope = options.envelope || (options.lease !== undefined && !handled);
  const form = envelope ? 'envelope' : options.text ? 'text' : 'payload';
  /** Queues whose last jobs came with word that their payloads are texts. */
  const ofTexts = new Set<string>();
  /** By each queue that perhaps does not exist: resolves when this is known, and was said. */
  const missing = new Map<string, Promise<void>>();
  const graceMs = options.grace ?? 30_000;
  const graceOver = new AbortController();
  let graceEnd = Number.POSITIVE_INFINITY;
  stop.addEventListener('abort', () => {
    graceEnd = performance.now() + graceMs;
    setTimeout(() => graceOver.abort(), Math.min(graceMs, LONGEST_TIMER_MS)).unref();
    report.stopping(graceMs);
  });
  const onDead =
    options.onDead === undefined
      ? undefined
      : new (await import('../drain/on-dead.js')).OnDead(context, options.onDead);
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
        onDead?.jobs.drained(queue, drained);
        // A partition may be empty.
        if (!drained.exists && queue.partitions.length === 1 && !missing.has(queue.name))
          missing.set(queue.name, sayIfMissing(context, redis, queue.name, options));
      },
    },
    graceMs,
    stop,
    graceOver: graceOver.signal,
    formOf: (queue) => (form === 'payload' && ofTexts.has(queue) ? 'exact' : form),
    bury: ({ name }, ids, reason) => operator.bury(name, ids, { reason }),
    report,
    deadJobs: onDead?.jobs,
  };
  // A stop is no failure: a service that is stopped has not failed because some jobs did, perhaps days ago.
  const incomplete = () => {
    if (!stop.aborted) context.outcomes.add('incomplete');
  };
  let complete = false;
  try {
    const into = stream
      ? drainToStream(context, drain, stream)
      : handled
        ? intoHandlers(context, drain, handler, options)
        : toStdout(context, drain, options);
    complete = await into;
    if (!complete) incomplete();
  } finally {
    if (onDead) {
      const { jobs } = onDead;
      report.waitsFor = () => (jobs.size > 0 ? many(jobs.size, '--on-dead command') : undefined);
      await onDead.end(Math.min(graceMs, graceEnd - performance.now()));
    }
    if (report.end()) incomplete();
    await Promise.all(missing.values());
  }
  // What is held back was due.
  if (options.failIfEmpty && report.taken === 0 && (complete || !stream)) context.outcomes.add('empty');
}

/**
 * Says that a queue does not exist, if that is so. Without a terminal or -v only if another has a similar name: cron
 * mails what is printed, perhaps every minute until the first job comes.
 */
async function sayIfMissing(context: Context, redis: Connection, name: string, options: Options): Promise<void> {
  const prefix = context.prefix(options);
  try {
    if (exists(await new Inspector(redis, { prefix }).inspect(name))) return;
    const similar = await similarQueue(redis, prefix, name);
    const isRead = options.verbose || (context.stderr.isTTY && !options.quiet);
    if (similar || isRead)
      say(context, `there is no queue ${name} yet; ${similar ? `similar: ${similar}` : 'list them: delayq inspect'}`);
  } catch {
    // The drain meets the error, too, or may do what this may not.
  }
}

async function intoHandlers(
  context: Context,
  drain: Drain,
  handler: readonly string[],
  options: Options,
): Promise<boolean> {
  const [{ drainIntoHandlers }, { execRecipe, pipeRecipe, stayProgram }, { ANSWER_FD }] = await Promise.all([
    import('../drain/to-handlers.js'),
    import('../drain/command.js'),
    import('../drain/answers.js'),
  ]);
  const { pipe } = options;
  const recipe = pipe === undefined ? execRecipe(context, drain, handler) : pipeRecipe(context, drain, pipe);
  const answersOnStdout = options.answers === 'stdout';
  return drainIntoHandlers(context, drain, recipe, {
    name: handler[0] ?? `--pipe '${pipe}'`,
    batch: pipe === undefined ? 1 : options.batch,
    parallel: options.parallel ?? 1,
    timeoutMs: options.timeout,
    killAfterMs: options.killAfter ?? 5_000,
    deadOn: options.deadOn ?? new Set(pipe === undefined ? [65, 100] : []),
    releaseOn: options.releaseOn ?? new Set(),
    ...(options.stay && {
      stay: {
        command: stayProgram(context, handler, answersOnStdout ? 1 : ANSWER_FD),
        ahead: options.ahead ?? 1,
        maxJobs: options.maxJobs ?? Number.POSITIVE_INFINITY,
        maxMemory: options.maxMemory,
        answersOnStdout,
      },
    }),
    ratePerSecond: options.rate,
    maxFailures: options.maxFailures ?? 20,
    maxReleases: options.maxReleases,
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
