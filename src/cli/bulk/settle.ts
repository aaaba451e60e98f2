import {
  type Answer,
  type Connection,
  checkName,
  DelayqError,
  type Flood,
  type Held,
  isPassing,
  MAX_CALL,
  type NackAnswer,
  Queue,
  type RetryLimits,
} from '../../internal.js';
import type { Context, Globals } from '../host/context.js';
import { parse } from '../lines/drain-line.js';
import { deaths, REASONS } from '../terminal/deaths.js';
import { document, many, say, shownId } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';
import { LineInput } from './input.js';
import { Window } from './window.js';

export interface SettleOptions extends Globals {
  readonly in?: number;
  readonly dead?: boolean;
  readonly release?: boolean;
  readonly error?: string;
  readonly lease?: number;
}

/** What ack, nack or renew does with jobs of one queue. */
export type Settle = (queue: Queue, jobs: readonly Held[], limits: RetryLimits) => Promise<(Answer | NackAnswer)[]>;

export interface SettledJob extends Held {
  readonly queue: string;
  readonly line: number | undefined;
}

/** How long lines are still read after the first signal, ms: their writer is being stopped as well. */
const GRACE_MS = 30_000;

const CALLS_IN_FLIGHT = 4;

/** Settles jobs as their lines arrive, many in a call, and reports those that could not be settled. */
export class LineSettler {
  readonly #context: Context;
  readonly #options: SettleOptions;
  readonly #settle: Settle;
  readonly #retryForMs: number;
  readonly #onTrouble: (error?: DelayqError) => void;
  readonly #deaths: Flood;
  readonly #redis: Connection;
  readonly #window = new Window({ calls: CALLS_IN_FLIGHT });
  readonly #counts: Record<Answer | NackAnswer, number> = { held: 0, pending: 0, dead: 0, lost: 0, superseded: 0 };
  readonly #input: LineInput;
  /** The first error of each queue. */
  readonly #failures = new Map<string, unknown>();

  /** `retryForMs`: how long a call is retried while Redis is in trouble. The work behind it is done already. */
  constructor(context: Context, options: SettleOptions, settle: Settle, { retryForMs = 30_000 } = {}) {
    this.#context = context;
    this.#options = options;
    this.#settle = settle;
    this.#retryForMs = retryForMs;
    this.#deaths = deaths(context);
    this.#input = new LineInput(context);
    this.#onTrouble = troubleReporter(context);
    this.#redis = context.redis(options);
  }

  /** Settles the jobs named on stdin. After a signal it reads on: the writer is expected to end soon. */
  async read(): Promise<void> {
    const stop = this.#context.stopSignal();
    const { stdin } = this.#context;
    const over = new AbortController();
    stop.addEventListener('abort', () => {
      if (stdin.isTTY) over.abort();
      else setTimeout(() => over.abort(), GRACE_MS).unref();
    });
    for await (const some of this.#input.read(stdin, over.signal, settledJobOf)) {
      await this.add(some);
      // Without Redis there is no use in reading on; but one bad queue does not stop the others.
      if ([...this.#failures.values()].some(isPassing)) break;
    }
  }

  /** Settles some jobs, a call for each 250 of a queue. Resolves when there is room for more. */
  async add(jobs: readonly SettledJob[]): Promise<void> {
    for (const name of new Set(jobs.map(({ queue }) => queue))) {
      const queue = new Queue(this.#redis, name, { prefix: this.#context.prefix(this.#options) });
      const ofQueue = jobs.filter((job) => job.queue === name);
      for (let i = 0; i < ofQueue.length; i += MAX_CALL) {
        const some = ofQueue.slice(i, i + MAX_CALL);
        await this.#window.add(this.#call(queue, some), (report) => report());
      }
    }
  }

  /** Settles jobs of one queue. Returns what reports the answers, or the failure: other calls go on after one. */
  async #call(queue: Queue, jobs: readonly SettledJob[]): Promise<() => void> {
    const end = performance.now() + this.#retryForMs;
    try {
      const answers = await this.#settle(queue, jobs, { until: () => end, onTrouble: this.#onTrouble });
      return () => {
        for (const [i, job] of jobs.entries()) this.#report(job, answers[i] as Answer | NackAnswer);
      };
    } catch (error) {
      return () => this.#reportFailure(queue.name, jobs, error);
    }
  }

  #report({ queue, id, line }: SettledJob, answer: Answer | NackAnswer): void {
    this.#counts[answer] += 1;
    const { dead, release, error } = this.#options;
    const words = {
      held: undefined,
      pending: undefined,
      dead: dead ? undefined : `dead: ${REASONS[release ? 'released' : 'failed']}${error ? `: ${error}` : ''}`,
      lost: 'lost: its lease expired, or it was settled before; nothing was changed',
      superseded: 'superseded: it was replaced or cancelled; nothing was changed',
    }[answer];
    if (!words) return;
    const text = `${line === undefined ? '' : `line ${line}: `}${queue} ${shownId(id)}: ${words}`;
    if (answer === 'dead') this.#deaths.add(text, queue);
    else say(this.#context, text);
  }

  #reportFailure(queue: string, jobs: readonly SettledJob[], error: unknown): void {
    if (!this.#failures.has(queue)) this.#failures.set(queue, error);
    const numbers = jobs.map(({ line }) => line).filter((line) => line !== undefined);
    const which = numbers.length === 1 ? `line ${numbers[0]}` : `lines ${numbers[0]} to ${numbers.at(-1)}`;
    if (numbers.length > 0) say(this.#context, `${which}: not settled in ${queue}`);
  }

  /** Waits for the last answers, and prints their counts with --json. Throws the first error of a call. */
  async end(): Promise<void> {
    await this.#window.end();
    this.#deaths.flush();
    const { held, pending, dead, lost, superseded } = this.#counts;
    const refused = this.#input.bad;
    if (this.#options.json) {
      const settled = held + pending + dead;
      const counts = document({ settled, dead, lost, superseded, refused });
      await this.#context.write(counts, `${many(settled, 'job')} settled`);
    }
    for (const error of this.#failures.values()) throw error;
    if (lost > 0 || (dead > 0 && !this.#options.dead)) this.#context.outcomes.add('incomplete');
  }
}

/** Reads a line of an envelope. Throws `data` if it names no job. */
function settledJobOf(text: string, line: number): SettledJob {
  const bad = (why: string) => new DelayqError('data', 'the line names no job', { why });
  const value = parse(text);
  if (value === undefined) throw bad('it is not JSON');
  const { queue, id, receipt } = Object(value) as Record<string, unknown>;
  for (const [key, part] of Object.entries({ queue, id, receipt })) {
    if (typeof part !== 'string' || part === '') throw bad(`it has no ${key}`);
  }
  return { queue: checkName(queue as string), id: id as string, receipt: receipt as string, line };
}
