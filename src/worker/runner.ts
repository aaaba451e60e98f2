import type { Job } from '../model/job.js';
import { type Clock, formatDuration, LONGEST_TIMER_MS, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { type Call, Task } from './task.js';

/** A timer that fires this late shows that the whole process was held up, ms. */
const LATE_MS = 100;

type AbortCause = 'lost' | 'timeout' | 'stopped';

/** One call of the handler, with the jobs it was given. */
export class HandlerCall implements Call {
  readonly queue: Queue;
  readonly jobs: readonly Job[];
  /** When the handler was called or began, by the clock of the {@link Runner}, ms. */
  started: number;
  /** How long the handler ran, ms; undefined while it does. */
  ms: number | undefined;
  cause: AbortCause | undefined;
  cancelTimeout: (() => void) | undefined;
  cancelAbandon: (() => void) | undefined;
  onAbort: ((reason: Error) => void) | undefined;
  readonly #onBegin: (call: HandlerCall) => void;
  #controller: AbortController | undefined;
  #reason: Error | undefined;

  constructor(queue: Queue, jobs: readonly Job[], started: number, onBegin: (call: HandlerCall) => void) {
    this.queue = queue;
    this.jobs = jobs;
    this.started = started;
    this.#onBegin = onBegin;
  }

  postpone(): void {
    this.cancelTimeout?.();
    this.cancelTimeout = undefined;
  }

  begin(): void {
    if (this.ms === undefined && this.cause === undefined) this.#onBegin(this);
  }

  // Made on first use: most handlers never look at it, and it costs more than the rest of a call.
  get signal(): AbortSignal {
    this.#controller ??= new AbortController();
    if (this.#reason && !this.#controller.signal.aborted) this.#controller.abort(this.#reason);
    return this.#controller.signal;
  }

  abort(cause: AbortCause, message: string): void {
    this.cause = cause;
    this.#reason = new Error(message);
    this.#controller?.abort(this.#reason);
    this.onAbort?.(this.#reason);
  }
}

/**
 * Runs the handler. Aborts a call that times out, whose lease was lost, or which runs on after a stop, and abandons an
 * aborted call that does not end.
 */
export class Runner {
  readonly #handler: (tasks: Task[]) => unknown;
  readonly #timeoutMs: number | undefined;
  readonly #abandonMs: number;
  readonly #onEnd: (call: HandlerCall, error: unknown, returned?: unknown) => void;
  readonly #clock: Clock;
  readonly #running = new Set<HandlerCall>();
  readonly #begin = (call: HandlerCall) => {
    call.started = this.#clock.now();
    this.#limit(call);
  };

  /** `onEnd` is called once per call; `error` is why the handler failed, or undefined; `returned` is what it returned. */
  constructor(
    handler: (tasks: Task[]) => unknown,
    { timeoutMs, abandonMs }: { timeoutMs?: number | undefined; abandonMs: number },
    onEnd: (call: HandlerCall, error: unknown, returned?: unknown) => void,
    clock: Clock = realClock,
  ) {
    this.#handler = handler;
    this.#timeoutMs = timeoutMs;
    this.#abandonMs = abandonMs;
    this.#onEnd = onEnd;
    this.#clock = clock;
  }

  get size(): number {
    return this.#running.size;
  }

  /** How many calls run that were started after `time`, by the clock. */
  startedSince(time: number): number {
    return [...this.#running].filter(({ started }) => started > time).length;
  }

  start(queue: Queue, jobs: readonly Job[]): void {
    const call = new HandlerCall(queue, jobs, this.#clock.now(), this.#begin);
    this.#running.add(call);
    this.#limit(call);
    this.#run(call);
  }

  /** Aborts the call if it runs for too long from now on. */
  #limit(call: HandlerCall): void {
    call.postpone();
    const timeoutMs = this.#timeoutMs;
    if (timeoutMs !== undefined && timeoutMs <= LONGEST_TIMER_MS) {
      const abort = () => this.#abort(call, 'timeout', `timed out after ${formatDuration(timeoutMs)}`);
      call.cancelTimeout = this.#clock.after(timeoutMs, () => {
        // After the process was suspended, timers fire before the ends of handlers are seen: their signals may come
        // through other threads.
        const isLate = this.#clock.now() > call.started + timeoutMs + LATE_MS;
        if (isLate) call.cancelTimeout = this.#clock.after(LATE_MS, abort);
        else setImmediate(abort);
      });
    }
  }

  /** Aborts the call that holds `job`, if any: its lease was lost. */
  leaseLost(job: Job): void {
    for (const call of this.#running) {
      if (call.jobs.includes(job)) this.#abort(call, 'lost', 'lease lost: another drain has taken the job');
    }
  }

  stop(): void {
    for (const call of [...this.#running]) this.#abort(call, 'stopped', 'the worker was stopped');
  }

  async #run(call: HandlerCall): Promise<void> {
    let returned: unknown;
    try {
      returned = await this.#handler(call.jobs.map((job) => new Task(call.queue, job, call)));
    } catch (error) {
      // A turn later: handlers that throw at once would otherwise start each other recursively.
      await undefined;
      this.#end(call, readable(error) ?? new Error('the handler threw nothing'));
      return;
    }
    this.#end(call, returned === false ? new Error('the handler returned false') : undefined, returned);
  }

  #abort(call: HandlerCall, cause: AbortCause, message: string): void {
    if (call.ms !== undefined || call.cause !== undefined) return;
    call.abort(cause, message);
    const abandon = () => this.#end(call, new Error(`${message}, and did not end`));
    call.cancelAbandon = this.#clock.after(this.#abandonMs, abandon);
  }

  #end(call: HandlerCall, error: unknown, returned?: unknown): void {
    if (call.ms !== undefined) return;
    call.ms = this.#clock.now() - call.started;
    call.cancelTimeout?.();
    call.cancelAbandon?.();
    this.#running.delete(call);
    this.#onEnd(call, error, returned);
  }
}

/** The thrown value, or a substitute if reading its parts throws: that would end the worker later. */
function readable(thrown: unknown): unknown {
  try {
    if (thrown instanceof Error) void `${thrown.name}${thrown.message}${thrown.stack}`;
    return thrown;
  } catch {
    return new Error('the handler threw an error that cannot be read');
  }
}
