import { closeSync, fstatSync, readSync, writeFileSync } from 'node:fs';
import { addAbortSignal, Readable } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
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
import { cannotWrite } from '../host/stdout.js';
import { namelessFile, noTemporary } from '../host/temporary.js';
import { jobOf } from '../lines/job-line.js';
import { document, many, say } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';
import { LineInput } from './input.js';

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

/** How much of the lines of `--atomic` is read at once, bytes. */
const CHUNK = 64 * 1024;

type Numbered = NewJob & { readonly [LINE]: number };

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
  const isText = options.text ?? (!options.jobs && (await isOfTexts(queue.redis, context.prefix(options), queue.name)));
  const { in: delay, tries, deliveries, ttl, onceFor, attr: attributes, ifExists, durable, replicas } = options;
  const toJob = (text: string, line: number): Numbered => {
    if (options.jobs) return { ...jobOf(text, zone, now), [LINE]: line };
    const payload = isText ? JsonText.from(text.replace(/\r$/, '')) : JsonText.parse(text);
    return { payload, in: delay, at, tries, deliveries, ttl, onceFor, attributes, [LINE]: line };
  };
  if (fstatSync(context.stdin.fd).isDirectory()) {
    throw new DelayqError('input', 'cannot read stdin', {
      why: 'it is a directory',
      next: 'redirect lines to it: delayq enqueue q - < file',
    });
  }
  const input = new LineInput(context);
  let file: number | undefined;
  try {
    if (options.atomic) {
      file = await spool(context.stdin, stop);
      if (file === undefined) {
        say(context, 'nothing was enqueued');
        context.outcomes.add('interrupted');
        return;
      }
      for await (const _ of input.read(reread(file), stop, toJob));
      if (input.bad > 0) {
        throw new DelayqError('data', `nothing was enqueued: ${many(input.bad, 'bad line')}`, {
          next: 'fix them, or leave out --atomic to enqueue the others',
        });
      }
    }
    const sender = new Sender(context, queue, options);
    const over = AbortSignal.any([stop, sender.failed]);
    const jobs = async function* () {
      yield* input.read(file === undefined ? context.stdin : reread(file), over, toJob);
      sender.isWhole = !over.aborted;
    };
    for await (const result of queue.enqueueBatches(jobs(), { ifExists, durable, replicas })) await sender.took(result);
    await sender.finish(input.bad, stop.aborted);
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

/**
 * The bytes of a file, from its start. They are read synchronously, as {@link spool} writes them: a stream of Node
 * closes its file when it is stopped, whatever its options say.
 */
function reread(fd: number): Readable {
  const chunks = async function* () {
    for (let at = 0, length = 1; length > 0; at += length) {
      // Lets signals in.
      await setImmediate();
      const bytes = Buffer.alloc(CHUNK);
      length = readSync(fd, bytes, 0, CHUNK, at);
      if (length > 0) yield bytes.subarray(0, length);
    }
  };
  return Readable.from(chunks());
}

/** Copies `input` to a file without a name. Undefined if stopped. */
async function spool(input: Readable, stop: AbortSignal): Promise<number | undefined> {
  const keep = <T>(action: () => T): T => {
    try {
      return action();
    } catch (error) {
      throw noTemporary('cannot keep the lines for --atomic', error as Error);
    }
  };
  const fd = keep(namelessFile);
  let isWhole = false;
  try {
    for await (const chunk of addAbortSignal(stop, input)) keep(() => writeFileSync(fd, chunk));
    isWhole = !stop.aborted;
  } catch (error) {
    if (!stop.aborted) throw error;
  } finally {
    if (!isWhole) closeSync(fd);
  }
  return isWhole ? fd : undefined;
}

/** Counts and reports the results of batches. */
class Sender {
  readonly #context: Context;
  readonly #queue: Queue;
  readonly #options: EnqueueOptions;
  readonly #counts = { created: 0, replaced: 0, kept: 0, 'kept-dead': 0, 'kept-done': 0 };
  /** Jobs in doubt: enqueued, but perhaps not durable; perhaps not enqueued. */
  readonly #doubts = { unconfirmed: 0, unknown: 0 };
  /** The weakest confirmation of any job. */
  #confirmed: Confirmed | undefined;
  readonly #abort = new AbortController();
  /** Aborts when a batch has failed. */
  readonly failed = this.#abort.signal;
  readonly #meter: Meter;
  #last = 0;
  /** The input was read to its end. */
  isWhole = false;
  #failure: DelayqError | undefined;

  constructor(context: Context, queue: Queue, options: EnqueueOptions) {
    this.#context = context;
    this.#queue = queue;
    this.#options = options;
    // If the terminal shows ids, they are progress enough.
    this.#meter = new Meter(context, 'enqueued', !context.stdout.isTTY || options.quiet || options.json);
  }

  async took(result: BatchResult<Numbered>): Promise<void> {
    const { batch } = result;
    const lines = batch.map((job) => job[LINE]);
    this.#last = Math.max(this.#last, lines.at(-1) ?? 0);
    if ('error' in result) {
      const { error } = result;
      if (!isDelayqError(error)) throw error;
      this.#failure ??= error;
      this.#abort.abort();
      if (error.code === 'unknown') this.#unknown(batch, error);
      else say(this.#context, `lines ${lines[0]} to ${lines.at(-1)}: not enqueued`);
      return;
    }
    for (const [i, { id, outcome, confirmed }] of result.enqueued.entries()) {
      this.#counts[outcome] += 1;
      this.#confirmed = least(this.#confirmed, confirmed);
      if (outcome === 'kept-dead') say(this.#context, `line ${lines[i]}: kept: job ${id} is dead`);
    }
    if (!this.#options.quiet && !this.#options.json)
      await this.#write(`${result.enqueued.map(({ id }) => id).join('\n')}\n`);
    this.#meter.add(result.enqueued.filter(({ outcome }) => outcome === 'created' || outcome === 'replaced').length);
  }

  /** Writes to stdout. If that fails no more lines are read, but the results of those that were sent are taken. */
  async #write(text: string): Promise<void> {
    if (isDelayqError(this.#failure, 'output')) return;
    try {
      await this.#context.write(text);
    } catch (error) {
      if (!isDelayqError(error, 'output')) throw error;
      this.#failure ??= error;
      this.#abort.abort();
    }
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
    if (failure.code === 'output') {
      const { created, replaced } = this.#counts;
      const jobs = many(created + replaced + unconfirmed, 'job');
      const done = `${jobs} enqueued, up to line ${this.#last}`;
      const next = 'free disk space or write to another place; but enqueue only the lines again that are not enqueued';
      return cannotWrite(failure.cause as Error, done, next);
    }
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
      await this.#write(document({ queue: this.#queue.name, ...counts, confirmed: this.#confirmed }));
    } else if (keptDone > 0) say(this.#context, `kept, because done already: ${many(keptDone, 'job')}`);
    if (keptDead > 0) this.#context.outcomes.add('incomplete');
    if (!this.isWhole && (this.#failure || interrupted)) say(this.#context, `lines after ${this.#last}: not enqueued`);
    if (this.#failure) throw this.#whole(this.#failure);
    // If the producer in front of the pipe has failed, that must not look as if it had nothing to enqueue.
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
