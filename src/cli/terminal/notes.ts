import { type DelayqError, type Drained, formatDuration, type Queue, type TaskResult } from '../../internal.js';
import type { Context } from '../host/context.js';
import { complain, grouped, many, say, shownId } from './output.js';

/** How much a drain says: nothing but what is out of order, the sum at the end as well, or each job. */
export type Talk = 'quiet' | 'normal' | 'verbose';

/** What a drain says on stderr besides its lines. */
export class Notes {
  readonly #context: Context;
  readonly #talk: Talk;
  readonly #started = performance.now();
  readonly #expired = new Map<string, number>();
  #died = 0;
  readonly #paused = new Set<string>();
  /** Since when Redis (undefined), or a queue alone, has been in trouble. */
  readonly #since = new Map<Queue | undefined, number>();
  /** Jobs that the drain was given. */
  taken = 0;

  constructor(context: Context, talk: Talk) {
    this.#context = context;
    this.#talk = talk;
  }

  /** Says what a call told of besides its jobs. */
  drained(queue: Queue, { jobs, expired, orphaned, badIds, died, state }: Drained): void {
    this.taken += jobs.length;
    if (expired > 0) this.#expired.set(queue.name, (this.#expired.get(queue.name) ?? 0) + expired);
    this.#died += died + badIds;
    if (died > 0) say(this.#context, `${queue.name}: ${many(died, 'job')} died: leases ended unanswered too often`);
    if (orphaned > 0)
      say(this.#context, `${queue.name}: ${many(orphaned, 'id')} without a payload moved to dead (reason: orphaned)`);
    if (badIds > 0)
      say(
        this.#context,
        `${queue.name}: ${many(badIds, 'job')} with an id that no handler can be given moved to dead (reason: bad id)`,
      );
    if (state !== 'paused') this.#paused.delete(queue.name);
    else if (this.#context.stderr.isTTY && !this.#paused.has(queue.name)) {
      this.#paused.add(queue.name);
      say(this.#context, `${queue.name} is paused: nothing is taken`);
    }
  }

  /** Says what became of a job, when that is asked for, or when nobody will look at it again by itself. */
  result({ queue, job, outcome, ms, error, delayMs }: TaskResult): void {
    const unusual = outcome === 'dead' || outcome === 'lost';
    if (this.#talk === 'quiet' || (this.#talk === 'normal' && !unusual)) return;
    const said = {
      acked: 'done',
      retried: `failed, again in ${formatDuration(delayMs ?? 0)}`,
      dead: 'dead',
      released: 'given back, nothing counted',
      lost: 'its lease was lost: it comes, or came, again',
      superseded: 'was replaced or cancelled meanwhile',
    }[outcome];
    const why = error === undefined ? '' : `: ${firstLine(error)}`;
    const which = `${queue.name} ${shownId(job.id)}`;
    say(this.#context, `${which}: attempt ${job.attempt}, ${formatDuration(ms)}: ${said}${why}`);
  }

  /** Says why the drain has not ended yet. */
  waiting(why: string): void {
    if (this.#talk !== 'quiet') say(this.#context, why);
  }

  /** Tells once that Redis, or a queue alone, is in trouble, and that it is back. */
  trouble(error: DelayqError | undefined, queue?: Queue): void {
    const since = this.#since.get(queue);
    if (error && since === undefined) {
      this.#since.set(queue, performance.now());
      complain(this.#context, error);
      say(this.#context, queue ? `going on without ${queue.name}, looking at it every second` : 'still trying');
    } else if (!error && since !== undefined) {
      this.#since.delete(queue);
      const who = queue?.name ?? 'Redis';
      say(this.#context, `${who} is back after ${formatDuration(performance.now() - since)}`);
    }
  }

  /** Sums up, `counts` in words as they are to be read; nothing when nothing was taken. */
  sum(counts: Readonly<Record<string, number>>): void {
    if (this.#talk === 'quiet' || this.taken === 0) return;
    const parts = Object.entries(counts).filter(([, n]) => n > 0);
    const text = parts.map(([word, n]) => `${grouped(n)} ${word}`).join(', ');
    say(this.#context, `${text || 'nothing done'} in ${formatDuration(performance.now() - this.#started)}`);
  }

  /** Says at the end what was dropped. Returns whether jobs died that no handler has seen to its end. */
  end(): boolean {
    for (const [name, n] of this.#expired) say(this.#context, `${name}: ${many(n, 'job')} expired: dropped`);
    return this.#died > 0;
  }
}

function firstLine(text: string): string {
  const [first = '', ...rest] = text.split('\n');
  return rest.length > 0 ? `${first} …` : first;
}
