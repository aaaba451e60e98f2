import { setTimeout as sleep } from 'node:timers/promises';
import { drainLoop, type Job, Leases, type Queue, type Taken } from '../../index.js';
import { type Context, cannotWrite, readerGone } from '../context.js';
import { say } from '../output.js';
import type { Drain } from './drain.js';
import { lineOf } from './form.js';
import { type Reader, readerOf } from './reader.js';
import { Unconfirmed } from './unconfirmed.js';

/** When a job counts as delivered: `behind` the pipe, by whoever acks its `lease`, or `once`, as it was taken. */
export type Delivery = 'behind' | 'lease' | 'once';

/** Lines are written in chunks of about this many bytes: a pipe takes that at once. */
const CHUNK = 64 * 1024;

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

const LF = 10;

/** How long a drain that ends tries to settle what it holds while Redis is in trouble, ms. */
const LAST_PATIENCE_MS = 5_000;

/** Writes due jobs to stdout, one a line. Returns how many lines are out although their leases had ended before. */
export async function drainToStdout(context: Context, drain: Drain, delivery: Delivery): Promise<number> {
  const { queues, stop, notes, graceMs, watch } = drain;
  const reader = readerOf(context);
  const leases = new Leases({
    onLost: (job) => sink.leaseLost(job),
    onTrouble: (error, queue) => notes.trouble(error, queue),
    // A run of cron's must not wait for a Redis that is gone while the next runs start.
    patienceMs: watch ? undefined : LAST_PATIENCE_MS,
  });
  stop.addEventListener('abort', () => leases.giveUpAfter(graceMs));
  const sink = new StdoutSink(context, { leases, reader, delivery, drain });
  const enough = new AbortController();
  const over = AbortSignal.any([stop, sink.readerGone]);
  const batches = drainLoop(queues, {
    limit: drain.limit,
    leaseMs: delivery === 'once' ? 0 : drain.leaseMs,
    watch,
    forMs: drain.forMs,
    signal: AbortSignal.any([over, enough.signal]),
    leases,
    ahead: true,
    onTrouble: (error, queue) => notes.trouble(error, queue),
    onDrained: (queue, drained) => notes.drained(queue, drained),
  });
  const next = async (): Promise<Taken | undefined> => (await batches.next()).value ?? undefined;
  if (watch) sink.watchReader();
  let ahead = next();
  let failure: unknown;
  const failed = (error: unknown) => {
    failure ??= error;
    // What Redis cannot be told now it learns from the leases' end; there is no use in waiting long. One queue that fails
    // is no reason to give back what came from the others.
    if (error !== leases.outages.error) leases.giveUpAfter(Math.min(graceMs, LAST_PATIENCE_MS));
  };
  try {
    for (let taken = await ahead; taken; taken = await ahead) {
      // The next batch is asked for while this one is written.
      ahead = next();
      ahead.catch(() => {});
      if (over.aborted) await sink.giveBack(taken.queue, taken.jobs);
      if (over.aborted || !(await sink.take(taken))) break;
    }
  } catch (error) {
    failed(error);
  }
  enough.abort();
  const unwanted = (batch: Promise<Taken | undefined>) => batch.catch(() => undefined);
  // A batch that cannot be given back must not keep the next one, nor what was written from being confirmed.
  for (let taken = await unwanted(ahead); taken; taken = await unwanted(next()))
    await sink.giveBack(taken.queue, taken.jobs).catch(failed);
  const complete = failure === undefined || failure === leases.outages.error;
  await sink.end(complete).catch(failed);
  leases.close();
  if (failure !== undefined) throw failure;
  return sink.lost;
}

interface Ready {
  readonly job: Job;
  readonly line: Buffer;
}

/** Takes jobs and writes them, as far as stdout accepts them. */
class StdoutSink {
  readonly #context: Context;
  readonly #leases: Leases;
  readonly #reader: Reader;
  readonly #delivery: Delivery;
  readonly #drain: Drain;
  readonly #unconfirmed = new Unconfirmed();
  readonly #gone = new AbortController();
  /** Under way, or failed. */
  readonly #acks = new Set<Promise<void>>();
  /** Everything that was given to stdout was accepted. */
  #open = true;
  #looks: NodeJS.Timeout | undefined;
  #firstLook: Promise<void> | undefined;
  #looked = 0;
  #readAt = 0;
  /** Jobs whose lines are out although their leases were lost before. */
  lost = 0;

  constructor(context: Context, how: { leases: Leases; reader: Reader; delivery: Delivery; drain: Drain }) {
    this.#context = context;
    this.#leases = how.leases;
    this.#reader = how.reader;
    this.#delivery = how.delivery;
    this.#drain = how.drain;
  }

  /** Aborts when the reader has gone before its end. */
  get readerGone(): AbortSignal {
    return this.#gone.signal;
  }

