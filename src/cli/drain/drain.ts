import {
  type Buried,
  countOf,
  type DeadJobs,
  DelayqError,
  type Drained,
  errorKind,
  Flood,
  formatDuration,
  formatTime,
  type HandedOver,
  type OnTrouble,
  type Queue,
  type StreamTarget,
  type TaskOutcome,
  type TaskResult,
  type WorkerOptions,
} from '../../internal.js';
import { attempt } from '../host/attempt.js';
import type { Context, Globals } from '../host/context.js';
import { type FormOf, NOT_A_LINE, type OnOdd } from '../lines/drain-line.js';
import { deaths, REASONS } from '../terminal/deaths.js';
import { complain, grouped, many, say, sayInParts, shownId } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

/** One run of `delayq drain`, as every form of delivery needs it. Durations are ms. */
export interface Drain {
  readonly queues: readonly Queue[];
  /** Where they are, for another process. */
  readonly globals: Globals;
  /** Which jobs to take, and for how long. */
  readonly taking: Pick<WorkerOptions, 'limit' | 'leaseMs' | 'watch' | 'forMs' | 'onTrouble' | 'onDrained'>;
  /** After a stop: how long to wait for handlers or the reader. */
  readonly graceMs: number;
  readonly stop: AbortSignal;
  /** Aborts `graceMs` after a stop. */
  readonly graceOver: AbortSignal;
  readonly formOf: FormOf;
  /** Makes pending jobs dead, with `reason` as their error. */
  readonly bury: (queue: Queue, ids: readonly string[], reason: string) => Promise<Buried[]>;
  readonly report: DrainReport;
  /** Who is told of the jobs that die. */
  readonly deadJobs: DeadJobs | undefined;
}

/** How long a stop takes before it is reported what it waits for, ms. */
const STOPPING_MS = 1_000;

/** How much a drain reports: only problems and jobs that die, also a summary at the end, or also each job. */
export type Verbosity = 'quiet' | 'normal' | 'verbose';

