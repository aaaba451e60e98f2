import { setTimeout as sleep } from 'node:timers/promises';
import type { JobEvent } from '../../internal.js';
import type { Context } from '../host/context.js';
import { eventLine } from '../lines/event-line.js';
import { writeJson } from '../terminal/output.js';
import { type Reader, readerOf } from './reader.js';

/** How often to look whether the reader has read what was written, and whether it is there, ms. */
const LOOK_MS = 10;
const PRESENCE_MS = 1_000;

/** `delayq events`: writes events to stdout. For a group it waits until their reader has read them. */
export class EventPipe {
  readonly #context: Context;
  readonly #reader: Reader | undefined;
  readonly #isWaitedFor: boolean;
  readonly #gone = new AbortController();
  readonly #timer: NodeJS.Timeout | undefined;

  constructor(context: Context, { fromGroup, follow }: { fromGroup?: string; follow?: boolean }) {
    this.#context = context;
    const next = 'pipe them into a program or a file, or add a command (-- ./command)';
    this.#reader = readerOf(context, { things: 'events', next });
    this.#isWaitedFor = fromGroup !== undefined;
    if (!follow) return;
    // Between two events nothing else would notice its end. It must have been seen before.
    void this.#isThere();
    this.#timer = setInterval(() => void this.#isThere(), PRESENCE_MS).unref();
  }

  /** Aborts when the reader has gone. */
  get gone(): AbortSignal {
    return this.#gone.signal;
  }

  async #isThere(): Promise<boolean> {
    if (this.#context.outputClosed || (await this.#reader?.check()) === 'gone') this.#gone.abort();
    return !this.#gone.signal.aborted;
  }

  /** Returns whether the reader has read them, as far as that can be known. */
  async take(queue: string, events: readonly JobEvent[]): Promise<boolean> {
    await writeJson(this.#context, events.map((event) => eventLine(queue, event)).join(''));
    if (!this.#isWaitedFor) return !this.#context.outputClosed;
    // Who has the pipe open must be known before it can be counted what is in it.
    while ((await this.#isThere()) && this.#reader?.unread()) await sleep(LOOK_MS);
    return this.#isThere();
  }

  end(): void {
    clearInterval(this.#timer);
  }
}
