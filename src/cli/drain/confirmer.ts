import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, Leases } from '../../internal.js';
import type { Drain } from './drain.js';
import { type Pipe, READ_AHEAD, type Reader } from './reader.js';
import { UnconfirmedLines } from './unconfirmed.js';

/*
 * Decides when a job that was written to a pipe counts as handled, and then removes it (ack).
 *
 * A pipe does not tell what its reader has handled, only how much is unread. So a line counts as handled when
 *   1. the reader has read so much more that it cannot still have the line in its buffers (READ_AHEAD), or
 *   2. it was read a lease ago, and the reader still lives, or
 *   3. nothing more is written, and the reader has read everything and closed the pipe.
 * The leases of all other jobs are renewed meanwhile. If the reader dies, or is stopped with the drain, they are given
 * back. Without a reader, as into a file, a line is done once it is written.
 */

/** How often to check that the reader is still there, ms. */
const CHECK_MS = 500;

/** If two checks are further apart than this, ms, the process was suspended or the machine asleep. */
const SUSPENDED_MS = 2_000;

/** How many calls to Redis may be under way before more lines are written. */
const MAX_ACKS = 2;

/** Pauses between checks while the reader reads the end of its input, ms: at first, and the longest. */
const ENDING_MS = [5, 250] as const;

/** How long a drain that has written everything waits before it says what for, ms. */
const HINT_MS = 2_000;

const NO_END =
  'waiting until the last lines are a lease old: the end of their reader cannot be detected while another process has ' +
  'the pipe open for writing (2>&1, a shell loop, or a wrapper such as timeout)';

/** Lets another process wait for the reader of a pipe. Resolves with false if none can. */
type HandOver = (pipe: Pipe) => Promise<boolean>;

/** Removes the jobs whose lines were written once their reader counts as done with them. */
export class Confirmer {
  readonly #leases: Leases;
  readonly #reader: Reader | undefined;
  /** The lines that are not confirmed. */
  readonly lines = new UnconfirmedLines();
  readonly #gone = new AbortController();
  readonly readerGone = this.#gone.signal;
  /** Calls under way, and those that failed. */
  readonly #acks = new Set<Promise<void>>();
  /** A write is under way: what was read cannot be determined. */
  writing = false;
  #checks: NodeJS.Timeout | undefined;
  #firstCheck: Promise<void> | undefined;
  #checkedAt = 0;
  #readCheckedAt = 0;
  /** The reader has got the end of its input. */
  #isClosed = false;
  /** How many jobs were written, but their leases were lost before they were confirmed. */
  lost = 0;

  constructor(leases: Leases, reader: Reader | undefined) {
    this.#leases = leases;
    this.#reader = reader;
  }

  /**
   * Starts to check that the reader is still there. Resolves after the first check: a reader must have been seen once,
   * or its end cannot be noticed.
   */
  async watchReader(): Promise<void> {
    const reader = this.#reader;
    if (!reader || this.#checks) return this.#firstCheck;
    const check = async () => {
      const presence = await reader.check();
      if (presence === 'gone') this.#gone.abort();
      if (presence === 'reads' && !this.writing) this.#confirmRead(reader);
    };
    this.#checks = setInterval(check, CHECK_MS).unref();
    this.#firstCheck = check();
    return this.#firstCheck;
  }

  /** Adds lines that stdout accepted, with their lengths in bytes, line end included. */
  add(lines: readonly { readonly job: Job; readonly bytes: number }[], leaseMs: number): void {
    this.lines.add(lines, leaseMs);
    // Leases that were lost during the write.
    for (const { job } of lines) if (!this.#leases.holds(job)) this.leaseLost(job);
    const reader = this.#reader;
    if (!reader) this.#confirm(this.lines.takeFollowedBy(0));
    else if (this.lines.bytes > READ_AHEAD)
      this.#confirm(this.lines.takeFollowedBy(READ_AHEAD + (reader.unread() ?? reader.maxInFlight)));
  }

  /** Resolves when few enough calls to Redis are under way. */
  async room(): Promise<void> {
    const [first] = this.#acks;
    if (this.#acks.size > MAX_ACKS) await first;
  }

  /** Call it for each lost lease: if the job's line was written, it may be delivered twice. */
  leaseLost(job: Job): void {
    if (this.lines.delete(job)) this.lost += 1;
  }

  #confirmRead(reader: Reader): void {
    const now = performance.now();
    if (now - this.#checkedAt > SUSPENDED_MS) this.lines.forgetReads();
    this.#checkedAt = now;
    if (this.lines.size > 0 && now - this.#readCheckedAt >= this.lines.checkMs) {
      this.#readCheckedAt = now;
      const unread = reader.unread();
      if (unread !== undefined) this.lines.noteRead(unread);
    }
    this.#confirm(this.lines.takeReadALeaseAgo());
  }

  /** Starts an ack. Its error is thrown by {@link room} or {@link settled}. */
  #confirm(jobs: Job[]): void {
    if (jobs.length === 0) return;
    const ack = this.#leases.ack(jobs.map((job) => ({ job }))).then((answers) => {
      this.lost += answers.filter((answer) => answer === 'lost').length;
      this.#acks.delete(ack);
    });
    ack.catch(() => {});
    this.#acks.add(ack);
  }

