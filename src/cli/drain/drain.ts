import { type Drained, formatDuration, type Queue, type TaskResult, type WorkerOptions } from '../../internal.js';
import type { Context } from '../host/context.js';
import type { Form } from '../lines/drain-line.js';
import { grouped, many, say, shownId } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

/** One run of `delayq drain`, as every form of delivery needs it. Durations are ms. */
export interface Drain {
  readonly queues: readonly Queue[];
  /** Which jobs to take, and for how long. */
  readonly taking: Pick<WorkerOptions, 'limit' | 'leaseMs' | 'watch' | 'forMs' | 'onTrouble' | 'onDrained'>;
  /** After a stop: how long to wait for handlers or the reader. */
  readonly graceMs: number;
  readonly stop: AbortSignal;
  /** Resolves `graceMs` after a stop. */
  readonly graceOver: Promise<'over'>;
  readonly form: Form;
  readonly report: DrainReport;
}

/** How much a drain reports: only problems, also a summary at the end, or also each job. */
export type Verbosity = 'quiet' | 'normal' | 'verbose';

/** What a drain reports on stderr. */
export class DrainReport {
  readonly #context: Context;
  readonly #verbosity: Verbosity;
  readonly #started = performance.now();
  readonly #expired = new Map<string, number>();
  readonly #paused = new Set<string>();
  #died = 0;
  taken = 0;
  /** Reports that Redis, or one queue, cannot be used, and that it is back. */
  readonly trouble: ReturnType<typeof troubleReporter>;

  constructor(context: Context, verbosity: Verbosity) {
    this.#context = context;
    this.#verbosity = verbosity;
    this.trouble = troubleReporter(context);
  }

  /** Reports what one call of drain did besides taking jobs. */
  drained({ name }: Queue, { jobs, expired, orphaned, badIds, died, state }: Drained): void {
    this.taken += jobs.length;
    if (expired > 0) this.#expired.set(name, (this.#expired.get(name) ?? 0) + expired);
    this.#died += died + badIds;
    const warn = (text: string) => say(this.#context, `${name}: ${text}`);
    if (died > 0) warn(`${many(died, 'job')} moved to dead: their leases expired too often (reason: lost)`);
    if (orphaned > 0) warn(`${many(orphaned, 'id')} without a payload moved to dead (reason: orphaned)`);
    if (badIds > 0) warn(`${many(badIds, 'job')} with an invalid id moved to dead (reason: bad id)`);
    if (state !== 'paused') this.#paused.delete(name);
    else if (this.#context.stderr.isTTY && !this.#paused.has(name)) {
      this.#paused.add(name);
      say(this.#context, `${name} is paused: no jobs are taken`);
    }
  }

  /** Reports the outcome of a job: of each job if verbose, else only of those that need attention. */
  result({ queue, job, outcome, ms, error, delayMs }: TaskResult): void {
    const unusual = outcome === 'dead' || outcome === 'lost';
    if (this.#verbosity === 'quiet' || (this.#verbosity === 'normal' && !unusual)) return;
    const words = {
      acked: 'done',
      retried: `failed, retry in ${formatDuration(delayMs ?? 0)}`,
      dead: 'dead',
      released: 'given back, not counted as a failure',
      lost: 'lease lost: the job is delivered again',
      superseded: 'the job was replaced or cancelled meanwhile',
    }[outcome];
    const why = error === undefined ? '' : `: ${firstLine(error)}`;
    const which = `${queue.name} ${shownId(job.id)}`;
    say(this.#context, `${which}: attempt ${job.attempt}, ${formatDuration(ms)}: ${words}${why}`);
  }

  waiting(why: string): void {
    if (this.#verbosity !== 'quiet') say(this.#context, why);
  }

  /** Prints the summary: `counts` by their words. Prints nothing if no job was taken. */
  summary(counts: Readonly<Record<string, number>>): void {
    if (this.#verbosity === 'quiet' || this.taken === 0) return;
    const parts = Object.entries(counts).filter(([, n]) => n > 0);
    const text = parts.map(([word, n]) => `${grouped(n)} ${word}`).join(', ');
    say(this.#context, `${text || 'nothing done'} in ${formatDuration(performance.now() - this.#started)}`);
  }

  /** Reports expired jobs. Returns whether jobs died that no handler finished. */
  end(): boolean {
    for (const [name, n] of this.#expired) say(this.#context, `${name}: ${many(n, 'job')} expired and dropped`);
    return this.#died > 0;
  }
}

function firstLine(text: string): string {
  const [first = '', ...rest] = text.split('\n');
  return rest.length > 0 ? `${first} …` : first;
}
