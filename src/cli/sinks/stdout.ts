import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { drainLoop, type Job, Leases, type Queue, type Taken } from '../../index.js';
import { type Context, cannotWrite, readerGone } from '../context.js';
import { say } from '../output.js';
import type { Drain } from './drain.js';
import { type Form, lineOf } from './form.js';

/** When a job counts as delivered: `behind` the pipe, by whoever acks its `lease`, or `once`, as it was taken. */
export type Delivery = 'behind' | 'lease' | 'once';

/** Lines are written in chunks of about this many bytes: a pipe takes that at once. */
const CHUNK = 64 * 1024;

/**
 * How many more bytes must have been accepted before a line counts as read: what a pipe holds (64 KiB) and what its
 * reader may have read ahead (64 KiB). A reader that dies then takes no line with it that it has not at least looked at.
 */
const BEHIND = 128 * 1024;

const LF = 10;

interface Written {
  readonly job: Job;
  readonly line: Buffer;
  /** Where it begins and ends in all that was written; 0 before it was. */
  start: number;
  end: number;
}

/** How long a drain that ends tries to settle what it holds while Redis is in trouble, ms. */
const LAST_PATIENCE_MS = 5_000;

/** Writes due jobs to stdout, one a line. Returns how many lines are out although their leases had ended before. */
export async function drainToStdout(context: Context, drain: Drain, delivery: Delivery): Promise<number> {
  const { queues, stop, notes, graceMs, watch } = drain;
  const leases = new Leases({
    onLost: (job) => sink.leaseLost(job),
    onTrouble: (error) => notes.trouble(error),
    // A run of cron's must not wait for a Redis that is gone while the next runs start.
    patienceMs: watch ? undefined : LAST_PATIENCE_MS,
  });
  stop.addEventListener('abort', () => leases.giveUpAfter(graceMs));
  const sink = new StdoutSink(context, leases, { delivery, form: drain.form, graceOver: drain.graceOver });
  const enough = new AbortController();
  const batches = drainLoop(queues, {
    limit: drain.limit,
    leaseMs: delivery === 'once' ? 0 : drain.leaseMs,
    watch,
    forMs: drain.forMs,
    signal: AbortSignal.any([stop, enough.signal]),
    leases: delivery === 'once' ? undefined : leases,
    ahead: true,
    onTrouble: (error) => notes.trouble(error),
    onDrained: (queue, drained) => notes.drained(queue, drained),
  });
  const next = async (): Promise<Taken | undefined> => (await batches.next()).value ?? undefined;
  let ahead = next();
  let failure: unknown;
  const failed = (error: unknown) => {
    failure ??= error;
    // What Redis cannot be told now it learns from the leases' end; there is no use in waiting long.
    leases.giveUpAfter(Math.min(graceMs, LAST_PATIENCE_MS));
  };
  try {
    for (let taken = await ahead; taken; taken = await ahead) {
      // The next batch is asked for while this one is written.
      ahead = next();
      ahead.catch(() => {});
      if (stop.aborted) await sink.giveBack(taken.queue, taken.jobs);
      if (stop.aborted || !(await sink.take(taken))) break;
    }
  } catch (error) {
    failed(error);
  }
  enough.abort();
  const unwanted = (batch: Promise<Taken | undefined>) => batch.catch(() => undefined);
  // A batch that cannot be given back must not keep the next one, nor what was written from being confirmed.
  for (let taken = await unwanted(ahead); taken; taken = await unwanted(next()))
    await sink.giveBack(taken.queue, taken.jobs).catch(failed);
  await sink.end(failure !== undefined ? 'failed' : stop.aborted ? 'stopped' : 'done').catch(failed);
  leases.close();
  if (failure !== undefined) throw failure;
  return sink.lost;
}

/** Takes jobs and writes them, as far as stdout accepts them. */
class StdoutSink {
  readonly #context: Context;
  readonly #leases: Leases;
  readonly #delivery: Delivery;
  readonly #form: Form;
  readonly #graceOver: Promise<'over'>;
  /** What was accepted but is not confirmed yet. */
  #accepted: Written[] = [];
  #bytes = 0;
  #acks: Promise<void>[] = [];
  /** Everything that was given to stdout was accepted. */
  #open = true;
  /** Jobs whose lines are out although their leases were lost before. */
  lost = 0;

  /** `graceOver` resolves when a stopped drain must not wait for the reader any longer. */
  constructor(context: Context, leases: Leases, how: { delivery: Delivery; form: Form; graceOver: Promise<'over'> }) {
    this.#context = context;
    this.#leases = leases;
    this.#delivery = how.delivery;
    this.#form = how.form;
    this.#graceOver = how.graceOver;
  }

