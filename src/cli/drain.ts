import { Command } from 'commander';
import {
  type Batch,
  DEFAULT_LEASE_MS,
  DelayqError,
  type Drained,
  drainLoop,
  exists,
  formatDuration,
  Leases,
  Queue,
} from '../index.js';
import type { Context, Globals } from './context.js';
import { addGlobals, count, duration, examples, longerThanNone } from './options.js';
import { complain, say } from './output.js';
import { unknownQueue } from './queues.js';
import { type Delivery, StdoutSink } from './sinks/stdout.js';

interface Options extends Globals {
  readonly number?: number;
  readonly lease?: number;
  readonly envelope?: boolean;
  readonly text?: boolean;
  readonly atMostOnce?: boolean;
  readonly watch?: boolean;
  readonly for?: number;
  readonly grace: number;
  readonly failIfEmpty?: boolean;
  readonly mustExist?: boolean;
  readonly yes?: boolean;
}

/** How long a drain that ends tries to settle what it holds while Redis is in trouble, ms. */
const LAST_PATIENCE_MS = 5_000;

export function drainCommand(context: Context): Command {
  const command = new Command('drain')
    .summary('take due jobs, oldest due first, and write them to stdout')
    .description(
      'Writes the payloads of due jobs to stdout, one a line, oldest due first, until none that was due at the start is\n' +
        'left. A line is removed once 128 KiB more has been accepted (a pipe and its reader hold that much), or at the\n' +
        'clean end; whatever is not removed by then comes again.',
    )
    .argument('<queue>', 'name of the queue, or several as high,low: the first is asked again before each batch')
    .option('-n, --number <n>', 'take at most n jobs', count)
    .option(
      '--lease <duration>',
      'leave the jobs leased for so long and print envelopes, for delayq ack',
      longerThanNone,
    )
    .option('--envelope', 'print {"queue":…,"id":…,"receipt":…,"attempt":…,"due":…,"payload":…}')
    .option('--text', 'print the text of payloads that are JSON strings, as enqueue --text stores them')
    .option('--at-most-once', 'remove jobs as they are taken: never twice, lost if anything dies on the way')
    .option('-w, --watch', 'go on, delivering each job when it falls due')
    .option('--for <duration>', 'watch for so long, then end', longerThanNone)
    .option('--grace <duration>', 'after SIGTERM or SIGINT wait so long for the reader', duration, 30_000)
    .option('--fail-if-empty', 'exit 3 when nothing was due')
    .option('--must-exist', 'exit 3 when there is no such queue')
    .option('--yes', 'write to a terminal')
    .action((queues: string, options: Options) => drain(context, queues, options));
  examples(command, [
    'delayq drain order-close | ./close-order',
    '* * * * *  delayq drain order-close | ./close-order     # in a crontab',
    'delayq drain --watch high,low | ./work                  # in a service',
    'delayq drain --lease 5m order-close | jq -c .payload',
  ]);
  return addGlobals(command);
}

