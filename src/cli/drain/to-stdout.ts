import { type Job, Leases, poll, type Queue, type TakenJobs } from '../../internal.js';
import type { Context } from '../host/context.js';
import { cannotWrite, readerGone } from '../host/stdout.js';
import { lineOf, NOT_A_LINE } from '../lines/drain-line.js';
import { many } from '../terminal/output.js';
import { Confirmer } from './confirmer.js';
import type { Drain } from './drain.js';
import { handOver } from './handover.js';
import { type Reader, readerOf } from './reader.js';

/*
 * drain without a handler: writes jobs to stdout, one a line.
 *
 *   poll ──batch──▶ renew leases that are half over ──▶ write a chunk of lines ──▶ hand its jobs over
 *
 * The next batch is requested while one is written. What cannot be written is given back. A job is handed over to
 *   behind   the confirmer, which removes it once the reader of the pipe counts as done with it (confirmer.ts)
 *   lease    whoever acks it (drain --lease | … | delayq ack): this process no longer renews its lease
 *   once     nobody: the call that took it removed it (--at-most-once)
 */

/** Who removes a job, see above. */
export type Delivery = 'behind' | 'lease' | 'once';

/** The size of a write, bytes: as much as an empty pipe takes at once. */
const CHUNK = 64 * 1024;

const LF = 10;

const NO_END =
  'waiting until the last lines are a lease old: the end of their reader cannot be detected while another process has ' +
  'the pipe open for writing (2>&1, a shell loop, or a wrapper such as timeout)';

const AGAIN = 'they are delivered again; --for 55s ends a drain in time without that, unlike timeout 55';

/** How long a drain that ends keeps trying to settle its jobs while Redis does not answer, ms. */
const LAST_RETRY_MS = 5_000;

/**
 * Writes due jobs to stdout. Returns how many lines were written although their leases were lost: these jobs may be
 * delivered twice. Throws the first failure, after it has given back what was not written.
 */
export async function drainToStdout(context: Context, drain: Drain, delivery: Delivery): Promise<number> {
  const { queues, taking, stop, graceMs } = drain;
  const { watch, forMs, onTrouble } = taking;
  const reader = readerOf(context);
  const leases = new Leases({
    onLost: (job) => confirmer.leaseLost(job),
    onTrouble,
    // Runs of cron must not pile up while Redis is down.
    retryMs: watch ? undefined : LAST_RETRY_MS,
  });
  // A run with --for must end in time even if Redis is down by then.
  if (forMs !== undefined) leases.giveUpAfter(forMs + LAST_RETRY_MS);
  stop.addEventListener('abort', () => leases.giveUpAfter(graceMs));
  const confirmer = new Confirmer(leases, reader, stop);
  const sink = new StdoutSink(context, drain, delivery, leases, reader, confirmer);
  drain.report.waitsFor = () => (confirmer.writing ? 'the reader of stdout' : undefined);
  const enough = new AbortController();
  const over = AbortSignal.any([stop, confirmer.readerGone]);
  const batches = poll(queues, {
    ...taking,
    leaseMs: delivery === 'once' ? 0 : taking.leaseMs,
    // Lines wait in the pipe for their reader.
    ...(delivery === 'behind' && { start: '-' }),
    signal: AbortSignal.any([over, enough.signal]),
    leases,
    ahead: true,
  });
  const next = async (): Promise<TakenJobs | undefined> => (await batches.next()).value ?? undefined;
  if (watch) confirmer.watchReader();
  let ahead = next();
  let failure: unknown;
  const failed = (error: unknown) => {
    failure ??= error;
    // Leases that cannot be settled now expire by themselves, so there is no point in trying for long. If only one
    // queue has failed, jobs of the others are still confirmed.
    if (error !== leases.outages.error) leases.giveUpAfter(Math.min(graceMs, LAST_RETRY_MS));
  };
  try {
    for (let taken = await ahead; taken; taken = await ahead) {
      ahead = next();
      ahead.catch(() => {});
      if (over.aborted) await sink.giveBack(taken.queue, taken.jobs);
      if (over.aborted || !(await sink.take(taken))) break;
    }
  } catch (error) {
    failed(error);
  }
  enough.abort();
  const unwanted = (batch: Promise<TakenJobs | undefined>) => batch.catch(() => undefined);
  // If a batch cannot be given back, the next one still is, and written jobs are still confirmed.
  for (let taken = await unwanted(ahead); taken; taken = await unwanted(next()))
    await sink.giveBack(taken.queue, taken.jobs).catch(failed);
  const complete = failure === undefined || failure === leases.outages.error;
  await sink.end(complete).catch(failed);
  leases.close();
  if (failure !== undefined) throw failure;
  return sink.lost;
}

interface JobLine {
  readonly job: Job;
  readonly line: Buffer;
}

class StdoutSink {
  readonly #context: Context;
  readonly #drain: Drain;
  readonly #delivery: Delivery;
  readonly #leases: Leases;
  readonly #reader: Reader;
  readonly #confirmer: Confirmer;
  /** stdout has accepted everything so far. */
  #open = true;
  /** How many jobs were written although their leases were lost before. */
  #lost = 0;

  constructor(
    context: Context,
    drain: Drain,
    delivery: Delivery,
    leases: Leases,
    reader: Reader,
    confirmer: Confirmer,
  ) {
    this.#context = context;
    this.#drain = drain;
    this.#delivery = delivery;
    this.#leases = leases;
    this.#reader = reader;
    this.#confirmer = confirmer;
  }

