import { type Job, Leases, poll, type Queue, type TakenJobs } from '../../internal.js';
import type { Context } from '../host/context.js';
import { lineOf, NOT_A_LINE, textOf } from '../lines/drain-line.js';
import { many } from '../terminal/output.js';
import { Confirmer } from './confirmer.js';
import type { Drain } from './drain.js';
import { readerOf } from './reader.js';
import { handOver } from './watcher.js';

/*
 * drain without a handler: writes jobs to stdout, one a line.
 *
 *   poll ──batch──▶ renew leases that are half over ──▶ write a chunk of lines ──▶ hand its jobs over
 *
 * The next batch is requested while one is written. What cannot be written is given back. A job is handed over to
 *   behind   the confirmer, which removes it once the reader of the pipe counts as done with it (confirmer.ts)
 *   lease    delayq ack, in drain --lease | … | delayq ack: this process no longer renews its lease
 *   once     nobody: the call that took it removed it (--at-most-once)
 */

/** Who removes a job, see above. */
export type Delivery = 'behind' | 'lease' | 'once';

/** The size of a write, bytes: as much as an empty pipe takes at once. */
const CHUNK = 64 * 1024;

const AGAIN = 'they are delivered again; to end a drain in time without this, use --for 55s, not timeout 55';

/** How long a drain that ends keeps trying to settle its jobs while Redis does not answer, ms. */
const LAST_RETRY_MS = 5_000;

/**
 * Writes due jobs to stdout. Returns how many lines were written although their leases were lost: these jobs may be
 * delivered twice. Throws the first failure, after it has given back what was not written.
 */