/** What a drain reports on stderr. */
export class DrainReport {
  readonly #context: Context;
  readonly #verbosity: Verbosity;
  readonly #started = performance.now();
  readonly #expired = new Map<string, number>();
  /** What was reported last of what is not repeated. */
  readonly #reported = new Map<string, string | undefined>();
  readonly #deaths: Flood;
  readonly #problems: Flood;
  readonly #counts: Record<TaskOutcome, number> = {
    acked: 0,
    retried: 0,
    dead: 0,
    lost: 0,
    superseded: 0,
    released: 0,
  };
  readonly #retries = new Retries();
  /** How many jobs died without a handler. Ids without a payload do not count. */
  #died = 0;
  #handedOver = 0;
  taken = 0;
  /** What a stop would have to wait for, in words; undefined: nothing. The form of delivery sets it. */
  waitsFor: () => string | undefined = () => undefined;
  /** Reports that Redis, one queue or the handlers are in trouble, and that this is over. */
  readonly trouble: OnTrouble;

  constructor(context: Context, verbosity: Verbosity, how: { watch: boolean }) {
    this.#context = context;
    this.#verbosity = verbosity;
    this.#deaths = deaths(context);
    const more = (n: number) => `${many(n, 'more such report')} in this minute`;
    this.#problems = new Flood((text) => say(context, text), 3, more);
    this.trouble = troubleReporter(context, how);
  }

  /** Reports what one call of drain did besides taking jobs. */
  drained({ name }: Queue, drained: Drained): void {
    const { expired, died, state, now, next = now, notMade } = drained;
    const count = countOf(drained);
    this.taken += count;
    if (expired > 0) this.#expired.set(name, (this.#expired.get(name) ?? 0) + expired);
    for (const { id, reason } of died) {
      if (reason !== 'orphaned') this.#died += 1;
      this.#dead(name, `${name} ${shownId(id)}: dead: ${REASONS[reason]}`);
    }
    if (this.#isNews(`${name}: not made`, notMade?.what) && notMade) {
      const { code, why = notMade.what, next } = notMade;
      const what = `cannot enqueue the recurring jobs of ${name}`;
      complain(this.#context, new DelayqError(code, what, { why, next }));
    }
    const waits = count === 0 ? waitsFor(state, next - now) : undefined;
    if (this.#isNews(`${name}: waits`, waits && state) && waits && this.#context.stderr.isTTY)
      say(this.#context, `${name} ${waits}`);
  }

  /** Reports jobs that one call moved into a stream, if verbose. */
  handedOver({ name }: Queue, { key }: StreamTarget, drained: Drained): void {
    const { count, unacked } = drained.handedOver as HandedOver;
    this.#handedOver += count;
    if (this.#verbosity !== 'verbose' || count === 0) return;
    say(this.#context, `${name}: ${many(count, 'job')} to ${key}, not acked there: ${grouped(unacked)}`);
  }

  /** Whether `text` is another one than was reported last under this key. Undefined: there is nothing to report. */
  #isNews(key: string, text: string | undefined): boolean {
    const isNews = this.#reported.get(key) !== text;
    this.#reported.set(key, text);
    return isNews;
  }

  /** Reports the outcome of a job: of each job if verbose, else only of those that need attention. */
  result({ queue, job, outcome, reason, ms, error, thrown, delayMs = 0 }: TaskResult): void {
    this.#counts[outcome] += 1;
    if (outcome === 'retried') this.#retries.add(error ?? '', delayMs);
    const unusual = outcome === 'dead' || (outcome === 'lost' && this.#verbosity === 'normal');
    if (!unusual && this.#verbosity !== 'verbose') return;
    const words = {
      acked: 'done',
      retried: `failed, retry in ${formatDuration(delayMs)}`,
      // Without a handler, what it died of says all.
      dead: thrown === undefined && reason === 'refused' ? 'dead' : `dead: ${reason && REASONS[reason]}`,
      released: 'given back, not counted as a failure',
      lost: 'lease lost: the job is delivered again',
      superseded: 'the job was replaced or cancelled meanwhile',
    }[outcome];
    const why = error === undefined ? '' : firstLine(error);
    const which = `${queue.name} ${shownId(job.id)}: attempt ${job.attempt}, ${formatDuration(ms)}`;
    const line = `${which}: ${words}${why && `: ${why}`}`;
    if (outcome === 'dead') this.#dead(queue.name, line);
    else say(this.#context, line);
  }

  /**
   * Reports what is wrong with a handler, though not with a job: the first ones of a minute. `text` may quote what the
   * handler has written.
   */
  handlerProblem(text: string): void {
    this.#problems.add(firstLine(text));
  }

  /** Reports a line that is no answer: `why` says what is wrong with it. */
  noAnswer(line: string, why = 'an answer is ok, retry, release or dead'): void {
    const shown = line.length > MAX_SHOWN ? `${line.slice(0, MAX_SHOWN)} …` : line;
    this.handlerProblem(`"${shown}" is no answer of a handler: ${why}`);
  }

  /** Reports a job that was made dead, because its payload cannot be printed as a line. */
  noLine(queue: string, id: string): void {
    this.#died += 1;
    this.#dead(queue, `${queue} ${shownId(id)}: dead: ${NOT_A_LINE}`);
  }

  #dead(queue: string, line: string): void {
    if (this.#verbosity === 'verbose') say(this.#context, line);
    else this.#deaths.add(line, queue);
  }

  /** Reports the first job of each queue that cannot be written as asked; every one if verbose. */
  readonly odd: OnOdd = (queue, id, what) => {
    const kind = `${queue}: ${what}`;
    const isNews = this.#isNews(kind, kind);
    if (this.#verbosity === 'verbose' || (isNews && this.#verbosity === 'normal'))
      say(this.#context, `${kind}: printed as a JSON string (${shownId(id)})`);
  };

  waiting(why: string): void {
    if (this.#verbosity !== 'quiet') say(this.#context, why);
  }

  /** After a stop: reports what is waited for, on a terminal at once, otherwise only if it takes a while. */
  stopping(graceMs: number): void {
    const afterMs = this.#context.stderr.isTTY ? 0 : STOPPING_MS;
    const report = () => {
      const what = this.waitsFor();
      if (what) this.waiting(`waiting up to ${formatDuration(graceMs)} for ${what}; a second signal stops at once`);
    };
    if (graceMs > afterMs) setTimeout(report, afterMs).unref();
  }

  /** Handlers have failed, and none has done its job. */
  get allFailed(): boolean {
    const { retried, acked, superseded } = this.#counts;
    return retried > 0 && acked + superseded === 0;
  }

  /**
   * Prints how many jobs had each outcome, why some failed, and when they are retried. Nothing if no job was taken, or
   * if it is to be quiet and not all failed: that must not be an exit status alone.
   */
  summary(): void {
    this.#deaths.flush();
    if (this.taken === 0 || (this.#verbosity === 'quiet' && !this.allFailed)) return;
    const { acked: done, retried: failed, dead, lost, superseded, released } = this.#counts;
    const parts = Object.entries({
      'handed over': this.#handedOver,
      done,
      failed,
      dead,
      lost,
      superseded,
      'given back': released,
    });
    const text = parts.flatMap(([word, n]) => (n > 0 ? `${grouped(n)} ${word}` : [])).join(', ');
    const what = `${text || 'nothing done'} in ${formatDuration(performance.now() - this.#started)}`;
    sayInParts(this.#context, what, failed > 0 ? this.#retries.described(this.#context) : {});
  }

  /** Reports expired jobs. Returns whether jobs died that no handler finished. */
  end(): boolean {
    this.#deaths.flush();
    this.#problems.flush();
    for (const [name, n] of this.#expired) say(this.#context, `${name}: ${many(n, 'job')} expired and dropped`);
    this.#expired.clear();
    return this.#died > 0;
  }
}

/** Why a queue delivers no jobs for now. A rate is not worth a word if its next job comes within seconds. */
function waitsFor(state: Drained['state'], ms: number): string | undefined {
  if (state === 'paused') return 'is paused: no jobs are taken';
  if (state === 'full') return 'has as many active jobs as max-active allows: waiting for one to end';
  return state === 'limited' && ms >= 5_000 ? `has a rate: the next job comes in ${formatDuration(ms)}` : undefined;
}

/** How much of a line is shown that is no answer, characters. */
const MAX_SHOWN = 200;

/** How many kinds of errors are counted, and how many are named. */
const MAX_KINDS = 100;
const MAX_NAMED = 5;

/** Why jobs of a run failed, and when they are retried. */
class Retries {
  #failures = 0;
  /** By kind: how many there were, and how they are named: as they are if all are equal. */
  readonly #kinds = new Map<string, { count: number; name: string }>();
  /** The times of the first and the last retry, ms by the monotonic clock. */
  #first = Number.POSITIVE_INFINITY;
  #last = 0;

  add(error: string, delayMs: number): void {
    this.#failures += 1;
    const kind = errorKind(error);
    const name = firstLine(error);
    const known = this.#kinds.get(kind);
    if (known) {
      known.count += 1;
      if (known.name !== name) known.name = kind;
    } else if (this.#kinds.size < MAX_KINDS) this.#kinds.set(kind, { count: 1, name });
    const at = performance.now() + delayMs;
    this.#first = Math.min(this.#first, at);
    this.#last = Math.max(this.#last, at);
  }

  /** The most frequent kinds of errors, and when jobs are retried. */
  described(context: Context): { why: string; next?: string } {
    const most = [...this.#kinds.values()].sort((a, b) => b.count - a.count).slice(0, MAX_NAMED);
    const others = most.reduce((left, { count }) => left - count, this.#failures);
    if (others > 0) most.push({ name: 'others', count: others });
    const why = most.map(({ name, count }) => (most.length > 1 ? `${name} (${grouped(count)})` : name)).join(', ');
    const next = this.#when(context);
    return { why, ...(next && { next }) };
  }

  #when(context: Context): string | undefined {
    const now = performance.now();
    const begun = this.#first <= now;
    const inMs = (begun ? this.#last : this.#first) - now;
    // In a run that goes on they have been retried.
    if (inMs <= 0) return undefined;
    // An invalid time zone must not fail a drain at its end.
    const at = attempt(() => `${formatTime(Date.now() + inMs, context.zone({}))}, `) ?? '';
    return `${begun ? 'last' : 'first'} retry due ${at}in ${formatDuration(inMs)}`;
  }
}

function firstLine(text: string): string {
  const [first = '', ...rest] = text.split('\n');
  return rest.length > 0 ? `${first} …` : first;
}