  /** How many jobs were written although their leases were lost: they may be delivered twice. */
  get lost(): number {
    return this.#lost + this.#confirmer.lost;
  }

  /** Writes a batch. Resolves when there is room for the next one; with false if the reader has gone. */
  async take({ queue, jobs, leaseMs }: TakenJobs): Promise<boolean> {
    await this.#confirmer.watchReader();
    let rest: JobLine[] = [];
    const noLines: Job[] = [];
    const form = this.#drain.formOf(queue.name);
    for (const job of jobs) {
      const line = lineOf(form, queue.name, job, this.#drain.report.odd);
      if (line) rest.push({ job, line });
      else noLines.push(job);
    }
    try {
      if (noLines.length > 0) await this.#bury(queue, noLines);
      while (rest.length > 0) {
        if (this.#delivery !== 'once') {
          await this.#leases.fresh(rest.map(({ job }) => job));
          rest = rest.filter(({ job }) => this.#leases.holds(job));
          if (rest.length === 0) break;
        }
        const chunk = chunkOf(rest);
        this.#open = false;
        const written = this.#write(chunk);
        // At most once: do not give back lines that may be in the pipe already, even in part.
        if (this.#delivery === 'once') rest = rest.slice(chunk.length);
        this.#open = await written;
        if (!this.#open) break;
        this.#delivered(chunk, leaseMs);
        if (this.#delivery !== 'once') rest = rest.slice(chunk.length);
        await this.#confirmer.room();
      }
    } finally {
      const unwritten = rest.map(({ job }) => job);
      if (unwritten.length > 0) await this.giveBack(queue, unwritten);
    }
    return this.#open;
  }

  async giveBack(queue: Queue, jobs: readonly Job[]): Promise<void> {
    if (this.#delivery === 'once') await queue.putBack(jobs);
    else await this.#leases.release(jobs);
  }

  /** Makes jobs dead that cannot be lines: they would come again and again. */
  async #bury(queue: Queue, jobs: readonly Job[]): Promise<void> {
    const { report } = this.#drain;
    if (this.#delivery !== 'once') {
      const error = NOT_A_LINE;
      const nacked = await this.#leases.nack(
        jobs.map((job) => ({ job, error })),
        { mode: 'dead' },
      );
      for (const [i, { id }] of jobs.entries()) if (nacked[i]?.answer === 'dead') report.noLine(queue.name, id);
      return;
    }
    // They are pending in between, so that they are never lost.
    await queue.putBack(jobs);
    const ids = jobs.map(({ id }) => id);
    const buried = await this.#drain.bury(queue, ids, NOT_A_LINE);
    for (const [i, id] of ids.entries()) if (buried[i] === 'buried') report.noLine(queue.name, id);
  }

  #delivered(chunk: readonly JobLine[], leaseMs: number): void {
    if (this.#delivery === 'behind') {
      const written = chunk.map(({ job, line }) => ({ job, bytes: line.length + 1 }));
      this.#confirmer.add(written, leaseMs);
    } else if (this.#delivery === 'lease') {
      for (const { job } of chunk) if (!this.#leases.holds(job)) this.#lost += 1;
      this.#leases.forget(chunk.map(({ job }) => job));
    }
  }

  /** Resolves when stdout has accepted the chunk; with false if the reader has gone or grace is over. */
  async #write(chunk: readonly JobLine[]): Promise<boolean> {
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
   * Ends the output, after the last batch, a stop, the end of the reader or a failure. Gives back whatever is not
   * confirmed. `complete`: everything was written, and nothing failed.
   */
  async end(complete: boolean): Promise<void> {
    try {
      if (this.#open && !this.#context.outputClosed) this.#sayAgain(await this.#confirm(complete));
      // The reader was stopped while lines were written.
      else if (this.#drain.stop.aborted) this.#sayAgain(this.#confirmer.lines.size);
      await this.#confirmer.settled();
    } finally {
      this.#confirmer.close();
      await this.#leases.releaseAll();
    }
  }

  /** Says how many jobs come again although their reader has read them, because of a stop. */
  #sayAgain(jobs: number): void {
    if (jobs > 0) this.#drain.report.waiting(`gave back ${many(jobs, 'job')} that the reader may have read: ${AGAIN}`);
  }

  /** See {@link Confirmer.end}. */
  async #confirm(complete: boolean): Promise<number> {
    const { report, globals, graceOver } = this.#drain;
    const over = new AbortController();
    graceOver.then(() => over.abort());
    return this.#confirmer.end(complete, {
      lastWords: () => report.end(),
      handOver: () => handOver(this.#context, globals, this.#reader, this.#leases, this.#confirmer.lines),
      waiting: () => report.waiting(NO_END),
      graceOver: over.signal,
    });
  }
}

/** The first lines, up to the size of a chunk, but at least one. */
function chunkOf(lines: JobLine[]): JobLine[] {
  let size = 0;
  const end = lines.findIndex(({ line }, i) => {
    size += line.length + 1;
    return i > 0 && size > CHUNK;
  });
  return end < 0 ? lines : lines.slice(0, end);
}

/** The lines with their line ends, as one buffer. */
function textOf(lines: readonly JobLine[]): Buffer {
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
