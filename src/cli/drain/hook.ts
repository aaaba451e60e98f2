import { formatDuration, realClock } from '../../internal.js';
import type { Context } from '../host/context.js';
import { withCause } from './cause.js';
import { handlerEnv } from './command.js';
import type { OutputRelay } from './output.js';
import { Processes } from './process.js';

/** How long a command may run, and how long after SIGTERM it is killed, ms. */
export const HOOK_LIMITS = { timeoutMs: 30_000, killAfterMs: 5_000 };

/** Runs commands that are told something: in the environment of handlers, for a limited time. */
export class Hook {
  readonly #env: NodeJS.ProcessEnv;
  readonly #processes: Processes;
  readonly #timeoutMs: number;

  constructor(context: Context, relay: OutputRelay, { timeoutMs, killAfterMs } = HOOK_LIMITS) {
    this.#env = handlerEnv(context);
    this.#processes = new Processes(context, relay, killAfterMs);
    this.#timeoutMs = timeoutMs;
  }

  /** Throws an error that says how the command has failed, if it has. */
  async run(
    [file = '', ...args]: readonly string[],
    variables: Readonly<Record<string, string>>,
    input: Buffer,
  ): Promise<void> {
    const timeout = new AbortController();
    const cancel = realClock.after(this.#timeoutMs, () => timeout.abort());
    const env = { ...this.#env };
    // No environment can have a NUL.
    for (const [name, value] of Object.entries(variables)) env[name] = value.replaceAll('\0', '');
    const { status, signal, aborted, tail } = await this.#processes
      .run({ file, args, env, input, answers: false, signal: timeout.signal })
      .finally(cancel);
    if (status === 0 && !aborted) return;
    const how = aborted ? `timed out after ${formatDuration(this.#timeoutMs)}` : signal && `killed by ${signal}`;
    throw new Error(withCause(how || `exit ${status}`, tail));
  }

  close(): void {
    this.#processes.close();
  }
}
