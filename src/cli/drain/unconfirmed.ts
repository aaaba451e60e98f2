import type { Job } from '../../internal.js';

/** A line with its job. Positions are bytes of all output so far. */
interface WrittenLine {
  readonly job: Job;
  readonly start: number;
  readonly end: number;
  /** When stdout accepted it, ms by the monotonic clock. */
  readonly accepted: number;
}

/**
 * The lines that stdout has accepted, but that do not count as handled yet, in the order of writing. Each `take…`
 * removes and returns the jobs of the lines at the front that count as handled by one rule.
 */
export class UnconfirmedLines {
  #lines: readonly WrittenLine[] = [];
  /** All output so far, bytes. */
  #written = 0;
  /** When everything up to a position was found to be read, ms, oldest first. */
  #reads: { readonly at: number; readonly upTo: number }[] = [];
  /** The longest lease of these jobs, ms. */
  leaseMs = 0;

  get size(): number {
    return this.#lines.length;
  }

  get bytes(): number {
    return this.#written - (this.#lines[0]?.start ?? this.#written);
  }

  /** How often to check what was read, ms: often enough to confirm a line at most a quarter of a lease late. */
  get checkMs(): number {
    return Math.max(this.leaseMs / 4, 250);
  }

  /** Adds lines that stdout accepted `agoMs` ago (default: now), with their lengths in bytes, line end included. */
  add(lines: readonly { readonly job: Job; readonly bytes: number; readonly agoMs?: number }[], leaseMs: number): void {
    const now = performance.now();
    this.leaseMs = Math.max(this.leaseMs, leaseMs);
    const added = lines.map(({ job, bytes, agoMs = 0 }): WrittenLine => {
      const start = this.#written;
      this.#written += bytes;
      return { job, start, end: this.#written, accepted: now - agoMs };
    });
    this.#lines = this.#lines.concat(added);
  }

  /** Each line with its length, and how long ago stdout accepted it, ms: what another process needs to go on. */
  described(): { readonly job: Job; readonly bytes: number; readonly agoMs: number }[] {
    const now = performance.now();
    return this.#lines.map(({ job, start, end, accepted }) => ({ job, bytes: end - start, agoMs: now - accepted }));
  }

  delete(job: Job): boolean {
    const before = this.#lines.length;
    this.#lines = this.#lines.filter((line) => line.job !== job);
    return this.#lines.length < before;
  }

  /** Takes the jobs whose lines have at least `bytes` of output after them. */
  takeFollowedBy(bytes: number): Job[] {
    return this.#takeUpTo(this.#written - bytes);
  }

  /** Records that all output but the last `unread` bytes has been read by now. */
  noteRead(unread: number): void {
    this.#reads.push({ at: performance.now(), upTo: this.#written - unread });
  }

  /**
   * Forgets what {@link noteRead} recorded: while this process was suspended, its reader may have been suspended too.
   */
  forgetReads(): void {
    this.#reads = [];
  }

  takeReadALeaseAgo(): Job[] {
    const now = performance.now();
    const last = this.#reads.findLastIndex(({ at }) => now - at >= this.leaseMs);
    const upTo = this.#reads[last]?.upTo ?? 0;
    this.#reads.splice(0, last + 1);
    return this.#takeUpTo(upTo);
  }

  takeAcceptedALeaseAgo(): Job[] {
    const now = performance.now();
    return this.#takeUpTo(this.#lines.findLast(({ accepted }) => now - accepted >= this.leaseMs)?.end ?? 0);
  }

  /** If the last `unread` bytes begin in the middle of a line: how many of them belong to that line. */
  restOfPartlyRead(unread: number): number {
    return this.#nextLine(unread) - (this.#written - unread);
  }

  /** Takes the jobs whose lines are unread as a whole: those lines were removed from the output. */
  takeUnread(unread: number): Job[] {
    this.#written = this.#nextLine(unread);
    const taken = this.#lines.filter(({ start }) => start >= this.#written);
    this.#lines = this.#lines.slice(0, this.#lines.length - taken.length);
    return taken.map(({ job }) => job);
  }

  /** Where the first line begins that is within the last `unread` bytes as a whole. */
  #nextLine(unread: number): number {
    return this.#lines.find(({ start }) => start >= this.#written - unread)?.start ?? this.#written;
  }

  #takeUpTo(end: number): Job[] {
    const open = this.#lines.findIndex((line) => line.end > end);
    const done = open < 0 ? this.#lines : this.#lines.slice(0, open);
    this.#lines = open < 0 ? [] : this.#lines.slice(open);
    return done.map(({ job }) => job);
  }
}
