import { BatchWorker, type Task, type WorkerOptions } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say } from '../terminal/output.js';
import type { Recipe } from './command.js';
import type { Drain } from './drain.js';
import { ExitPolicy } from './exit-status.js';
import { OutputRelay } from './output.js';
import { Pool, type PoolOptions } from './pool.js';
import { Processes } from './process.js';

/** How to run handlers. Durations are ms. */
export interface HandlerOptions
  extends Pick<WorkerOptions, 'timeoutMs' | 'ratePerSecond' | 'backoff' | 'refuse' | 'maxReleases'> {
  readonly name: string;
  readonly batch: number | undefined;
  /** How many processes run at once. */
  readonly parallel: number;
  readonly killAfterMs: number;
  /** Exit statuses after which a job is dead at once; after which it is given back. */
  readonly deadOn: ReadonlySet<number>;
  readonly releaseOn: ReadonlySet<number>;
  /** Handlers stay, and get one job after another. */
  readonly stay?: Pick<PoolOptions, 'command' | 'ahead' | 'maxJobs' | 'maxMemory' | 'answersOnStdout'> | undefined;
  readonly maxFailures: number;
}

/** How long after SIGKILL the end of a handler is waited for, ms. */
const AFTER_KILL_MS = 5_000;

/**
 * Runs a process for each batch of due jobs, or processes that stay. Returns false if a job died or was lost, if all handlers failed, or if the
 * run stopped early because of failures. Throws if the handler cannot be run at all, or stdout cannot be written.
 */
export async function drainIntoHandlers(
  context: Context,
  drain: Drain,
  recipe: Recipe,
  { name, parallel, killAfterMs, deadOn, releaseOn, stay, ...options }: HandlerOptions,
): Promise<boolean> {
  const { report, graceMs } = drain;
  const policy = new ExitPolicy(name, { parallel, deadOn, releaseOn }, drain.stop, report);
  const outputClosed = new AbortController();
  const relay = new OutputRelay(context, { live: parallel === 1, onStop: () => outputClosed.abort() });
  const processes = new Processes(context, relay, killAfterMs);
  const signal = AbortSignal.any([drain.stop, policy.signal, outputClosed.signal]);
  const isWarm = drain.taking.watch === true;
  const shared = { size: parallel, isWarm, processes, relay, policy, report, patienceMs: killAfterMs, stop: signal };
  const pool = stay && new Pool({ ...stay, ...shared });
  report.waitsFor = () => {
    const running = pool ? pool.working : processes.running;
    return running > 0 ? many(running, 'handler') : undefined;
  };

  const handle = async (tasks: Task[]): Promise<string> => {
    const { signal } = tasks[0] as Task;
    const ended = await processes
      .run({ ...recipe(tasks), signal })
      .catch((error: NodeJS.ErrnoException) => policy.startFailed(error));
    return policy.check(ended, signal);
  };
  const worker = new BatchWorker(drain.queues, pool ? ([task]) => pool.handle(task as Task) : handle, {
    ...drain.taking,
    ...options,
    concurrency: parallel * (stay?.ahead ?? 1),
    graceMs,
    abandonMs: killAfterMs + AFTER_KILL_MS,
    signal,
    // A slow reader of our output slows down the start of handlers. Those that have ended are settled at once.
    beforeStart: () => relay.room() ?? pool?.room(),
    onResult: (result) => {
      report.result(result);
      const { queue, job, reason, error } = result;
      if (reason) drain.deadJobs?.died(queue, job, reason, error);
    },
  });
  const graceOver = new Promise((resolve) => drain.graceOver.addEventListener('abort', resolve));
  const { circuitOpen, dead, lost } = await worker.run().finally(async () => {
    await pool?.close();
    await Promise.race([relay.flushed(), graceOver]);
    processes.close();
    report.summary();
  });
  if (policy.problem) throw policy.problem;
  if (relay.problem) throw relay.problem;
  const cut = outputClosed.signal.aborted;
  if (cut) say(context, 'stdout was closed by its reader: stopped and gave back the remaining jobs');
  return dead === 0 && lost === 0 && !cut && !circuitOpen && !report.allFailed;
}
