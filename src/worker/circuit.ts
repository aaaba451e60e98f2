import { type Clock, realClock } from '../model/time.js';

/** The first pause after the circuit has opened, and the longest, ms. */
const FIRST_MS = 1_000;
const LONGEST_MS = 30_000;

interface Listener {
  /** Called when it opens; `why` is the last failure. */
  readonly onOpen: (why: string) => void;
  /** Called when it closes: a handler call has succeeded. */
  readonly onClose: () => void;
  /** Called when a pause is over: ask {@link Circuit.calls} again. */
  readonly onReady: () => void;
  /** How many handler calls run that have started since `time`, by the clock, or are about to start. */
  readonly startedSince: (time: number) => number;
}

/**
 * Opens after too many failures in a row: a service that handlers need is probably down, and more jobs would only use
 * up their tries. While open, starts one handler call at a time, after growing pauses, until one succeeds.
 */
export class Circuit {
  readonly #maxFailures: number;
  readonly #listener: Listener;
  readonly #clock: Clock;
  #inRow = 0;
  /** When it opened, by the clock, ms; undefined: it is closed. */
  #openedAt: number | undefined;
  #pauseMs = FIRST_MS;
  #cancelPause: (() => void) | undefined;
  /** There is no time left for pauses. */
  #isLate = false;

  constructor(maxFailures: number, listener: Listener, clock: Clock = realClock) {
    this.#maxFailures = maxFailures;
    this.#listener = listener;
    this.#clock = clock;
  }

  get isOpen(): boolean {
    return this.#openedAt !== undefined;
  }

  /** How many handler calls may start now, at most. After 0, `onReady` is called or a call ends. */
  get calls(): number {
    if (this.#openedAt === undefined) return Number.MAX_SAFE_INTEGER;
    return this.#cancelPause || this.#listener.startedSince(this.#openedAt) > 0 ? 0 : 1;
  }

  /** A handler call has succeeded. */
  succeeded(): void {
    this.#inRow = 0;
    if (this.#openedAt === undefined) return;
    this.close();
    this.#listener.onClose();
  }

  /** A handler call that started at `started`, by the clock, has failed, because of `why`. */
  failed(started: number, why: string): void {
    if (this.#openedAt === undefined) {
      this.#inRow += 1;
      if (this.#inRow < this.#maxFailures) return;
      this.#openedAt = this.#clock.now();
      this.#pause(FIRST_MS);
      this.#listener.onOpen(why);
    } else if (started > this.#openedAt) this.#pause(Math.min(2 * this.#pauseMs, LONGEST_MS));
  }

  /** A handler call that started at `started` has given its jobs back: this says nothing about the next one. */
  released(started: number): void {
    if (this.#openedAt !== undefined && started > this.#openedAt) this.#pause(this.#pauseMs);
  }

  /** Ends the pause, and makes no more: there is no time left. */
  hurry(): void {
    this.#isLate = true;
    this.#endPause();
    this.#listener.onReady();
  }

  close(): void {
    this.#openedAt = undefined;
    this.#endPause();
  }

  #pause(ms: number): void {
    this.#pauseMs = ms;
    this.#endPause();
    if (this.#isLate) return;
    this.#cancelPause = this.#clock.after(ms, () => {
      this.#endPause();
      this.#listener.onReady();
    });
  }

  #endPause(): void {
    this.#cancelPause?.();
    this.#cancelPause = undefined;
  }
}
