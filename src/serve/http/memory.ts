import { Refusal } from './refusal.js';

/** The error when the limit is reached. */
export const TOO_MUCH = 'too many bytes in flight';

/** Bounds the bytes of bodies that are in memory, those of requests and of answers together. */
export class Memory {
  readonly limit: number;
  #used = 0;

  /** `limit`: bytes. */
  constructor(limit: number) {
    this.limit = limit;
  }

  get used(): number {
    return this.#used;
  }

  /** Reserves memory. Throws a refusal (503), and reserves nothing, if there is not enough. */
  reserve(bytes: number): void {
    if (this.#used + bytes > this.limit) throw new Refusal(503, TOO_MUCH, { headers: { 'Retry-After': '1' } });
    this.#used += bytes;
  }

  /** Counts bytes that are there already, even beyond the limit. */
  note(bytes: number): void {
    this.#used += bytes;
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}
