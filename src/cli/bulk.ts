import { createReadStream, createWriteStream } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { addAbortSignal, type Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import {
  type BatchResult,
  checkId,
  DelayqError,
  formatDuration,
  isDelayqError,
  JsonText,
  MAX_CALL,
  type NewJob,
  parseAt,
  parseDuration,
  type Queue,
} from '../index.js';
import type { Context, Globals } from './context.js';
import { lines } from './lines.js';
import { document, grouped, say } from './output.js';

/** What `delayq enqueue` can be told. */
export interface EnqueueOptions extends Globals {
  readonly in?: number;
  readonly at?: string;
  readonly tz?: string;
  readonly id?: string;
  readonly ifExists?: 'keep' | 'replace';
  readonly tries?: number;
  readonly ttl?: number;
  readonly text?: boolean;
  readonly jobs?: boolean;
  readonly atomic?: boolean;
  readonly quiet?: boolean;
}

type Numbered = NewJob & { readonly line: number };

/** Text units from which on a batch is sent although it has room for more jobs. */
const BATCH_UNITS = 1024 * 1024;

/**
 * Enqueues the lines of stdin, a job each, at constant memory, and says what became of every line that was not. `at` is
 * when those without a time of their own fall due, ms.
 */
export async function enqueueLines(
  context: Context,
  queue: Queue,
  options: EnqueueOptions,
  zone: string,
  at: number | undefined,
): Promise<void> {
  const stop = context.stopSignal();
  // Lines may hold times of day, which are those of Redis's clock.
  const now = options.jobs ? await queue.redis.now() : 0;
  const toJob = options.jobs
    ? (text: string) => jobOf(text, zone, now)
    : (text: string): NewJob => ({
        payload: options.text ? JsonText.from(text.replace(/\r$/, '')) : JsonText.parse(text),
        in: options.in,
        at,
        tries: options.tries,
        ttl: options.ttl,
      });
  let refused = 0;
  const refuse = (line: number, error: unknown) => {
    if (!isDelayqError(error, 'usage', 'data')) throw error;
    refused += 1;
    say(context, `line ${line}: ${error.message}${error.why ? `: ${error.why}` : ''}`);
  };

  let input: Readable = context.stdin;
  let spooled: string | undefined;
  try {
    if (options.atomic) {
      spooled = await mkdtemp(join(tmpdir(), 'delayq-'));
      const file = join(spooled, 'lines');
      await pipeline(context.stdin, createWriteStream(file, { mode: 0o600 }), { signal: stop });
      for await (const _ of jobsOf(createReadStream(file), toJob, refuse, stop));
      if (refused > 0) {
        throw new DelayqError('data', `nothing was enqueued: ${refused} of the lines are bad`, {
          next: 'mend them, or leave out --atomic to enqueue the good ones',
        });
      }
      input = createReadStream(file);
    }
    const sender = new Sender(context, queue, options);
    for await (const result of queue.enqueueBatches(jobsOf(input, toJob, refuse, sender.until(stop)), {
      ifExists: options.ifExists ?? 'keep',
    })) {
      await sender.took(result);
    }
    await sender.finish(refused, stop.aborted);
  } finally {
    if (spooled) await rm(spooled, { recursive: true, force: true });
  }
  if (refused > 0 && context.exitCode === 0) context.exitCode = 1;
}

/** Reads lines into batches of jobs. Ends early when `stop` aborts. */
async function* jobsOf(
  input: Readable,
  toJob: (text: string) => NewJob,
  refuse: (line: number, error: unknown) => void,
  stop: AbortSignal,
): AsyncGenerator<Numbered[]> {
  let batch: Numbered[] = [];
  let units = 0;
  try {
    for await (const some of lines(addAbortSignal(stop, input))) {
      for (const { number, text, error } of some) {
        try {
          if (error) throw error;
          batch.push(Object.assign(toJob(text), { line: number }));
          units += text.length;
        } catch (problem) {
          refuse(number, problem);
        }
        if (batch.length < MAX_CALL && units < BATCH_UNITS) continue;
        yield batch;
        if (stop.aborted) return;
        batch = [];
        units = 0;
      }
    }
  } catch (error) {
    if (stop.aborted) return;
    throw error;
  }
  if (batch.length > 0) yield batch;
}

/** Reads a line of `--jobs`. Throws `usage` or `data` for whatever it does not know: a misspelt key would change a job. */
function jobOf(text: string, zone: string, now: number): NewJob {
  const bad = (why: string) => new DelayqError('data', 'the line is not a job', { why });
  let line: unknown;
  try {
    line = JSON.parse(text);
  } catch {
    throw bad('it is not JSON');
  }
  if (typeof line !== 'object' || line === null || Array.isArray(line)) throw bad('it is not an object');
  const { payload, in: delay, at, id, tries, ttl, ...others } = line as Record<string, unknown>;
  const [other] = Object.keys(others);
  if (other !== undefined) throw bad(`it has the unknown key ${JSON.stringify(other)}`);
  if (!('payload' in line)) throw bad('it has no payload');
  if (delay !== undefined && at !== undefined) throw bad('it has both in and at');
  for (const [key, value] of Object.entries({ in: delay, at, id, ttl })) {
    if (value !== undefined && typeof value !== 'string') throw bad(`${key} is not a string`);
  }
  if (tries !== undefined && typeof tries !== 'number') throw bad('tries is not a number');
  if (tries !== undefined && !(Number.isSafeInteger(tries) && tries >= 1)) throw bad('tries is not a count from 1');
  return {
    payload: JsonText.parse(payloadText(text) ?? JSON.stringify(payload)),
    in: delay === undefined ? undefined : parseDuration(delay as string),
    at: at === undefined ? undefined : parseAt(at as string, { zone, now }).ms,
    id: id === undefined ? undefined : checkId(id as string),
    tries,
    ttl: ttl === undefined ? undefined : parseDuration(ttl as string),
  };
}

/** The text of the value of the key "payload" in a valid JSON object, as it stands there: byte for byte. */
function payloadText(object: string): string | undefined {
  const token = /"(?:[^"\\]|\\.)*"|[{}[\]:,]|[^\s{}[\]:,"]+/gy;
  let depth = 0;
  let found: string | undefined;
  let start = -1;
  let key = '';
  let previous = '';
  for (let at = skipSpace(object, 0); at < object.length; at = skipSpace(object, token.lastIndex)) {
    token.lastIndex = at;
    const [text] = token.exec(object) ?? [''];
    if (text === '') return undefined;
    if (depth === 1 && (text === ',' || text === '}')) {
      // Of a key given twice JSON takes the last.
      if (start >= 0 && key === 'payload') found = object.slice(start, at).trim();
      start = -1;
    } else if (depth === 1 && previous === ':' && start < 0) start = at;
    else if (depth === 1 && start < 0 && text.startsWith('"')) key = JSON.parse(text) as string;
    if (text === '{' || text === '[') depth += 1;
    if (text === '}' || text === ']') depth -= 1;
    previous = text;
  }
  return found;
}

