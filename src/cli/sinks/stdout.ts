import { type Batch, type Job, type Leases, printable, type Queue } from '../../index.js';
import { type Context, cannotWrite } from '../context.js';
import { say } from '../output.js';
import type { Sink } from './sink.js';

/** What is written of a job. */
export type Form = 'payload' | 'text' | 'envelope';

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
const CR = 13;
const NEWLINE = Buffer.from('\n');

/** Writes jobs to stdout, one a line. */
export class StdoutSink implements Sink {
  readonly #context: Context;
  readonly #leases: Leases;
  readonly #delivery: Delivery;
  readonly #form: Form;
  readonly #graceOver: Promise<'over'>;
  /** Jobs whose lines were accepted but are not confirmed yet, with the number of bytes after which each ends. */
  #accepted: { job: Job; end: number }[] = [];
  #bytes = 0;
  #acks: Promise<void>[] = [];
  #open = true;
  /** Leases that were lost before their jobs could be confirmed. */
  lost = 0;

  /** `graceOver` resolves when a stopped drain must not wait for the reader any longer. */
  constructor(context: Context, leases: Leases, how: { delivery: Delivery; form: Form; graceOver: Promise<'over'> }) {
    this.#context = context;
    this.#leases = leases;
    this.#delivery = how.delivery;
    this.#form = how.form;
    this.#graceOver = how.graceOver;
  }

  async take({ queue, jobs }: Batch): Promise<boolean> {
    let ours = this.#delivery === 'once' ? jobs : await this.#leases.fresh(jobs);
    try {
      while (ours.length > 0) {
        const { chunk, ends } = this.#chunk(queue, ours);
        this.#open = await this.#write(chunk);
        if (!this.#open) break;
        this.#delivered(ours.slice(0, ends.length), ends);
        ours = ours.slice(ends.length);
        this.#bytes += chunk.length;
        await this.#confirm(this.#bytes - BEHIND);
      }
    } finally {
      if (ours.length > 0) await this.giveBack({ queue, jobs: ours });
    }
    return this.#open;
  }

  /** Makes jobs pending again that were taken and not written. */
  async giveBack({ queue, jobs }: { queue: Queue; jobs: readonly Job[] }): Promise<void> {
    if (this.#delivery === 'once') await queue.putBack(jobs);
    else await this.#leases.nack(jobs);
  }

  /** Hears of a job whose lease was lost: if its line is out already, it may come a second time. */
  leaseLost(job: Job): void {
    const before = this.#accepted.length;
    this.#accepted = this.#accepted.filter((accepted) => accepted.job !== job);
    this.lost += before - this.#accepted.length;
  }

  #delivered(jobs: readonly Job[], ends: number[]): void {
    if (this.#delivery === 'lease') this.#leases.forget(jobs);
    if (this.#delivery !== 'behind') return;
    for (const [i, job] of jobs.entries()) this.#accepted.push({ job, end: this.#bytes + (ends[i] ?? 0) });
  }

  /** Lines of the first jobs, up to a chunk's size, and where in it each ends. */
  #chunk(queue: Queue, jobs: readonly Job[]): { chunk: Buffer; ends: number[] } {
    const pieces: Buffer[] = [];
    const ends: number[] = [];
    let size = 0;
    for (const job of jobs) {
      const line = this.#line(queue, job);
      if (size > 0 && size + line.length >= CHUNK) break;
      pieces.push(line, NEWLINE);
      size += line.length + 1;
      ends.push(size);
    }
    return { chunk: Buffer.concat(pieces, size), ends };
  }

  #line(queue: Queue, job: Job): Buffer {
    if (this.#form === 'payload') return oneLine(job.payload);
    const text = job.payload.toString('utf8');
    if (this.#form === 'text') {
      const value = parse(text);
      return typeof value === 'string' ? Buffer.from(value) : oneLine(job.payload);
    }
    const { id, receipt, attempt, due } = job;
    const head = JSON.stringify({ queue: queue.name, id, receipt, attempt, due });
    let body = oneLine(job.payload);
    if (parse(text) === undefined) {
      say(this.#context, `${queue.name}: the payload of job ${printable(id)} is not JSON; written as a JSON string`);
      body = Buffer.from(JSON.stringify(text));
    }
    return Buffer.concat([Buffer.from(`${head.slice(0, -1)},"payload":`), body, Buffer.from('}')]);
  }

  /** Resolves when the chunk was accepted; false when the reader has gone, or grace was over before. */
  async #write(chunk: Buffer): Promise<boolean> {
    if (this.#context.outputClosed) return false;
    const written = new Promise<boolean>((resolve, reject) => {
      this.#context.stdout.write(chunk, (error) => {
        if (!error) resolve(true);
        else if ((error as NodeJS.ErrnoException).code === 'EPIPE') resolve(false);
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
    this.lost += await this.#leases.ack(jobs);
  }

  async end(): Promise<void> {
    // With the reader gone nobody knows which of the last lines it has seen: they come again.
    if (this.#open && !this.#context.outputClosed) await this.#confirm(Number.POSITIVE_INFINITY);
    await Promise.all(this.#acks);
    await this.#leases.releaseAll();
  }
}

/** A payload that other software stored may hold line breaks; in JSON they can only be whitespace. */
function oneLine(payload: Buffer): Buffer {
  if (!payload.includes(LF) && !payload.includes(CR)) return payload;
  return Buffer.from(payload.map((byte) => (byte === LF || byte === CR ? 32 : byte)));
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
