import { createReadStream, createWriteStream, fstatSync } from 'node:fs';
import { type FileHandle, mkdtemp, open, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  type Attributes,
  type BatchResult,
  type Confirmed,
  DelayqError,
  isDelayqError,
  isOfTexts,
  JsonText,
  type NewJob,
  type Queue,
} from '../../internal.js';
import type { Context, Globals } from '../host/context.js';
import { noTemporary } from '../host/temporary.js';
import { jobOf } from '../lines/job-line.js';
import { document, many, say } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';
import { BadLines } from './bad-lines.js';
import { linesUntil } from './lines-until.js';

export interface EnqueueOptions extends Globals {
  readonly in?: number;
  readonly at?: string;
  readonly tz?: string;
  readonly id?: string;
  readonly ifExists?: 'keep' | 'replace';
  readonly tries?: number;
  readonly deliveries?: number;
  readonly ttl?: number;
  readonly onceFor?: number;
  readonly attr?: Attributes;
  readonly text?: boolean;
  readonly jobs?: boolean;
  readonly atomic?: boolean;
  readonly failIfEmpty?: boolean;
  readonly durable?: boolean;
  readonly replicas?: number;
  readonly quiet?: boolean;
}

/** The number of the line that a job came from. */
const LINE = Symbol('line');

type Numbered = NewJob & { readonly [LINE]: number };

// By descriptor: a stream of the handle would keep the handle from being closed.
const reread = ({ fd }: FileHandle) => createReadStream('', { fd, start: 0, autoClose: false });

/**
 * Enqueues the lines of stdin, a job each, in constant memory, and reports lines that were not enqueued. `at` is the
 * due time of jobs that have none of their own, ms.
 */
export async function enqueueLines(
  context: Context,
  queue: Queue,
  options: EnqueueOptions,
  at: number | undefined,
): Promise<void> {
  const stop = context.stopSignal();
  // A time of day in a line is relative to the clock of Redis.
  const [now, zone] = options.jobs ? [await queue.redis.now(), context.zone(options)] : [0, ''];
  const prefix = context.prefix(options);
  const isText = options.text ?? (!options.jobs && (await isOfTexts(queue.redis, prefix, queue.name)));
  const { in: delay, tries, deliveries, ttl, onceFor, attr: attributes } = options;
  const toJob = options.jobs
    ? (text: string, line: number): Numbered => ({ ...jobOf(text, zone, now), [LINE]: line })
    : (text: string, line: number): Numbered => {
        const payload = isText ? JsonText.from(text.replace(/\r$/, '')) : JsonText.parse(text);
        return { payload, in: delay, at, tries, deliveries, ttl, onceFor, attributes, [LINE]: line };
      };
  const bad = new BadLines((text) => say(context, text));
  const refuse = (line: number, error: unknown) => {
    if (!isDelayqError(error, 'usage', 'data')) throw error;
    bad.add(line, error);
  };

  if (fstatSync(context.stdin.fd).isDirectory()) {
    throw new DelayqError('input', 'cannot read stdin', {
      why: 'it is a directory',
      next: 'redirect lines to it: delayq enqueue q - < file',
    });
  }
  let file: FileHandle | undefined;
  try {
    if (options.atomic) {
      file = await spool(context.stdin, stop);
      if (!file) {
        say(context, 'nothing was enqueued');
        context.outcomes.add('interrupted');
        return;
      }
      for await (const _ of jobsOf(context, reread(file), toJob, refuse, stop));
      if (bad.count > 0) {
        throw new DelayqError('data', `nothing was enqueued: ${many(bad.count, 'bad line')}`, {
          next: 'fix them, or leave out --atomic to enqueue the others',
        });
      }
    }
    const sender = new Sender(context, queue, options);
    const input = file ? reread(file) : context.stdin;
    const jobs = jobsOf(context, input, toJob, refuse, sender.until(stop), () => sender.ended());
    const { ifExists, durable, replicas } = options;
    for await (const result of queue.enqueueBatches(jobs, { ifExists, durable, replicas })) {
      await sender.took(result);
    }
    bad.flush();
    await sender.finish(bad.count, stop.aborted);
  } finally {
    bad.flush();
    await file?.close();
  }
  if (bad.count > 0) context.outcomes.add('incomplete');
}