function skipSpace(text: string, from: number): number {
  let at = from;
  while (at < text.length && text.charCodeAt(at) <= 32) at += 1;
  return at;
}

/** Keeps count of batches as their results come in, and says what became of them. */
class Sender {
  readonly #context: Context;
  readonly #queue: Queue;
  readonly #options: EnqueueOptions;
  readonly #counts = { created: 0, replaced: 0, kept: 0, 'kept-dead': 0 };
  readonly #missed: [number, number][] = [];
  readonly #stop = new AbortController();
  /** Somebody sees stderr, and no ids run through it. */
  readonly #watched: boolean;
  readonly #started = performance.now();
  #shown = this.#started;
  #last = 0;
  #failure: DelayqError | undefined;

  constructor(context: Context, queue: Queue, options: EnqueueOptions) {
    this.#context = context;
    this.#queue = queue;
    this.#options = options;
    this.#watched = context.stderr.isTTY && (!context.stdout.isTTY || !!options.quiet || !!options.json);
  }

  /** Aborts when `stop` does, or when a batch has failed. */
  until(stop: AbortSignal): AbortSignal {
    return AbortSignal.any([stop, this.#stop.signal]);
  }

  async took(result: BatchResult<Numbered[]>): Promise<void> {
    const { batch } = result;
    this.#last = Math.max(this.#last, batch.at(-1)?.line ?? 0);
    if ('error' in result) {
      const { error } = result;
      if (!isDelayqError(error)) throw error;
      this.#failure ??= error;
      this.#stop.abort();
      if (error.code === 'unknown') this.#unknown(batch, error);
      else this.#missed.push([batch[0]?.line ?? 0, batch.at(-1)?.line ?? 0]);
      return;
    }
    for (const { outcome } of result.enqueued) this.#counts[outcome] += 1;
    for (const [i, { id, outcome }] of result.enqueued.entries()) {
      if (outcome !== 'kept-dead') continue;
      say(this.#context, `line ${batch[i]?.line}: kept: job ${id} is dead and stays so`);
    }
    if (!this.#options.quiet && !this.#options.json) {
      await this.#context.write(`${result.enqueued.map(({ id }) => id).join('\n')}\n`);
    }
    this.#progress();
  }

  #unknown(batch: Numbered[], error: DelayqError): void {
    // Ids made here are the last ones of the error's list in the order of the jobs; ids given are in the line.
    const given = new Map(batch.filter(({ id }) => id !== undefined).map(({ id, line }) => [id, line]));
    const made = batch.filter(({ id }) => id === undefined).map(({ line }) => line);
    for (const id of error.ids) {
      const line = given.get(id) ?? made.shift();
      say(this.#context, `line ${line}: may or may not be enqueued; to repeat it safely give it the id ${id}`);
    }
  }

  #progress(): void {
    const now = performance.now();
    if (!this.#watched || now - this.#shown < 200) return;
    this.#shown = now;
    const rate = Math.round(this.#total() / ((now - this.#started) / 1000));
    this.#context.stderr.write(`\r\x1b[Kdelayq: ${grouped(this.#total())} enqueued, ${grouped(rate)}/s`);
  }

  #total(): number {
    const { created, replaced } = this.#counts;
    return created + replaced;
  }

  async finish(refused: number, interrupted: boolean): Promise<void> {
    const { created, replaced, kept, 'kept-dead': keptDead } = this.#counts;
    if (this.#watched) {
      this.#context.stderr.write('\r\x1b[K');
      say(this.#context, `${grouped(this.#total())} enqueued in ${formatDuration(performance.now() - this.#started)}`);
    }
    if (this.#options.json) {
      await this.#context.write(document({ queue: this.#queue.name, created, replaced, kept, keptDead, refused }));
    }
    if (keptDead > 0) this.#context.exitCode = 1;
    for (const [from, to] of this.#missed) say(this.#context, `lines ${from} to ${to}: not enqueued`);
    if (this.#failure || interrupted) say(this.#context, `lines after ${this.#last}: not enqueued`);
    if (this.#failure) throw this.#failure;
    if (interrupted) this.#context.exitCode = 130;
  }
}
