import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, DelayqError, isDelayqError } from '../../index.js';

/** How long Redis may take to answer before it counts as down, and the pause between two questions, ms. */
const PATIENCE_MS = 250;
const RETRY_MS = 250;

/** How long to hold back the refusal of a long poll at most, ms: the client would ask again at once. */
const HOLD_MS = 1_000;

/** Whether a Redis answers: asks after a failed call, so that requests need not each wait for a timeout. */
export class Health {
  readonly #redis: Connection;
  #isAsking = false;
  #isDown = false;

  constructor(redis: Connection) {
    this.#redis = redis;
  }

  get isDown(): boolean {
    return this.#isDown;
  }

  /** A random hold, ms, half a second to one: so clients do not repeat all at once. */
  static holdMs(): number {
    return HOLD_MS * (0.5 + Math.random() / 2);
  }

  /** Throws `unreachable` while Redis does not answer; later if the client `canWait`: until then it may come back. */
  async check(canWait: boolean): Promise<void> {
    if (canWait) await sleep(Health.holdMs(), undefined, { ref: false });
    if (!this.#isDown) return;
    throw new DelayqError('unreachable', 'Redis does not answer', {
      why: 'a call has failed, and it has not answered since',
      next: 'check that Redis is up',
    });
  }

  /** Call this when a call has failed: if there was no reply, asks until there is one. */
  readonly failed = (error: unknown): void => {
    if (!this.#isAsking && isDelayqError(error, 'unreachable', 'unknown')) void this.#ask();
  };

  async #ask(): Promise<void> {
    this.#isAsking = true;
    const slow = setTimeout(() => {
      this.#isDown = true;
    }, PATIENCE_MS).unref();
    while (await this.#isSilent()) {
      this.#isDown = true;
      await sleep(RETRY_MS, undefined, { ref: false });
    }
    clearTimeout(slow);
    this.#isAsking = this.#isDown = false;
  }

  /** Any reply counts as an answer, except that Redis cannot serve now. */
  async #isSilent(): Promise<boolean> {
    try {
      await this.#redis.now();
      return false;
    } catch (error) {
      return isDelayqError(error, 'unreachable', 'unknown', 'temporary');
    }
  }
}