/** Yields jobs as their lines arrive. Ends early when `stop` aborts; calls `ended` after the last line. */
async function* jobsOf(
  context: Context,
  input: Readable,
  toJob: (text: string, line: number) => Numbered,
  refuse: (line: number, error: unknown) => void,
  stop: AbortSignal,
  ended = () => {},
): AsyncGenerator<Numbered[]> {
  for await (const some of linesUntil(stop, input)) {
    const jobs: Numbered[] = [];
    for (const { number, text, error } of some) {
      try {
        if (error) throw error;
        jobs.push(toJob(text, number));
      } catch (problem) {
        refuse(number, problem);
      }
    }
    await context.heard();
    yield jobs;
    if (stop.aborted) return;
  }
  if (!stop.aborted) ended();
}

/** Copies `input` to a deleted file, so that nothing is left of it however this process ends; undefined if stopped. */
async function spool(input: Readable, stop: AbortSignal): Promise<FileHandle | undefined> {
  let file: FileHandle | undefined;
  try {
    file = await nameless();
    await pipeline(input, createWriteStream('', { fd: file.fd, autoClose: false }), { signal: stop });
    return file;
  } catch (error) {
    await file?.close();
    if (stop.aborted) return undefined;
    throw noTemporary('cannot keep the lines for --atomic', error as Error);
  }
}

async function nameless(): Promise<FileHandle> {
  const directory = await mkdtemp(join(tmpdir(), 'delayq-'));
  try {
    return await open(join(directory, 'lines'), 'w+', 0o600);
  } finally {
    await rm(directory, { recursive: true });
  }
}

/** Counts and reports the results of batches. */
class Sender {
  readonly #context: Context;
  readonly #queue: Queue;
  readonly #options: EnqueueOptions;
  readonly #counts = { created: 0, replaced: 0, kept: 0, 'kept-dead': 0, 'kept-done': 0 };
  /** Jobs in doubt: enqueued, but perhaps not durable; perhaps not enqueued. */
  readonly #doubts = { unconfirmed: 0, unknown: 0 };
  readonly #missed: [number, number][] = [];
  /** The weakest confirmation of any job. */
  #confirmed: Confirmed | undefined;
  readonly #stop = new AbortController();
  readonly #meter: Meter;
  #last = 0;
  #more = true;
  #failure: DelayqError | undefined;

  constructor(context: Context, queue: Queue, options: EnqueueOptions) {
    this.#context = context;
    this.#queue = queue;
    this.#options = options;
    // If the terminal shows ids, they are progress enough.
    this.#meter = new Meter(context, 'enqueued', !context.stdout.isTTY || options.quiet || options.json);
  }

