import { setMaxListeners } from 'node:events';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Dead, DelayqError, isDelayqError, Release } from '../../internal.js';
import type { Ended } from './process.js';

/** Of the errors of spawn(2), those that pass: the machine has no room for one more process now. */
const NO_ROOM = new Set(['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE']);

/** The signals that stop a service or a terminal's jobs, as statuses. Whoever sends them to all may reach delayq last. */
const STOPPED = new Set((['SIGHUP', 'SIGINT', 'SIGTERM'] as const).map((name) => 128 + constants.signals[name]));

/** How long a handler that ended so waits for its verdict, ms: Node hears of its end before it hears of its own signal. */
const STOP_MS = 1_000;

/** Exit statuses by which a shell says that a command is not there or cannot be run. */
const NOT_RUN = new Set([126, 127]);

/** Says by a handler's exit status what becomes of its job, in the words of a worker. */
export class Verdict {
  readonly #command: string;
  readonly #parallel: number;
  readonly #deadOn: ReadonlySet<number>;
  readonly #stop: AbortSignal;
  readonly #halt = new AbortController();
  /** A handler has ended in another way than "not found": it can be run. */
  #proven = false;
  #notRun = 0;
  /** The handler asked to stop the run. */
  halted = false;
  #problem: DelayqError | undefined;

  /** `parallel` handlers run at once: so many may end before one that was started earlier. `stop` stops the run. */
  constructor(command: string, parallel: number, deadOn: ReadonlySet<number>, stop: AbortSignal) {
    this.#command = command;
    this.#parallel = parallel;
    this.#deadOn = deadOn;
    this.#stop = stop;
    // As many handlers may wait for it as run at once: that is no leak.
    setMaxListeners(0, stop);
  }

  /** Aborts when no more handlers should be started. */
  get signal(): AbortSignal {
    return this.#halt.signal;
  }

  /** Why no handler can be run at all. */
  get problem(): DelayqError | undefined {
    // One that could not be run, with no other to compare it with, is no failure of its job.
    if (!this.#problem && this.#notRun > 0 && !this.#proven) this.#problem = this.#cannotRun();
    return this.#problem;
  }

  /** Resolves when the job is done; throws what becomes of it otherwise. */
  async ended({ status, signal: by, aborted, tail }: Ended, signal: AbortSignal): Promise<void> {
    const because = (what: string) => (tail === '' ? what : `${what}: ${tail}`);
    // Whatever status it ends with when it is told to: it was not let finish.
    if (aborted) throw new Error(because((signal.reason as Error).message));
    if (NOT_RUN.has(status) && !this.#proven) {
      this.#notRun += 1;
      // The first ones may be these jobs' own fault: they go behind the others, and the next one tells.
      if (this.#notRun <= this.#parallel) throw new Release(0);
      this.#problem ??= this.#cannotRun();
      this.#halt.abort();
      throw new Release();
    }
    this.#proven = true;
    if (status === 0) return;
    if (STOPPED.has(status)) {
      await sleep(STOP_MS, undefined, { signal: this.#stop }).catch(() => {});
      if (this.#stop.aborted) throw new Release();
    }
    const text = because(by ? `killed by ${by}` : `exit ${status}`);
    if (this.#deadOn.has(status)) throw new Dead(text);
    if (status === 255) {
      this.halted = true;
      this.#halt.abort();
    }
    throw new Error(text);
  }

  /** Throws what becomes of jobs whose handler could not be started. */
  notStarted(error: NodeJS.ErrnoException): never {
    const { code = '' } = error;
    if (code === 'E2BIG')
      throw new Error(`${this.#command} could not be started: arguments and environment are too large`);
    this.#problem ??= isDelayqError(error) ? error : this.#cannotStart(error);
    this.#halt.abort();
    throw new Release();
  }

  #cannotStart(cause: NodeJS.ErrnoException): DelayqError {
    const { code = '', message } = cause;
    const room = NO_ROOM.has(code);
    const next = room
      ? 'lower -P, or raise the limit (ulimit -u, ulimit -n)'
      : 'name a program that is there and executable; under cron the PATH is short, so write it in full';
    return new DelayqError(room ? 'temporary' : 'config', `cannot start ${this.#command}`, {
      why: REASONS[code] ?? message,
      next: `${next}. The jobs were given back, nothing was counted`,
      cause,
    });
  }

  #cannotRun(): DelayqError {
    return new DelayqError('config', `${this.#command} does not run`, {
      why: 'its first outcome was exit 126 or 127: by custom, a command was not found or cannot be run',
      next: 'run it by hand; under cron the PATH is short. The jobs were given back, nothing was counted',
    });
  }
}

const REASONS: Record<string, string> = {
  ENOENT: 'there is no such program (ENOENT)',
  EACCES: 'it is not executable, or not for this user (EACCES)',
  EAGAIN: 'no more processes may be started (EAGAIN)',
};
