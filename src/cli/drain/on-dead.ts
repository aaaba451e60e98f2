import { type DeadJob, DeadJobs, formatDuration, MAX_ERROR, realClock } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';
import { withCause } from './cause.js';
import { handlerEnv, variablesOf } from './command.js';
import { OutputRelay } from './output.js';
import { Processes } from './process.js';

/** How long the command may run, and how long after SIGTERM it is killed, ms. */
const LIMITS = { timeoutMs: 30_000, killAfterMs: 5_000 };

/** `drain Q --on-dead 'command'`: a shell command for each job that dies. */
export class OnDead {
  readonly jobs: DeadJobs;
  readonly #command: string;
  readonly #env: NodeJS.ProcessEnv;
  readonly #processes: Processes;
  readonly #timeoutMs: number;

  constructor(context: Context, command: string, { timeoutMs, killAfterMs } = LIMITS) {
    this.#command = command;
    this.#env = handlerEnv(context);
    this.#processes = new Processes(context, new OutputRelay(context, { live: false }), killAfterMs);
    this.#timeoutMs = timeoutMs;
    this.jobs = new DeadJobs(
      (job) => this.#run(job),
      '--on-dead',
      (text) => say(context, text),
    );
  }

  async #run({ queue, id, reason, error = '', attempts, attributes, payload }: DeadJob): Promise<void> {
    const timeout = new AbortController();
    const cancel = realClock.after(this.#timeoutMs, () => timeout.abort());
    const variables = {
      DELAYQ_ID: id,
      DELAYQ_QUEUE: queue,
      DELAYQ_ATTEMPT: String(attempts),
      DELAYQ_REASON: reason,
      // No environment can have a NUL.
      DELAYQ_ERROR: error.replaceAll('\0', '').slice(0, MAX_ERROR),
      ...variablesOf(attributes),
    };
    const program = {
      file: '/bin/sh',
      args: ['-c', this.#command],
      env: { ...this.#env, ...variables },
      input: payload ?? Buffer.alloc(0),
      answers: false,
      signal: timeout.signal,
    };
    const { status, signal, aborted, tail } = await this.#processes.run(program).finally(cancel);
    if (status === 0 && !aborted) return;
    const how = aborted ? `timed out after ${formatDuration(this.#timeoutMs)}` : signal && `killed by ${signal}`;
    throw new Error(withCause(how || `exit ${status}`, tail));
  }

  /** Waits up to `ms` for commands that run or wait. Those that still run are killed at the end of the process. */
  async end(ms: number): Promise<void> {
    await this.jobs.end(ms);
    this.#processes.close();
  }
}
