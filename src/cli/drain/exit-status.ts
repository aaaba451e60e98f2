import { setMaxListeners } from 'node:events';
import { constants } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { Dead, DelayqError, GivenBack, isDelayqError, Release } from '../../internal.js';
import { obstacleTo } from '../host/program.js';
import { type Answer, carryOut, parseAnswer } from './answers.js';
import { withCause } from './cause.js';
import type { DrainReport } from './drain.js';
import type { Ended } from './process.js';

/*
 * What the exit status of a handler means for its job, and for the run:
 *   0               done, or as it has answered (answers.ts)
 *   --dead-on       dead at once
 *   --release-on    given back, not counted as a failure
 *   126, 127        before any other status: the handler cannot be run. The run stops, and nothing is counted
 *   128 + signal    around a stop by SIGTERM, SIGINT or SIGHUP: the job is given back, and nothing is counted
 *   anything else   failed; but an answer other than ok comes before any status
 */

/** Errors of spawn(2) that may pass: the machine has no resources for another process now. */
const NO_RESOURCES = new Set(['EAGAIN', 'ENOMEM', 'EMFILE', 'ENFILE']);

/** Exit statuses of processes that were stopped by a service manager or by Ctrl-C. */
const STOPPED = new Set((['SIGHUP', 'SIGINT', 'SIGTERM'] as const).map((name) => 128 + constants.signals[name]));

/**
 * How long to wait, ms, whether the signal that ended a handler was meant for us too: it may reach us after its exit.
 */
const STOP_MS = 1_000;

/** The statuses by which a shell reports that a command was not found or cannot be executed. */
const CANNOT_RUN = new Set([126, 127]);

const GIVEN_BACK = 'The jobs were given back and not counted as failures';

/** Decides by a handler's exit status what happens to its job, and when no more handlers should be started. */
export class ExitPolicy {
  readonly #command: string;
  readonly #parallel: number;
  readonly #deadOn: ReadonlySet<number>;
  readonly #releaseOn: ReadonlySet<number>;
  readonly #stop: AbortSignal;
  readonly #report: Pick<DrainReport, 'noAnswer'>;
  readonly #halt = new AbortController();
  /** A handler has exited with another status than 126 or 127: so it can be run. */
  #hasRun = false;
  #couldNotRun = 0;
  #problem: DelayqError | undefined;

  constructor(
    command: string,
    { parallel, deadOn, releaseOn }: { parallel: number; deadOn: ReadonlySet<number>; releaseOn: ReadonlySet<number> },
    stop: AbortSignal,
    report: Pick<DrainReport, 'noAnswer'>,
  ) {
    this.#command = command;
    this.#report = report;
    this.#parallel = parallel;
    this.#deadOn = deadOn;
    this.#releaseOn = releaseOn;
    this.#stop = stop;
    // Each running handler may wait for it: many listeners are no leak.
    setMaxListeners(0, stop);
  }

  get signal(): AbortSignal {
    return this.#halt.signal;
  }

  get problem(): DelayqError | undefined {
    // Few jobs, and none of their handlers could be run.
    const noneRan = this.#couldNotRun > 0 && !this.#hasRun;
    return this.#problem ?? (noneRan ? this.#cannotRun() : undefined);
  }

  /**
   * Returns what came out of the job if it is done; empty: nothing. Throws what a worker expects: `Dead`, `Release`,
   * `GivenBack`, or another error if it failed.
   */
  async check(
    { status, signal: by, aborted, tail, answer: text = '', said = '' }: Ended,
    signal: AbortSignal,
  ): Promise<string> {
    // It was stopped before it was done, so its status means nothing.
    if (aborted) throw new Error(withCause((signal.reason as Error).message, tail));
    if (CANNOT_RUN.has(status) && !this.#hasRun) {
      this.#couldNotRun += 1;
      // Perhaps only these jobs cause it: other jobs are tried first.
      if (this.#couldNotRun <= this.#parallel) throw new GivenBack(0);
      this.#problem ??= this.#cannotRun();
      this.#halt.abort();
      throw new GivenBack();
    }
    this.#hasRun = true;
    const answer = this.#answerIn(text);
    if (answer && (status === 0 || answer.verb !== 'ok')) return carryOut(answer, tail) || said;
    if (status === 0) return said;
    if (STOPPED.has(status)) {
      await sleep(STOP_MS, undefined, { signal: this.#stop }).catch(() => {});
      if (this.#stop.aborted) throw new GivenBack();
    }
    const error = withCause(by ? `killed by ${by}` : `exit ${status}`, tail);
    if (this.#deadOn.has(status)) throw new Dead(error);
    if (this.#releaseOn.has(status)) throw new Release();
    throw new Error(error);
  }

  /** The first answer in what a handler wrote; reports lines that are none. */
  #answerIn(text: string): Answer | undefined {
    for (const line of text.split('\n')) {
      const answer = parseAnswer(line);
      if (answer) return answer;
      if (line.trim() !== '') this.#report.noAnswer(line);
    }
    return undefined;
  }

  /** Throws what a worker expects for jobs whose handler could not be started. */
  startFailed(error: NodeJS.ErrnoException): never {
    // This depends on the job: the run goes on.
    if (error.code === 'E2BIG')
      throw new Error(`cannot start ${this.#command}: arguments and environment are too large`);
    this.#problem ??= isDelayqError(error) ? error : this.#cannotStart(error);
    this.#halt.abort();
    throw new GivenBack();
  }

  #cannotStart(cause: NodeJS.ErrnoException): DelayqError {
    const { code = '', message } = cause;
    const what = `cannot start ${this.#command}`;
    if (NO_RESOURCES.has(code)) {
      const why = code === 'EAGAIN' ? 'no more processes can be started (EAGAIN)' : message;
      const next = `lower -P, or raise the limits (ulimit -u, ulimit -n). ${GIVEN_BACK}`;
      return new DelayqError('temporary', what, { why, next, cause });
    }
    // It was there when the drain began.
    const { why, next } = obstacleTo(this.#command) ?? { why: message, next: 'run it by hand' };
    return new DelayqError('config', what, { why, next: `${next}. ${GIVEN_BACK}`, cause });
  }

  #cannotRun(): DelayqError {
    return new DelayqError('config', `cannot run ${this.#command}`, {
      why: 'it exited with 126 or 127 at first: shells use these when a command is not found or not executable',
      next: `run it by hand; cron has a short PATH. ${GIVEN_BACK}`,
    });
  }
}
