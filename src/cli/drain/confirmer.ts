import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, Leases } from '../../internal.js';
import type { Reader } from './reader.js';
import { UnconfirmedLines } from './unconfirmed.js';

/*
 * Decides when a job that was written to a pipe counts as handled, and then removes it (ack).
 *
 * A pipe does not tell what its reader has handled, only how much nobody has read yet. So a line counts as handled when
 *   1. the reader has read so much more that it cannot still have the line in its buffers (Reader.readAhead), or
 *   2. it was read a lease ago, and the reader still lives, or
 *   3. nothing more is written, and the reader has read everything and closed the pipe.
 * The leases of all other jobs are renewed meanwhile. If the reader dies, or is stopped with the drain, they are given
 * back.
 */

/** How often to check that the reader is still there, ms. */
const CHECK_MS = 500;

/** If two checks are further apart than this, ms, the process was suspended or the machine asleep. */
const SUSPENDED_MS = 2_000;

/** How many calls to Redis may be under way before more lines are written. */
const MAX_ACKS = 2;

/** Pauses between checks while the reader reads the end of its input, ms: at first, and the longest. */
const ENDING_MS = [5, 250] as const;

/** What surrounds the end of a drain. */
export interface Ending {
  /** Called before the reader gets the end of its input: it may also read what is printed to stderr. */
  lastWords(): void;
  /** Lets another process wait for the reader. Resolves with false if none can. */
  handOver(): Promise<boolean>;
  /** Called if it takes a while, and others still can write. */
  waiting(): void;
  /** Aborts when a stop has waited long enough for the reader. */
  readonly graceOver: AbortSignal;
}

/** How long everything may be written before {@link Ending.waiting} is called, ms. */
const HINT_MS = 2_000;

/** Removes the jobs whose lines were written once their reader counts as done with them. */
export class Confirmer {
  readonly #leases: Leases;
  readonly #reader: Reader;
  readonly #stop: AbortSignal;
  readonly #unconfirmed = new UnconfirmedLines();
  readonly #gone = new AbortController();
  /** Calls under way, and those that failed. */
  readonly #acks = new Set<Promise<void>>();
  /** A write is under way. */
  writing = false;
  #checks: NodeJS.Timeout | undefined;
  #firstCheck: Promise<void> | undefined;
  #checkedAt = 0;
  #readCheckedAt = 0;
  /** The reader has got the end of its input. */
  #isClosed = false;
  /** How many jobs were written, but their leases were lost before they were confirmed. */
  lost = 0;

  constructor(leases: Leases, reader: Reader, stop: AbortSignal) {
    this.#leases = leases;
    this.#reader = reader;
    this.#stop = stop;
  }

  /** The lines that are not confirmed. */
  get lines(): UnconfirmedLines {
    return this.#unconfirmed;
  }

  get readerGone(): AbortSignal {
    return this.#gone.signal;
  }

