import { BatchWorker, type Task, type WorkerOptions } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say } from '../terminal/output.js';
import type { Recipe } from './command.js';
import type { Drain } from './drain.js';
import { ExitPolicy } from './exit-status.js';
import { OutputRelay } from './output.js';
import { Processes } from './process.js';

/** How to run handlers. Durations are ms. */
export interface HandlerOptions extends Pick<WorkerOptions, 'timeoutMs' | 'ratePerSecond' | 'backoff' | 'refuse'> {
  readonly name: string;
  readonly batch: number | undefined;
  readonly concurrency: number;
  readonly killAfterMs: number;
  /** Exit statuses after which a job is dead at once. */
  readonly deadOn: ReadonlySet<number>;
  readonly maxFailures: number;
}

/** How long after SIGKILL the end of a handler is waited for, ms. */
const AFTER_KILL_MS = 5_000;

/**
 * Runs a process for each batch of due jobs. Returns false if a job died or was lost, if all handlers failed, or if the
 * run stopped early because of failures. Throws if the handler cannot be run at all, or stdout cannot be written.
 */
export async function drainIntoHandlers(
  context: Context,
  drain: Drain,
  recipe: Recipe,
  { name, killAfterMs, deadOn, ...options }: HandlerOptions,
): Promise<boolean> {
  const { report, graceMs } = drain;
  const { concurrency } = options;
  const exitPolicy = new ExitPolicy(name, concurrency, deadOn, drain.stop);
  const outputClosed = new AbortController();
  const relay = new OutputRelay(context, { live: concurrency === 1, onStop: () => outputClosed.abort() });
  const processes = new Processes(context, relay, killAfterMs);
  report.waitsFor = () => (processes.running > 0 ? many(processes.running, 'handler') : undefined);

  const handle = async (tasks: Task[]): Promise<void> => {
    const { signal } = tasks[0] as Task;
    const ended = await processes
      .run({ ...recipe(tasks), signal })
      .catch((error: NodeJS.ErrnoException) => exitPolicy.startFailed(error));
    await exitPolicy.check(ended, signal);
  };
  const worker = new BatchWorker(drain.queues, handle, {
    ...drain.taking,
    ...options,
    graceMs,
    abandonMs: killAfterMs + AFTER_KILL_MS,
    signal: AbortSignal.any([drain.stop, exitPolicy.signal, outputClosed.signal]),
    // A slow reader of our output slows down the start of handlers. Those that have ended are settled at once.
    beforeStart: () => relay.room(),
    onResult: (result) => report.result(result),
  });
  const graceOver = new Promise((resolve) => drain.graceOver.addEventListener('abort', resolve));
  const { circuitOpen, dead, lost } = await worker.run().finally(async () => {
    await Promise.race([relay.flushed(), graceOver]);
    processes.close();
    report.summary();
  });
  if (exitPolicy.problem) throw exitPolicy.problem;
  if (relay.problem) throw relay.problem;
  const cut = outputClosed.signal.aborted;
  if (cut) say(context, 'stdout was closed by its reader: stopped and gave back the remaining jobs');
  return dead === 0 && lost === 0 && !cut && !circuitOpen && !report.allFailed;
}