  /** A signal that aborts when `stop` does, or when a batch has failed. */
  until(stop: AbortSignal): AbortSignal {
    return AbortSignal.any([stop, this.#stop.signal]);
  }

  ended(): void {
    this.#more = false;
  }

  async took(result: BatchResult<Numbered>): Promise<void> {
    const { batch } = result;
    this.#last = Math.max(this.#last, batch.at(-1)?.[LINE] ?? 0);
    if ('error' in result) {
      const { error } = result;
      if (!isDelayqError(error)) throw error;
      this.#failure ??= error;
      this.#stop.abort();
      if (error.code === 'unknown') this.#unknown(batch, error);
      else this.#missed.push([batch[0]?.[LINE] ?? 0, batch.at(-1)?.[LINE] ?? 0]);
      return;
    }
    for (const [i, { id, outcome, confirmed }] of result.enqueued.entries()) {
      this.#counts[outcome] += 1;
      this.#confirmed = least(this.#confirmed, confirmed);
      if (outcome === 'kept-dead') say(this.#context, `line ${batch[i]?.[LINE]}: kept: job ${id} is dead`);
    }
    if (!this.#options.quiet && !this.#options.json) {
      await this.#context.write(`${result.enqueued.map(({ id }) => id).join('\n')}\n`);
    }
    this.#meter.add(result.enqueued.filter(({ outcome }) => outcome === 'created' || outcome === 'replaced').length);
  }

  #unknown(batch: readonly Numbered[], error: DelayqError): void {
    this.#doubts[error.stored ? 'unconfirmed' : 'unknown'] += error.ids.length;
    const known = error.stored ? 'enqueued, but perhaps not durable' : 'may or may not be enqueued';
    // The error lists generated ids last, in the order of the jobs; ids that were given are in their lines.
    const given = new Map(batch.filter(({ id }) => id !== undefined).map((job) => [job.id, job[LINE]]));
    const made = batch.filter(({ id }) => id === undefined).map((job) => job[LINE]);
    if (batch.length > 1 && made.length === 0 && error.ids.length === batch.length) {
      const [from, to] = [batch[0]?.[LINE], batch.at(-1)?.[LINE]];
      say(
        this.#context,
        `lines ${from} to ${to}: each ${known}; to retry safely, enqueue them again with the same ids`,
      );
      return;
    }
    for (const id of error.ids) {
      const line = given.get(id) ?? made.shift();
      say(this.#context, `line ${line}: ${known}; to retry safely, enqueue it with the id ${id}`);
    }
  }

  /** The error to report at the end: that of one batch, with the counts of all batches in doubt. */
  #whole(failure: DelayqError): DelayqError {
    const { unconfirmed, unknown } = this.#doubts;
    if (failure.code !== 'unknown') return failure;
    const doubts = [
      ...(unconfirmed > 0 ? [`${many(unconfirmed, 'job')} enqueued, but perhaps not durable`] : []),
      ...(unknown > 0 ? [`${many(unknown, 'job')} that may or may not be enqueued`] : []),
    ];
    return new DelayqError('unknown', `in doubt: ${doubts.join('; ')}`, {
      why: failure.why,
      // It is that of one batch, which may have a single job.
      next: failure.next?.replace(`the id ${failure.ids[0]}`, 'the same ids'),
      cause: failure,
    });
  }

  async finish(refused: number, interrupted: boolean): Promise<void> {
    const { created, replaced, kept, 'kept-dead': keptDead, 'kept-done': keptDone } = this.#counts;
    this.#meter.end();
    if (this.#options.json) {
      const counts = { created, replaced, kept, keptDead, keptDone, refused, ...this.#doubts };
      await this.#context.write(document({ queue: this.#queue.name, ...counts, confirmed: this.#confirmed }));
    } else if (keptDone > 0) say(this.#context, `kept, because done already: ${many(keptDone, 'job')}`);
    if (keptDead > 0) this.#context.outcomes.add('incomplete');
    for (const [from, to] of this.#missed) say(this.#context, `lines ${from} to ${to}: not enqueued`);
    if (this.#more && (this.#failure || interrupted)) say(this.#context, `lines after ${this.#last}: not enqueued`);
    if (this.#failure) throw this.#whole(this.#failure);
    // A producer that has failed in front of the pipe must not look like one that had nothing to do.
    if (this.#last === 0 && refused === 0 && !interrupted) {
      if (!this.#options.quiet) say(this.#context, 'stdin had no line: nothing was enqueued');
      if (this.#options.failIfEmpty) this.#context.outcomes.add('empty');
    }
    if (interrupted) this.#context.outcomes.add('interrupted');
  }
}

function least(a: Confirmed | undefined, b: Confirmed | undefined): Confirmed | undefined {
  if (a?.replicas === undefined || b?.replicas === undefined) return b ?? a;
  return a.replicas < b.replicas ? a : b;
}
