import { Refusal } from './refusal.js';

/** What is said when there is no more. */
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

  /** Reserves memory. Throws a refusal (503) if there is not so much; then nothing is reserved. */
  reserve(bytes: number): void {
    if (this.#used + bytes > this.limit) throw new Refusal(503, TOO_MUCH, { headers: { 'Retry-After': '1' } });
    this.#used += bytes;
  }

  /** Notes bytes that are there already, whatever the bound. */
  note(bytes: number): void {
    this.#used += bytes;
  }

  release(bytes: number): void {
    this.#used -= bytes;
  }
}
