import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, DelayqError, isDelayqError } from '../../index.js';

/** How long Redis may take to answer before it counts as down, and the pause between two questions, ms. */
const PATIENCE_MS = 250;
const RETRY_MS = 250;

/** The longest time for which a refusal is held back from clients that wanted to wait, ms: they would ask again at once. */
const HOLD_MS = 1_000;

/** Whether a Redis answers. Asked only after a call has failed: while it does not, no request has to find out for itself. */
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

  /** A pause in which many clients do not ask all at once, ms: half a second to one. */
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

  /** A call has failed: if there was no reply, asks until there is one. */
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

  /** Any reply will do, but for one that says that it cannot serve now. */
  async #isSilent(): Promise<boolean> {
    try {
      await this.#redis.now();
      return false;
    } catch (error) {
      return isDelayqError(error, 'unreachable', 'unknown', 'temporary');
    }
  }
}
