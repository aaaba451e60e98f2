import { type DeadJob, DeadJobs, MAX_ERROR } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';
import { variablesOf } from './command.js';
import { HOOK_LIMITS, Hook } from './hook.js';
import { OutputRelay } from './output.js';

/** `drain Q --on-dead 'command'`: a shell command for each job that dies. */
export class OnDead {
  readonly jobs: DeadJobs;
  readonly #command: string;
  readonly #hook: Hook;

  constructor(context: Context, command: string, limits = HOOK_LIMITS) {
    this.#command = command;
    this.#hook = new Hook(context, new OutputRelay(context, { live: false }), limits);
    this.jobs = new DeadJobs(
      (job) => this.#run(job),
      '--on-dead',
      (text) => say(context, text),
    );
  }

  #run({ queue, id, reason, error = '', attempts, attributes, payload }: DeadJob): Promise<void> {
    const variables = {
      DELAYQ_ID: id,
      DELAYQ_QUEUE: queue,
      DELAYQ_ATTEMPT: String(attempts),
      DELAYQ_REASON: reason,
      DELAYQ_ERROR: error.slice(0, MAX_ERROR),
      ...variablesOf(attributes),
    };
    return this.#hook.run(['/bin/sh', '-c', this.#command], variables, payload ?? Buffer.alloc(0));
  }

  /** Waits up to `ms` for commands that run or wait. Those that still run are killed at the end of the process. */
  async end(ms: number): Promise<void> {
    await this.jobs.end(ms);
    this.#hook.close();
  }
}