  /** Takes a batch; resolves when there is room for the next. False: the reader has gone, no more are wanted. */
  async take({ queue, jobs }: Taken): Promise<boolean> {
    let rest: readonly Written[] = jobs.map((job) => ({
      job,
      line: lineOf(this.#form, queue.name, job, (notice) => say(this.#context, notice)),
      start: 0,
      end: 0,
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
        this.#delivered(chunk);
        if (this.#delivery !== 'once') rest = rest.slice(chunk.length);
        await this.#confirm(this.#bytes - BEHIND);
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

  #delivered(chunk: readonly Written[]): void {
    for (const written of chunk) {
      const { job, line } = written;
      written.start = this.#bytes;
      this.#bytes += line.length + 1;
      written.end = this.#bytes;
      if (this.#delivery === 'once') continue;
      if (!this.#leases.holds(job)) this.lost += 1;
      else if (this.#delivery === 'lease') this.#leases.forget([job]);
      else this.#accepted.push(written);
    }
  }

  /** Hears of a job whose lease was lost: if its line is out already, it may come a second time. */
  leaseLost(job: Job): void {
    const before = this.#accepted.length;
    this.#accepted = this.#accepted.filter((accepted) => accepted.job !== job);
    this.lost += before - this.#accepted.length;
  }

  /** Resolves when the chunk was accepted; false when the reader has gone, or grace was over before. */
  async #write(chunk: readonly Written[]): Promise<boolean> {
    if (this.#context.outputClosed) return false;
    const written = new Promise<boolean>((resolve, reject) => {
      this.#context.stdout.write(textOf(chunk), (error) => {
        if (!error) resolve(true);
        else if (readerGone(error)) resolve(false);
        else reject(cannotWrite(error));
      });
    });
    return (await Promise.race([written, this.#graceOver])) === true;
  }

  /** Removes the jobs whose lines end within the first `upTo` bytes; at most a few calls are under way. */
  async #confirm(upTo: number): Promise<void> {
    const open = this.#accepted.findIndex(({ end }) => end > upTo);
    const done = open < 0 ? this.#accepted : this.#accepted.slice(0, open);
    if (done.length === 0) return;
    this.#accepted = open < 0 ? [] : this.#accepted.slice(open);
    const ack = this.#ack(done.map(({ job }) => job));
    // Told when it is waited for, at the latest by end().
    ack.catch(() => {});
    this.#acks.push(ack);
    if (this.#acks.length > 2) await this.#acks.shift();
  }

  async #ack(jobs: Job[]): Promise<void> {
    const answers = await this.#leases.ack(jobs);
    this.lost += answers.filter((answer) => answer === 'lost').length;
  }

  /**
   * Called once, when no batch follows: because all was taken (`done`), because the drain was told to stop (`stopped`),
   * or because it failed. Whatever is not known to be done by then is given back.
   */
  async end(why: 'done' | 'stopped' | 'failed'): Promise<void> {
    try {
      if (this.#open && !this.#context.outputClosed) {
        if (why === 'done') await this.#confirm(Number.POSITIVE_INFINITY);
        if (why === 'stopped') await this.#confirm(await this.#takeBackUnread());
      }
      await Promise.all(this.#acks);
    } finally {
      await this.#leases.releaseAll();
    }
  }

  /**
   * Whoever stopped us may have stopped our reader, too: a service is told as a whole. So what is in the pipe is taken
   * out of it again and counts as not written; but the end of a line that was read in part is put back, for the reader
   * to see whole lines. Returns after how many bytes reading ended; where the system cannot tell, after all of them.
   */
  async #takeBackUnread(): Promise<number> {
    const unread = this.#delivery === 'behind' ? takeOutOf(this.#context.stdout.fd) : undefined;
    if (!unread) return this.#bytes;
    const read = this.#bytes - unread.length;
    const ours = this.#accepted.find(({ start }) => start >= read)?.start ?? this.#bytes;
    if (ours > read)
      await new Promise((resolve) => this.#context.stdout.write(unread.subarray(0, ours - read), resolve));
    return read;
  }
}

/**
 * Takes what nobody has read yet out of a pipe that we write to; undefined where that cannot be done. On Linux a pipe can
 * be opened anew for reading, and one read takes all of it at once (pipe(7), proc(5)).
 */
function takeOutOf(fd: number): Buffer | undefined {
  let pipe: number | undefined;
  try {
    if (!fstatSync(fd).isFIFO()) return undefined;
    pipe = openSync(`/proc/self/fd/${fd}`, constants.O_RDONLY | constants.O_NONBLOCK);
    // As large as an unprivileged process can make a pipe.
    const bytes = Buffer.alloc(1024 * 1024);
    return bytes.subarray(0, readSync(pipe, bytes));
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EAGAIN' ? Buffer.alloc(0) : undefined;
  } finally {
    if (pipe !== undefined) closeSync(pipe);
  }
}

/** The first of the lines, up to a chunk's size, at least one. */
function chunkOf(lines: readonly Written[]): readonly Written[] {
  let size = 0;
  const end = lines.findIndex(({ line }, i) => {
    size += line.length + 1;
    return i > 0 && size > CHUNK;
  });
  return end < 0 ? lines : lines.slice(0, end);
}

/** The lines as they are written, each with its end. */
function textOf(lines: readonly Written[]): Buffer {
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
