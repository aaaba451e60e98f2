import { setTimeout as sleep } from 'node:timers/promises';
import { formatDuration, type JobEvent } from '../../internal.js';
import type { Context } from '../host/context.js';
import { eventLine } from '../lines/event-line.js';
import { say, shownId } from '../terminal/output.js';
import { Hook } from './hook.js';
import { OutputRelay } from './output.js';

/** Pauses before a command that has failed is run again, ms: the first one, and the longest. Each is twice as long. */
const RETRY_MS = [1_000, 60_000] as const;

/** `delayq events Q -- command`: runs a command for each event, and again until it succeeds. */
export class EventCommand {
  readonly #context: Context;
  readonly #command: readonly string[];
  readonly #stop: AbortSignal;
  readonly #hook: Hook;
  readonly #gone = new AbortController();

  constructor(context: Context, command: readonly string[], stop: AbortSignal) {
    this.#context = context;
    this.#command = command;
    this.#stop = stop;
    this.#hook = new Hook(context, new OutputRelay(context, { live: true, onStop: () => this.#gone.abort() }));
  }

  /** Aborts when our stdout, to which the command prints, cannot be written any more. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Returns false if it was stopped before the command has succeeded. */
  async take(queue: string, [event]: readonly JobEvent[]): Promise<boolean> {
    if (!event) return true;
    const input = Buffer.from(eventLine(queue, event));
    for (let pause: number = RETRY_MS[0]; ; pause = Math.min(2 * pause, RETRY_MS[1])) {
      try {
        await this.#hook.run(this.#command, variablesOf(queue, event), input);
        return true;
      } catch (error) {
        const [why = ''] = (error as Error).message.split('\n', 1);
        const then = this.#stop.aborted ? 'it comes again' : `again in ${formatDuration(pause)}`;
        say(this.#context, `${queue} ${shownId(event.id)} ${event.type}: the command failed, ${then}: ${why}`);
      }
      await sleep(pause, undefined, { signal: this.#stop }).catch(() => {});
      if (this.#stop.aborted) return false;
    }
  }

  end(): void {
    this.#hook.close();
  }
}

/** What says the most of an event, as variables; empty if it says nothing of it. */
function variablesOf(queue: string, { id, type, by = '', attempt, reason = '', error = '' }: JobEvent) {
  return {
    DELAYQ_QUEUE: queue,
    DELAYQ_ID: id,
    DELAYQ_TYPE: type,
    DELAYQ_BY: by,
    DELAYQ_ATTEMPT: attempt === undefined ? '' : String(attempt),
    DELAYQ_REASON: reason,
    DELAYQ_ERROR: error,
  };
}