  /** Looks from now on whether the reader is still there. Resolves when it was looked for: only who was seen is missed. */
  async watchReader(): Promise<void> {
    if (this.#reader.behind === 0 || this.#looks) return this.#firstLook;
    const look = async () => {
      const presence = await this.#reader.look();
      if (presence === 'gone') this.#gone.abort();
      // With a write under way nobody can tell what is read.
      if (presence === 'reads' && this.#open) this.#confirmRead();
    };
    this.#looks = setInterval(look, LOOK_MS).unref();
    this.#firstLook = look();
    return this.#firstLook;
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

  /** Takes a batch; resolves when there is room for the next. False: the reader has gone, no more are wanted. */
  async take({ queue, jobs, leaseMs }: Taken): Promise<boolean> {
    await this.watchReader();
    const odd = (notice: string) => say(this.#context, notice);
    let rest: readonly Ready[] = jobs.map((job) => ({
      job,
      line: lineOf(this.#drain.form, queue.name, job, odd),
    }));
    try {
      while (rest.length > 0) {
        if (this.#delivery !== 'once') {
          await this.#leases.fresh(rest.map(({ job }) => job));
          if (!rest.every(({ job }) => this.#leases.holds(job)))
            rest = rest.filter(({ job }) => this.#leases.holds(job));
          if (rest.length === 0) break;
        }
        const chunk = chunkOf(rest);
        this.#open = false;
        const written = this.#write(chunk);
        // Of what may be in the pipe in part nothing may come again when nothing may come twice.
        if (this.#delivery === 'once') rest = rest.slice(chunk.length);
        this.#open = await written;
        if (!this.#open) break;
        this.#delivered(chunk, leaseMs);
        if (this.#delivery !== 'once') rest = rest.slice(chunk.length);
        this.#confirm(this.#unconfirmed.takeBehind(this.#reader.behind));
        const [ack] = this.#acks;
        if (this.#acks.size > MOST_ACKS) await ack;
      }
    } finally {
      if (rest.length > 0)
        await this.giveBack(
          queue,
          rest.map(({ job }) => job),
        );
    }
    return this.#open;
  }

  /** Makes jobs that were not taken pending again. */
  async giveBack(queue: Queue, jobs: readonly Job[]): Promise<void> {
    if (this.#delivery === 'once') await queue.putBack(jobs);
    else await this.#leases.release(jobs);
  }

  #delivered(chunk: readonly Ready[], leaseMs: number): void {
    if (this.#delivery === 'once') return;
    if (this.#delivery === 'behind') {
      this.#unconfirmed.add(
        chunk.map(({ job, line }) => ({ job, bytes: line.length + 1 })),
        leaseMs,
      );
    }
    for (const { job } of chunk) {
      // Lost while it was being written: nobody has told the sink.
      if (!this.#leases.holds(job)) {
        this.#unconfirmed.delete(job);
        this.lost += 1;
      } else if (this.#delivery === 'lease') this.#leases.forget([job]);
    }
  }

  /** Hears of a job whose lease was lost: if its line is out already, it may come a second time. */
  leaseLost(job: Job): void {
    if (this.#unconfirmed.delete(job)) this.lost += 1;
  }

  /** Resolves when the chunk was accepted; false when the reader has gone, or grace was over before. */
  async #write(chunk: readonly Ready[]): Promise<boolean> {
    if (this.#context.outputClosed) return false;
    const written = new Promise<boolean>((resolve, reject) => {
      this.#context.stdout.write(textOf(chunk), (error) => {
        if (!error) resolve(true);
        else if (readerGone(error)) resolve(false);
        else reject(cannotWrite(error));
      });
    });
    return (await Promise.race([written, this.#drain.graceOver])) === true;
  }

  /** Removes jobs that are done. That it failed is reported to whoever waits for it, at the latest by end(). */
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
   * Called once, when no batch follows: because all was taken (`complete`), because the drain was told to stop, because
   * its reader has gone, or because it failed. Whatever is not known to be done by then is given back.
   */
  async end(complete: boolean): Promise<void> {
    const { stop } = this.#drain;
    try {
      if (this.#open && !this.#context.outputClosed && this.#delivery === 'behind') {
        if (complete && !stop.aborted && !this.#gone.signal.aborted) await this.#readToTheEnd();
        // Whoever stopped us may have stopped our reader, too: a service is told as a whole.
        if (stop.aborted) this.#reader.takeOut((unread) => this.#unconfirmed.partRead(unread));
      }
      await Promise.all(this.#acks);
    } finally {
      clearInterval(this.#looks);
      await this.#leases.releaseAll();
    }
  }

  /**
   * Gives the reader its end and waits until it has ended, or all lines are confirmed. One that read everything and then
   * ended has done it all; one that left something may have done none of what it had read ahead.
   */
  async #readToTheEnd(): Promise<void> {
    if (this.#unconfirmed.size === 0 || (await this.#reader.look()) === 'gone') return;
    const closed = await this.#reader.close();
    clearInterval(this.#looks);
    const hint = closed ? undefined : setTimeout(() => this.#drain.notes.waiting(NO_END), HINT_MS);
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
}

/** The first of the lines, up to a chunk's size, at least one. */
function chunkOf(lines: readonly Ready[]): readonly Ready[] {
  let size = 0;
  const end = lines.findIndex(({ line }, i) => {
    size += line.length + 1;
    return i > 0 && size > CHUNK;
  });
  return end < 0 ? lines : lines.slice(0, end);
}

/** The lines as they are written, each with its end. */
function textOf(lines: readonly Ready[]): Buffer {
  let size = lines.length;
  for (const { line } of lines) size += line.length;
  const text = Buffer.allocUnsafe(size);
  let at = 0;
  for (const { line } of lines) {
    text.set(line, at);
    at += line.length;
    text[at++] = LF;
  }
  return text;
}