  /**
   * Nothing more is written: confirms what can be confirmed. `complete`: everything was written, and nothing failed.
   * After a stop, the lines that are left come again although their reader has read them.
   */
  async end(complete: boolean, drain: Drain, handOver: HandOver): Promise<void> {
    const { stop, graceOver } = drain;
    const reader = this.#reader;
    if (!reader) return;
    const isWhole = complete && !this.readerGone.aborted;
    if (isWhole && !stop.aborted) await this.#readToTheEnd(reader, drain, handOver, stop);
    if (!stop.aborted || this.lines.size === 0) return;
    // Begins before anything is taken out: a reader must not end meanwhile because it finds the pipe empty.
    const isStopped = reader.isStoppedBy(stop.reason);
    // A service is stopped as a whole: its reader may be ending, too, and would not handle what it has not read.
    const unread = reader.unread((bytes) => this.lines.restOfPartlyRead(bytes));
    if (unread !== undefined) await this.#leases.release(this.lines.takeUnread(unread));
    if (isWhole && this.lines.size > 0 && !(await isStopped)) {
      // A reader that has got its end may end at any moment from now on.
      if (this.#isClosed) await this.untilRead(graceOver);
      else await this.#readToTheEnd(reader, drain, handOver, graceOver);
    }
  }

  /** Closes the pipe and waits until the reader has ended, all lines are confirmed, or `until` aborts. */
  async #readToTheEnd(reader: Reader, { report }: Drain, handOver: HandOver, until: AbortSignal): Promise<void> {
    if (this.lines.size === 0) return;
    const presence = await reader.check();
    if (presence === 'gone') return;
    // The reader may also read what is printed to stderr.
    report.end();
    this.#isClosed = await reader.close();
    clearInterval(this.#checks);
    const pipe = reader.handOver();
    // A reader that is not seen is not waited for: it may live for ever.
    if (!(this.#isClosed && presence === 'reads') && pipe && (await handOver(pipe))) {
      this.#leases.forget(this.lines.takeFollowedBy(0));
      return;
    }
    const hint = this.#isClosed ? undefined : setTimeout(() => report.waiting(NO_END), HINT_MS);
    await this.untilRead(until).finally(() => clearTimeout(hint));
  }

  /**
   * Waits until the reader has ended, all lines are confirmed, or `until` aborts. A reader that read everything before it
   * ended has handled it all; if it left something unread, it may not have handled what it had read ahead either.
   */
  async untilRead(until: AbortSignal): Promise<void> {
    const reader = this.#reader;
    for (let pauseMs: number = ENDING_MS[0]; reader && this.lines.size > 0 && !until.aborted; ) {
      this.#isClosed ||= await reader.close();
      const presence = await reader.check();
      if (until.aborted) return;
      if (presence === 'gone') {
        if (reader.hasReadAll()) this.#confirm(this.lines.takeFollowedBy(0));
        return;
      }
      if (this.#isClosed) this.#confirmRead(reader);
      // Others may write into the pipe: what was read of ours cannot be determined.
      else this.#confirm(this.lines.takeAcceptedALeaseAgo());
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