  /**
   * Starts to check that the reader is still there. Resolves after the first check: a reader must have been seen once,
   * or its end cannot be noticed.
   */
  async watchReader(): Promise<void> {
    if (this.#reader.readAhead === 0 || this.#checks) return this.#firstCheck;
    const check = async () => {
      const presence = await this.#reader.check();
      if (presence === 'gone') this.#gone.abort();
      if (presence === 'reads' && !this.writing) this.#confirmRead();
    };
    this.#checks = setInterval(check, CHECK_MS).unref();
    this.#firstCheck = check();
    return this.#firstCheck;
  }

  /** Must be given each write: what was read cannot be determined while one is under way. */
  async whileWriting<T>(written: Promise<T>): Promise<T> {
    this.writing = true;
    const result = await written;
    this.writing = false;
    return result;
  }

  /** Adds lines that stdout accepted, with their lengths in bytes, line end included. */
  add(lines: readonly { readonly job: Job; readonly bytes: number }[], leaseMs: number): void {
    this.#unconfirmed.add(lines, leaseMs);
    // Leases that were lost during the write.
    for (const { job } of lines) if (!this.#leases.holds(job)) this.leaseLost(job);
    const { readAhead, maxInFlight } = this.#reader;
    if (this.#unconfirmed.bytes > readAhead)
      this.#confirm(this.#unconfirmed.takeFollowedBy(readAhead + (this.#reader.unread() ?? maxInFlight)));
  }

  /** Resolves when few enough calls to Redis are under way. */
  async room(): Promise<void> {
    const [first] = this.#acks;
    if (this.#acks.size > MAX_ACKS) await first;
  }

  /** Must be told of each lost lease: if the job's line was written, it may be delivered twice. */
  leaseLost(job: Job): void {
    if (this.#unconfirmed.delete(job)) this.lost += 1;
  }

  #confirmRead(): void {
    const now = performance.now();
    if (now - this.#checkedAt > SUSPENDED_MS) this.#unconfirmed.forgetReads();
    this.#checkedAt = now;
    if (this.#unconfirmed.size > 0 && now - this.#readCheckedAt >= this.#unconfirmed.checkMs) {
      this.#readCheckedAt = now;
      const unread = this.#reader.unread();
      if (unread !== undefined) this.#unconfirmed.noteRead(unread);
    }
    this.#confirm(this.#unconfirmed.takeReadALeaseAgo());
  }

  /** Starts an ack. Its error is thrown by {@link room} or {@link settled}. */
  #confirm(jobs: Job[]): void {
    if (jobs.length === 0) return;
    const ack = this.#ack(jobs);
    this.#acks.add(ack);
    ack.then(
      () => this.#acks.delete(ack),
      () => {},
    );
  }

  async #ack(jobs: Job[]): Promise<void> {
    const answers = await this.#leases.ack(jobs);
    this.lost += answers.filter((answer) => answer === 'lost').length;
  }

  /**
   * Nothing more is written: confirms what can be confirmed. `complete`: everything was written, and nothing failed.
   * Returns how many jobs come again although their reader has read them, because of a stop.
   */
  async end(complete: boolean, ending: Ending): Promise<number> {
    const stop = this.#stop;
    const isWhole = complete && !this.#gone.signal.aborted;
    if (isWhole && !stop.aborted) await this.#readToTheEnd(ending, stop);
    if (!stop.aborted || this.#unconfirmed.size === 0) return 0;
    // Begins before anything is taken out: a reader must not end meanwhile because it finds the pipe empty.
    const isStopped = this.#reader.isStoppedBy(stop.reason);
    // A service is stopped as a whole: its reader may be ending, too, and would not handle what it has not read.
    const unread = this.#reader.takeOut((bytes) => this.#unconfirmed.restOfPartlyRead(bytes));
    if (unread !== undefined) await this.#leases.release(this.#unconfirmed.takeUnread(unread));
    if (isWhole && this.#unconfirmed.size > 0 && !(await isStopped)) {
      // A reader that has got its end may end at any moment from now on.
      if (this.#isClosed) await this.untilRead(ending.graceOver);
      else await this.#readToTheEnd(ending, ending.graceOver);
    }
    return this.#unconfirmed.size;
  }

  /** Closes the pipe and waits until the reader has ended, all lines are confirmed, or `until` aborts. */
  async #readToTheEnd(ending: Ending, until: AbortSignal): Promise<void> {
    if (this.#unconfirmed.size === 0) return;
    const presence = await this.#reader.check();
    if (presence === 'gone') return;
    ending.lastWords();
    this.#isClosed = await this.#reader.close();
    clearInterval(this.#checks);
    // One who is not seen is not waited for: it may live for ever.
    if (!(this.#isClosed && presence === 'reads') && (await ending.handOver())) {
      this.#leases.forget(this.#unconfirmed.takeFollowedBy(0));
      return;
    }
    const hint = this.#isClosed ? undefined : setTimeout(() => ending.waiting(), HINT_MS);
    await this.untilRead(until).finally(() => clearTimeout(hint));
  }

  /**
   * Waits until the reader has ended, all lines are confirmed, or `until` aborts. A reader that read everything before it
   * ended has handled it all; if it left something unread, it may not have handled what it had read ahead either.
   */
  async untilRead(until: AbortSignal): Promise<void> {
    for (let pauseMs: number = ENDING_MS[0]; this.#unconfirmed.size > 0 && !until.aborted; ) {
      this.#isClosed ||= await this.#reader.close();
      const presence = await this.#reader.check();
      if (until.aborted) return;
      if (presence === 'gone') {
        if (this.#reader.left() === 0) this.#confirm(this.#unconfirmed.takeFollowedBy(0));
        return;
      }
      if (this.#isClosed) this.#confirmRead();
      // Others may write into the pipe: what was read of ours cannot be determined.
      else this.#confirm(this.#unconfirmed.takeAcceptedALeaseAgo());
      await sleep(pauseMs, undefined, { signal: until }).catch(() => {});
      pauseMs = Math.min(2 * pauseMs, ENDING_MS[1]);
    }
  }

  /** Resolves when all calls to Redis have ended. Throws if one failed. */
  async settled(): Promise<void> {
    await Promise.all(this.#acks);
  }

  close(): void {
    clearInterval(this.#checks);
  }
}
