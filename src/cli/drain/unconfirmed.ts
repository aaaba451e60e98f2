import type { Job } from '../../internal.js';

interface Line {
  readonly job: Job;
  /** Where it begins and ends in all that was written, bytes. */
  readonly start: number;
  readonly end: number;
  /** When it was accepted, ms by the monotonic clock. */
  readonly accepted: number;
}

/** Lines that were accepted and do not count as handled yet, in the order in which they were written. */
export class Unconfirmed {
  #lines: readonly Line[] = [];
  /** All that was written, bytes. */
  #bytes = 0;
  /** When all up to a byte was found read, ms, oldest first. */
  #reads: { readonly at: number; readonly upTo: number }[] = [];
  /** The longest lease of them, ms. */
  #leaseMs = 0;

  get size(): number {
    return this.#lines.length;
  }

  /** How many bytes they have. */
  get bytes(): number {
    return this.#bytes - (this.#lines[0]?.start ?? this.#bytes);
  }

  /** How often to look what was read, ms: lines are confirmed at most a quarter of a lease later than they could be. */
  get lookMs(): number {
    return Math.max(this.#leaseMs / 4, 250);
  }

  /** Adds lines that were accepted, each with its length in bytes, its end included. */
  add(lines: readonly { readonly job: Job; readonly bytes: number }[], leaseMs: number): void {
    const accepted = performance.now();
    this.#leaseMs = Math.max(this.#leaseMs, leaseMs);
    const added = lines.map(({ job, bytes }): Line => {
      const start = this.#bytes;
      this.#bytes += bytes;
      return { job, start, end: this.#bytes, accepted };
    });
    this.#lines = this.#lines.concat(added);
  }

  /** Forgets a job; whether it was here. */
  delete(job: Job): boolean {
    const before = this.#lines.length;
    this.#lines = this.#lines.filter((line) => line.job !== job);
    return this.#lines.length < before;
  }

  /** Takes out the jobs behind whose lines `behind` more bytes were accepted. */
  takeBehind(behind: number): Job[] {
    return this.#takeUpTo(this.#bytes - behind);
  }

  /** Notes that by now all but the last `unread` bytes were read. */
  noteRead(unread: number): void {
    this.#reads.push({ at: performance.now(), upTo: this.#bytes - unread });
  }

  /** Forgets what was found read: the process did not run, and its reader may not have either. */
  forgetReads(): void {
    this.#reads = [];
  }

  /** Takes out the jobs whose lines were found read a lease ago. */
  takeRead(): Job[] {
    const now = performance.now();
    const old = this.#reads.findLastIndex(({ at }) => now - at >= this.#leaseMs);
    const upTo = this.#reads[old]?.upTo ?? 0;
    this.#reads.splice(0, old + 1);
    return this.#takeUpTo(upTo);
  }

  /** Takes out the jobs whose lines were accepted a lease ago. */
  takeAccepted(): Job[] {
    const now = performance.now();
    return this.#takeUpTo(this.#lines.findLast(({ accepted }) => now - accepted >= this.#leaseMs)?.end ?? 0);
  }

  /** Of `unread` bytes, how many end a line that was read in part. */
  partRead(unread: number): number {
    const read = this.#bytes - unread;
    const next = this.#lines.find(({ start }) => start >= read)?.start ?? this.#bytes;
    return next - read;
  }

  #takeUpTo(end: number): Job[] {
    const open = this.#lines.findIndex((line) => line.end > end);
    const done = open < 0 ? this.#lines : this.#lines.slice(0, open);
    this.#lines = open < 0 ? [] : this.#lines.slice(open);
    return done.map(({ job }) => job);
  }
}
