import { type Backoff, BatchWorker, type Task } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';
import type { Drain } from './drain.js';
import { Verdict } from './exit-status.js';
import { Relay } from './output.js';
import { Processes, type Program } from './process.js';

/** What to run for some jobs of one queue. */
export type Recipe = (tasks: readonly Task[]) => Pick<Program, 'file' | 'args' | 'env' | 'input'>;

/** How handlers are run. Durations are ms. */
export interface Handling {
  /** What the handler is called in messages. */
  readonly name: string;
  /** The most jobs for one handler. */
  readonly batch: number;
  /** Handlers at once. */
  readonly parallel: number;
  readonly timeoutMs: number | undefined;
  readonly killAfterMs: number;
  /** Exit statuses that mean: dead at once. */
  readonly deadOn: ReadonlySet<number>;
  readonly ratePerSecond: number | undefined;
  readonly maxFailures: number;
  /** Left out: as the queue's config says. */
  readonly backoff: Backoff | undefined;
}

/** After SIGKILL a handler needs a moment to be seen gone, ms. */
const AFTER_KILL_MS = 5_000;

/**
 * Runs a process for each batch of due jobs; its exit status decides. Returns whether all went well: false when a job
 * died or was lost, or the run was cut short. Throws what keeps handlers from being run at all.
 */
export async function drainIntoHandlers(
  context: Context,
  drain: Drain,
  recipe: Recipe,
  how: Handling,
): Promise<boolean> {
  const { queues, report } = drain;
  const verdict = new Verdict(how.name, how.parallel, how.deadOn, drain.stop);
  const unread = new AbortController();
  const relay = new Relay(context, { live: how.parallel === 1, onStop: () => unread.abort() });
  const processes = new Processes(context, how.killAfterMs);

  const handle = async (tasks: Task[]): Promise<void> => {
    const { signal } = tasks[0] as Task;
    const ended = await processes
      .run({ ...recipe(tasks), signal, output: relay.open() })
      .catch((error: NodeJS.ErrnoException) => verdict.notStarted(error));
    await verdict.ended(ended, signal);
  };
  const worker = new BatchWorker(queues, handle, {
    batch: how.batch,
    concurrency: how.parallel,
    limit: drain.limit,
    leaseMs: drain.leaseMs,
    watch: drain.watch,
    forMs: drain.forMs,
    graceMs: drain.graceMs,
    timeoutMs: how.timeoutMs,
    abandonMs: how.killAfterMs + AFTER_KILL_MS,
    ratePerSecond: how.ratePerSecond,
    maxFailures: how.maxFailures,
    backoff: how.backoff,
    signal: AbortSignal.any([drain.stop, verdict.signal, unread.signal]),
    // A reader that is slow slows down the run, not the handlers that have ended.
    beforeStart: () => relay.room(),
    onTrouble: report.trouble,
    onDrained: (queue, drained) => report.drained(queue, drained),
    onResult: (result) => report.result(result),
  });
  const { circuitOpen, ...counts } = await worker.run().finally(async () => {
    await Promise.race([relay.flushed(), drain.graceOver]);
    processes.close();
  });
  const { acked: done, retried: failed, dead, lost, superseded, released } = counts;
  report.summary({ done, 'will be retried': failed, dead, lost, superseded, 'given back': released });
  if (verdict.problem) throw verdict.problem;
  if (relay.problem) throw relay.problem;
  if (circuitOpen)
    say(context, `${how.maxFailures} failures in a row: stopped, the rest was given back (--max-failures)`);
  if (verdict.halted) say(context, 'a handler exited with 255: stopped, the rest was given back');
  return dead === 0 && lost === 0 && !circuitOpen && !verdict.halted;
}
