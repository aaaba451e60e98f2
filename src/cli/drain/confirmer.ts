import { setTimeout as sleep } from 'node:timers/promises';
import type { Job, Leases } from '../../internal.js';
import type { Drain } from './drain.js';
import type { Reader } from './reader.js';
import { Unconfirmed } from './unconfirmed.js';

/** How often to look whether the reader is still there, ms. */
const LOOK_MS = 500;

/** A pause between two looks that is longer shows that the process was stopped, or the machine asleep, ms. */
const SUSPENDED_MS = 2_000;

/** So many calls that confirm jobs may be under way before more is written. */
const MOST_ACKS = 2;

/** Pauses between looks at a reader that comes to its end, ms: the last is the longest. */
const ENDING_MS = [5, 250] as const;

/** When to say why a drain waits although it has written everything, ms. */
const HINT_MS = 2_000;
const NO_END =
  'waiting until the last lines are a lease old: the end of their reader cannot be seen while others hold the pipe open ' +
  'for writing (2>&1, a shell loop, a wrapper such as timeout)';

/** Removes the jobs whose lines were written, as soon as their reader counts as done with them. */
export class Confirmer {
  readonly #leases: Leases;
  readonly #reader: Reader;
  readonly #drain: Drain;
  readonly #unconfirmed = new Unconfirmed();
  readonly #gone = new AbortController();
  /** Under way, or failed. */
  readonly #acks = new Set<Promise<void>>();
  #writing = false;
  #looks: NodeJS.Timeout | undefined;
  #firstLook: Promise<void> | undefined;
  #looked = 0;
  #readAt = 0;
  /** Jobs that were lost before they were confirmed. */
  lost = 0;

  constructor(leases: Leases, reader: Reader, drain: Drain) {
    this.#leases = leases;
    this.#reader = reader;
    this.#drain = drain;
  }

  /** Aborts when the reader has gone before its end. */
  get readerGone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Looks from now on whether the reader is still there. Resolves when it was looked for: only who was seen is missed. */
  async watchReader(): Promise<void> {
    if (this.#reader.ahead === 0 || this.#looks) return this.#firstLook;
    const look = async () => {
      const presence = await this.#reader.look();
      if (presence === 'gone') this.#gone.abort();
      if (presence === 'reads' && !this.#writing) this.#confirmRead();
    };
    this.#looks = setInterval(look, LOOK_MS).unref();
    this.#firstLook = look();
    return this.#firstLook;
  }

  /** While something is being written nobody can tell what was read. */
  async whileWriting<T>(written: Promise<T>): Promise<T> {
    this.#writing = true;
    const result = await written;
    this.#writing = false;
    return result;
  }

  /** Adds lines that were accepted, each with its length in bytes, its end included. */
  add(lines: readonly { readonly job: Job; readonly bytes: number }[], leaseMs: number): void {
    this.#unconfirmed.add(lines, leaseMs);
    // Those that were lost while they were being written.
    for (const { job } of lines) if (!this.#leases.holds(job)) this.leaseLost(job);
    const { ahead, most } = this.#reader;
    if (this.#unconfirmed.bytes > ahead)
      this.#confirm(this.#unconfirmed.takeBehind(ahead + (this.#reader.unread() ?? most)));
  }

  /** Resolves when few enough calls are under way. */
  async room(): Promise<void> {
    const [first] = this.#acks;
    if (this.#acks.size > MOST_ACKS) await first;
  }

  /** Hears of a job whose lease was lost: if its line is out already, it may come a second time. */
  leaseLost(job: Job): void {
    if (this.#unconfirmed.delete(job)) this.lost += 1;
  }

  /** Confirms what its reader has had for a lease. */
  #confirmRead(): void {
    const now = performance.now();
    // We did not run for a while, and nor did the reader, maybe.
    if (now - this.#looked > SUSPENDED_MS) this.#unconfirmed.forgetReads();
    this.#looked = now;
    if (this.#unconfirmed.size > 0 && now - this.#readAt >= this.#unconfirmed.lookMs) {
      this.#readAt = now;
      const unread = this.#reader.unread();
      if (unread !== undefined) this.#unconfirmed.noteRead(unread);
    }
    this.#confirm(this.#unconfirmed.takeRead());
  }

  /** That it failed is reported to whoever waits for it, at the latest by {@link Confirmer.settled}. */
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

  /** Called when nothing more is written: confirms what can be, unless something has failed or a stop tells otherwise. */
  async end(complete: boolean): Promise<void> {
    const { stop } = this.#drain;
    if (complete && !stop.aborted && !this.#gone.signal.aborted) await this.#readToTheEnd();
    // Whoever stopped us may have stopped our reader, too: a service is told as a whole.
    if (stop.aborted && this.#unconfirmed.size > 0)
      this.#reader.takeOut((unread) => this.#unconfirmed.partRead(unread));
  }

  /**
   * Gives the reader its end and waits until it has ended, or all lines are confirmed. One that read everything and then
   * ended has done it all; one that left something may have done none of what it had read ahead.
   */
  async #readToTheEnd(): Promise<void> {
    if (this.#unconfirmed.size === 0 || (await this.#reader.look()) === 'gone') return;
    const closed = await this.#reader.close();
    clearInterval(this.#looks);
    const hint = closed ? undefined : setTimeout(() => this.#drain.report.waiting(NO_END), HINT_MS);
    try {
      await this.#untilRead(closed);
    } finally {
      clearTimeout(hint);
    }
  }

  async #untilRead(closed: boolean): Promise<void> {
    const { stop } = this.#drain;
    for (let pauseMs: number = ENDING_MS[0]; this.#unconfirmed.size > 0 && !stop.aborted; ) {
      const presence = await this.#reader.look();
      if (stop.aborted) return;
      if (presence === 'gone') {
        if (closed && this.#reader.unread() === 0) this.#confirm(this.#unconfirmed.takeBehind(0));
        return;
      }
      if (closed) this.#confirmRead();
      // While others may write into the pipe, too, nobody can tell what was read.
      else this.#confirm(this.#unconfirmed.takeAccepted());
      await sleep(pauseMs, undefined, { signal: stop }).catch(() => {});
      pauseMs = Math.min(2 * pauseMs, ENDING_MS[1]);
    }
  }

  /** Resolves when Redis knows of all that was confirmed. Throws what kept it from that. */
  async settled(): Promise<void> {
    await Promise.all(this.#acks);
  }

  /** Looks no more. */
  close(): void {
    clearInterval(this.#looks);
  }
}