async function drain(context: Context, names: string, options: Options): Promise<void> {
  const clash = (what: string, next: string) => new DelayqError('usage', what, { next });
  if (options.lease !== undefined && options.atMostOnce)
    throw clash('--at-most-once holds no lease', 'leave out one of them');
  if (options.text && (options.envelope || options.lease !== undefined))
    throw clash('an envelope is JSON', 'leave out --text');
  if (context.stdout.isTTY && !options.yes) {
    throw new DelayqError('usage', `this would take the due jobs of ${names}, print them here and remove them`, {
      why: 'stdout is a terminal: no program reads them',
      next: `pipe it into one, look with "delayq inspect ${names.split(',')[0]}", or pass --yes`,
    });
  }
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const queues = [...new Set(names.split(','))].map((name) => new Queue(redis, name, { prefix }));
  await redis.connect();
  if (options.mustExist) {
    for (const queue of queues) if (!exists(await queue.counts())) throw await unknownQueue(redis, prefix, queue.name);
  }

  const stop = context.stopSignal();
  const notes = new Notes(context);
  const watch = options.watch || options.for !== undefined;
  const leaseMs = options.atMostOnce ? 0 : (options.lease ?? DEFAULT_LEASE_MS);
  const delivery: Delivery = options.atMostOnce ? 'once' : options.lease === undefined ? 'behind' : 'lease';
  const leases = new Leases(leaseMs || DEFAULT_LEASE_MS, {
    onLost: (job) => sink.leaseLost(job),
    onTrouble: (error) => notes.trouble(error),
    // A run of cron's must not wait for a Redis that is gone while the next runs start.
    ...(watch ? {} : { patienceMs: LAST_PATIENCE_MS }),
  });
  const graceOver = new Promise<'over'>((resolve) => {
    stop.addEventListener('abort', () => {
      leases.giveUpAfter(options.grace);
      setTimeout(() => resolve('over'), Math.min(options.grace, 2 ** 31 - 1)).unref();
    });
  });
  const form = options.envelope || delivery === 'lease' ? 'envelope' : options.text ? 'text' : 'payload';
  const sink = new StdoutSink(context, leases, { delivery, form, graceOver });

  const enough = new AbortController();
  const batches = drainLoop(queues, {
    limit: options.number,
    leaseMs,
    watch,
    forMs: options.for,
    signal: AbortSignal.any([stop, enough.signal]),
    onTrouble: (error) => notes.trouble(error),
    onDrained: (queue, drained) => notes.drained(queue, drained),
  });
  /** Holds the leases of what was taken from the moment it is here. */
  const next = async (): Promise<Batch | undefined> => {
    const { value } = await batches.next();
    if (value && delivery !== 'once') leases.hold(value.queue, value.jobs, value.since);
    return value ?? undefined;
  };
  let ahead = next();
  let failure: unknown;
  try {
    for (let batch = await ahead; batch; batch = await ahead) {
      // The next batch is asked for while this one is written.
      ahead = next();
      ahead.catch(() => {});
      if (stop.aborted) await sink.giveBack(batch);
      if (stop.aborted || !(await sink.take(batch))) break;
    }
  } catch (error) {
    failure = error;
    // What Redis cannot be told now it learns from the leases' end; there is no use in waiting long.
    leases.giveUpAfter(Math.min(options.grace, LAST_PATIENCE_MS));
  }
  enough.abort();
  try {
    const unwanted = await ahead.catch(() => undefined);
    if (unwanted) await sink.giveBack(unwanted);
    await sink.end(failure !== undefined ? 'failed' : stop.aborted ? 'stopped' : 'done');
  } catch (error) {
    failure ??= error;
  }
  leases.close();
  if (failure !== undefined) throw failure;
  notes.end(sink.lost);
  if (options.failIfEmpty && notes.taken === 0) context.exitCode = 3;
}

/** What a drain says on stderr besides its lines: nothing, unless something is out of order. */
class Notes {
  readonly #context: Context;
  readonly #expired = new Map<string, number>();
  readonly #died = new Map<string, number>();
  readonly #paused = new Set<string>();
  #since: number | undefined;
  taken = 0;

  constructor(context: Context) {
    this.#context = context;
  }

  drained(queue: Queue, { jobs, expired, orphaned, died, state }: Drained): void {
    this.taken += jobs.length;
    if (expired > 0) this.#expired.set(queue.name, (this.#expired.get(queue.name) ?? 0) + expired);
    if (died > 0) this.#died.set(queue.name, (this.#died.get(queue.name) ?? 0) + died);
    if (orphaned > 0)
      say(this.#context, `${queue.name}: ${orphaned} ids had no payload and are dead now (reason: orphaned)`);
    if (state !== 'paused') this.#paused.delete(queue.name);
    else if (this.#context.stderr.isTTY && !this.#paused.has(queue.name)) {
      this.#paused.add(queue.name);
      say(this.#context, `${queue.name} is paused: nothing is taken`);
    }
  }

  /** Tells once that Redis is in trouble, and that it is back. */
  trouble(error: DelayqError | undefined): void {
    if (error && this.#since === undefined) {
      this.#since = performance.now();
      complain(this.#context, error);
      say(this.#context, 'still trying');
    } else if (!error && this.#since !== undefined) {
      say(this.#context, `Redis is back after ${formatDuration(performance.now() - this.#since)}`);
      this.#since = undefined;
    }
  }

  end(lost: number): void {
    for (const [name, n] of this.#expired) say(this.#context, `${name}: ${n} jobs had expired and were dropped`);
    for (const [name, n] of this.#died)
      say(this.#context, `${name}: ${n} jobs are dead now: nobody answered for them, too often`);
    if (lost > 0)
      say(this.#context, `${lost} jobs were written, but their leases had ended before: they may come a second time`);
    if (lost > 0 || this.#died.size > 0) this.#context.exitCode = 1;
  }
}