export async function drainToStdout(context: Context, drain: Drain, delivery: Delivery): Promise<number> {
  const { queues, taking, stop, graceMs } = drain;
  const { watch, forMs } = taking;
  const sink = new StdoutSink(context, drain, delivery);
  const { leases, confirmer } = sink;
  // A run with --for must end in time even if Redis is down by then.
  if (forMs !== undefined) leases.giveUpAfter(forMs + LAST_RETRY_MS);
  stop.addEventListener('abort', () => leases.giveUpAfter(graceMs));
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
  const failed = (error: unknown): undefined => {
    failure ??= error;
    // Leases that cannot be settled now expire by themselves, so there is no point in trying for long. If only one
    // queue has failed, jobs of the others are still confirmed.
    if (error !== leases.outages.error) leases.giveUpAfter(Math.min(graceMs, LAST_RETRY_MS));
  };
  let isOver = false;
  const taken = () => ahead.catch((error) => (isOver ? undefined : failed(error)));
  for (let some = await taken(); some; some = await taken()) {
    ahead = next();
    ahead.catch(() => {});
    isOver ||= over.aborted;
    // If a batch cannot be given back, the next one still is, and written jobs are still confirmed.
    if (isOver) await sink.giveBack(some.queue, some.jobs).catch(failed);
    else isOver = !(await sink.take(some).catch(failed));
    if (isOver) enough.abort();
  }
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
  readonly leases: Leases;
  readonly confirmer: Confirmer;
  /** stdout has accepted everything so far. */
  #open = true;
  /** How many jobs were written although their leases were lost before. */
  #lost = 0;

  constructor(context: Context, drain: Drain, delivery: Delivery) {
    this.#context = context;
    this.#drain = drain;
    this.#delivery = delivery;
    const { watch, onTrouble } = drain.taking;
    const onLost = (job: Job) => this.confirmer.leaseLost(job);
    // Runs of cron must not pile up while Redis is down.
    this.leases = new Leases({ onLost, onTrouble, retryMs: watch ? undefined : LAST_RETRY_MS });
    this.confirmer = new Confirmer(this.leases, readerOf(context));
  }

  /** How many jobs were written although their leases were lost: they may be delivered twice. */
  get lost(): number {
    return this.#lost + this.confirmer.lost;
  }

  /** Writes a batch. Resolves when there is room for the next one; with false if the reader has gone. */
  async take({ queue, jobs, leaseMs }: TakenJobs): Promise<boolean> {
    await this.confirmer.watchReader();
    const isOnce = this.#delivery === 'once';
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
        if (!isOnce) {
          await this.leases.fresh(rest.map(({ job }) => job));
          rest = rest.filter(({ job }) => this.leases.holds(job));
          if (rest.length === 0) break;
        }
        const chunk = chunkOf(rest);
        this.#open = false;
        const written = this.#write(chunk);
        // At most once: do not give back lines that may be in the pipe already, even in part.
        if (isOnce) rest = rest.slice(chunk.length);
        this.#open = await written;
        if (!this.#open) break;
        this.#delivered(chunk, leaseMs);
        if (!isOnce) rest = rest.slice(chunk.length);
        await this.confirmer.room();
      }
    } finally {
      const unwritten = rest.map(({ job }) => job);
      if (unwritten.length > 0) await this.giveBack(queue, unwritten);
    }
    return this.#open;
  }

  async giveBack(queue: Queue, jobs: readonly Job[]): Promise<void> {
    if (this.#delivery === 'once') await queue.putBack(jobs);
    else await this.leases.release(jobs);
  }

  /** Makes jobs dead that cannot be lines: they would come again and again. */
  async #bury(queue: Queue, jobs: readonly Job[]): Promise<void> {
    const { report, bury, deadJobs } = this.#drain;
    let results: readonly string[];
    if (this.#delivery === 'once') {
      // They are pending in between, so that they are never lost.
      await queue.putBack(jobs);
      const ids = jobs.map(({ id }) => id);
      results = await bury(queue, ids, NOT_A_LINE);
    } else {
      const given = jobs.map((job) => ({ job, error: NOT_A_LINE }));
      results = (await this.leases.nack(given, { mode: 'dead' })).map(({ answer }) => answer);
    }
    for (const [i, job] of jobs.entries()) {
      if (results[i] !== 'buried' && results[i] !== 'dead') continue;
      report.noLine(queue.name, job.id);
      deadJobs?.died(queue, job, 'refused', NOT_A_LINE);
    }
  }

  #delivered(chunk: readonly JobLine[], leaseMs: number): void {
    if (this.#delivery === 'behind') {
      const written = chunk.map(({ job, line }) => ({ job, bytes: line.length + 1 }));
      this.confirmer.add(written, leaseMs);
    } else if (this.#delivery === 'lease') {
      for (const { job } of chunk) if (!this.leases.holds(job)) this.#lost += 1;
      this.leases.forget(chunk.map(({ job }) => job));
    }
  }

  /** Resolves when stdout has accepted the chunk; with false if the reader has gone or grace is over. */
  #write(chunk: readonly JobLine[]): Promise<boolean> {
    const { graceOver } = this.#drain;
    return new Promise((resolve, reject) => {
      const over = () => resolve(false);
      graceOver.addEventListener('abort', over);
      if (graceOver.aborted) over();
      this.confirmer.writing = true;
      this.#context
        .write(textOf(chunk.map(({ line }) => line)))
        .finally(() => {
          this.confirmer.writing = false;
          graceOver.removeEventListener('abort', over);
        })
        .then(() => resolve(!this.#context.outputClosed), reject);
    });
  }

  /**
   * Ends the output, after the last batch, a stop, the end of the reader or a failure. Gives back whatever is not
   * confirmed. `complete`: everything was written, and nothing failed.
   */
  async end(complete: boolean): Promise<void> {
    const { confirmer, leases } = this;
    const { stop, report } = this.#drain;
    try {
      if (this.#open && !this.#context.outputClosed)
        await confirmer.end(complete, this.#drain, (pipe) =>
          handOver(this.#context, this.#drain, pipe, leases, confirmer),
        );
      // Those that are left were read before the stop, or their reader was stopped while lines were written.
      const again = stop.aborted ? confirmer.lines.size : 0;
      if (again > 0) report.waiting(`gave back ${many(again, 'job')} that the reader may have read: ${AGAIN}`);
      await confirmer.settled();
    } finally {
      confirmer.close();
      await leases.releaseAll();
    }
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
