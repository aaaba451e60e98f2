import { type Job, Leases, poll, type Queue, type Taken } from '../../internal.js';
import { type Context, cannotWrite, readerGone } from '../host/context.js';
import { lineOf } from '../lines/drain-line.js';
import { say } from '../terminal/output.js';
import { Confirmer } from './confirmer.js';
import type { Drain } from './drain.js';
import { readerOf } from './reader.js';

/** When a job counts as delivered: `behind` the pipe, by whoever acks its `lease`, or `once`, as it was taken. */
export type Delivery = 'behind' | 'lease' | 'once';

/** Lines are written in chunks of about this many bytes: a pipe takes that at once. */
const CHUNK = 64 * 1024;

const LF = 10;

/** How long a drain that ends tries to settle what it holds while Redis is in trouble, ms. */
const LAST_RETRY_MS = 5_000;

/** Writes due jobs to stdout, one a line. Returns how many lines are out although their leases had ended before. */
export async function drainToStdout(context: Context, drain: Drain, delivery: Delivery): Promise<number> {
  const { queues, stop, report, graceMs, watch } = drain;
  const reader = readerOf(context);
  const leases = new Leases({
    onLost: (job) => confirmer.leaseLost(job),
    onTrouble: report.trouble,
    // A run of cron's must not wait for a Redis that is gone while the next runs start.
    retryMs: watch ? undefined : LAST_RETRY_MS,
  });
  // A run that ends by itself must do so even if Redis is gone by then.
  if (drain.forMs !== undefined) leases.giveUpAfter(drain.forMs + LAST_RETRY_MS);
  stop.addEventListener('abort', () => leases.giveUpAfter(graceMs));
  const confirmer = new Confirmer(leases, reader, drain);
  const sink = new StdoutSink(context, { drain, delivery, leases, confirmer });
  const enough = new AbortController();
  const over = AbortSignal.any([stop, confirmer.readerGone]);
  const batches = poll(queues, {
    limit: drain.limit,
    leaseMs: delivery === 'once' ? 0 : drain.leaseMs,
    watch,
    forMs: drain.forMs,
    signal: AbortSignal.any([over, enough.signal]),
    leases,
    ahead: true,
    onTrouble: report.trouble,
    onDrained: (queue, drained) => report.drained(queue, drained),
  });
  const next = async (): Promise<Taken | undefined> => (await batches.next()).value ?? undefined;
  if (watch) confirmer.watchReader();
  let ahead = next();
  let failure: unknown;
  const failed = (error: unknown) => {
    failure ??= error;
    // What Redis cannot be told now it learns from the leases' end; there is no use in waiting long. One queue that fails
    // is no reason to give back what came from the others.
    if (error !== leases.outages.error) leases.giveUpAfter(Math.min(graceMs, LAST_RETRY_MS));
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
  readonly #drain: Drain;
  readonly #delivery: Delivery;
  readonly #leases: Leases;
  readonly #confirmer: Confirmer;
  /** Everything that was given to stdout was accepted. */
  #open = true;
  /** Jobs whose lines are out although their leases were lost before. */
  #lost = 0;

  constructor(
    context: Context,
    { drain, delivery, leases, confirmer }: { drain: Drain; delivery: Delivery; leases: Leases; confirmer: Confirmer },
  ) {
    this.#context = context;
    this.#drain = drain;
    this.#delivery = delivery;
    this.#leases = leases;
    this.#confirmer = confirmer;
  }

  /** How many lines are out although their leases had ended before: they may come a second time. */
  get lost(): number {
    return this.#lost + this.#confirmer.lost;
  }

  /** Takes a batch; resolves when there is room for the next. False: the reader has gone, no more are wanted. */
  async take({ queue, jobs, leaseMs }: Taken): Promise<boolean> {
    await this.#confirmer.watchReader();
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
        await this.#confirmer.room();
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
      this.#confirmer.add(
        chunk.map(({ job, line }) => ({ job, bytes: line.length + 1 })),
        leaseMs,
      );
      return;
    }
    for (const { job } of chunk) {
      if (!this.#leases.holds(job)) this.#lost += 1;
      else this.#leases.forget([job]);
    }
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
    return (await Promise.race([this.#confirmer.whileWriting(written), this.#drain.graceOver])) === true;
  }

  /**
   * Called once, when no batch follows: because all was taken (`complete`), because the drain was told to stop, because
   * its reader has gone, or because it failed. Whatever is not known to be done by then is given back.
   */
  async end(complete: boolean): Promise<void> {
    try {
      if (this.#open && !this.#context.outputClosed) await this.#confirmer.end(complete);
      await this.#confirmer.settled();
    } finally {
      this.#confirmer.close();
      await this.#leases.releaseAll();
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
