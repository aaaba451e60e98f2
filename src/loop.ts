import { type DelayqError, isPassing } from './errors.js';
import { POLL_MS } from './keys.js';
import type { Taken } from './leases.js';
import type { Queue } from './queue.js';
import type { Drained } from './scripts.js';

/** Jobs taken by one call when nothing else is said: a call of 500 comes near the 3 ms that nobody else should wait. */
const BATCH = 250;

/** How a drain loop goes on. Times are ms. */
export interface LoopOptions {
  /** The most jobs to take in all. */
  readonly limit?: number | undefined;
  /** The most jobs to take at once; asked before each call when it changes. */
  readonly batch?: number | (() => number) | undefined;
  /** How long taken jobs are hidden from others; left out: as each queue's config says. 0 removes jobs as they are taken. */
  readonly leaseMs?: number | undefined;
  /** Go on waiting for jobs instead of ending when none that was due at the start is left. */
  readonly watch?: boolean | undefined;
  /** With `watch`: stop after this long. */
  readonly forMs?: number | undefined;
  /** Stops the loop; what was taken by then is still yielded. */
  readonly signal?: AbortSignal | undefined;
  /** Hears that Redis is in trouble (once, until it is back) and that it is back. Only with `watch`. */
  readonly onTrouble?: ((error: DelayqError | undefined) => void) | undefined;
  /** Hears what each call said beside its jobs. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
}

/**
 * Takes due jobs from `queues`, the first of them asked again before each batch, until none that was due at the start
 * is left; with `watch` until stopped. The loop waits for the earliest next due time that Redis told, one poll interval
 * at most: that alone delivers. The wake channel only shortens the wait.
 *
 * Throws what Redis answers. With `watch` a connection that is lost and errors that pass are waited out.
 */
export async function* drainLoop(queues: readonly Queue[], options: LoopOptions = {}): AsyncGenerator<Taken> {
  const { limit = Number.POSITIVE_INFINITY, batch = BATCH, leaseMs, watch = false } = options;
  const end = performance.now() + (options.forMs ?? Number.POSITIVE_INFINITY);
  const rest = new Rest(queues, options.signal);
  /** Until when a job must have been due, by the clock of each Redis at its first answer. */
  const cutoffs = new Map<Queue['redis'], number>();
  let taken = 0;
  let troubled = 0;
  if (watch) rest.listen();
  try {
    while (taken < limit && !options.signal?.aborted) {
      let found = false;
      rest.begin(Math.min(end, performance.now() + POLL_MS));
      for (const queue of queues) {
        let drained: Drained;
        const since = performance.now();
        try {
          const atOnce = typeof batch === 'number' ? batch : batch();
          const cutoff = cutoffs.get(queue.redis);
          drained = await queue.drain({ limit: Math.min(atOnce, limit - taken), leaseMs, cutoff });
        } catch (error) {
          if (!watch || !isPassing(error)) throw error;
          if (troubled++ === 0) options.onTrouble?.(error);
          rest.until(performance.now() + Math.min(POLL_MS, 50 * 2 ** Math.min(troubled, 10)));
          continue;
        }
        if (troubled > 0) options.onTrouble?.(undefined);
        troubled = 0;
        if (!watch && !cutoffs.has(queue.redis)) cutoffs.set(queue.redis, drained.now);
        rest.learn(drained);
        options.onDrained?.(queue, drained);
        if (drained.jobs.length > 0) {
          taken += drained.jobs.length;
          yield { queue, jobs: drained.jobs, since, leaseMs: drained.leaseMs };
        }
        found = drained.jobs.length > 0 || drained.state === 'more';
        if (found) break;
      }
      if (found && performance.now() < end) continue;
      if (!watch || performance.now() >= end) return;
      await rest.take();
    }
  } finally {
    rest.close();
  }
}

/** The pause between two looks at the queues: ends at the earliest of the times it learns of. */
class Rest {
  readonly #queues: readonly Queue[];
  readonly #signal: AbortSignal | undefined;
  #end = 0;
  #ring: (() => void) | undefined;
  #listener: ReturnType<Queue['redis']['listen']> | undefined;
  #listenAgain = 0;
  /** Redis's clock minus the monotonic one, ms. */
  #ahead = 0;

  constructor(queues: readonly Queue[], signal: AbortSignal | undefined) {
    this.#queues = queues;
    this.#signal = signal;
    signal?.addEventListener('abort', () => this.#ring?.());
  }

  begin(end: number): void {
    this.#end = end;
  }

  until(end: number): void {
    // Anybody may publish on the wake channel, so this may be no number.
    if (!(end < this.#end)) return;
    this.#end = end;
    this.#ring?.();
  }

  learn({ now, next }: Drained): void {
    this.#ahead = now - performance.now();
    if (next !== undefined) this.until(next - this.#ahead);
  }

  async take(): Promise<void> {
    this.listen();
    for (;;) {
      const ms = this.#end - performance.now();
      if (ms <= 0 || this.#signal?.aborted) return;
      await new Promise<void>((resolve) => {
        // Rounded up: timers fire early, and to ask early is to ask twice.
        const timer = setTimeout(resolve, Math.ceil(ms));
        this.#ring = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#ring = undefined;
    }
  }

  /** Hears of jobs that fall due sooner than it would look; again when the connection for it was lost. */
  listen(): void {
    const [first] = this.#queues;
    if (!first || this.#listener?.alive() || performance.now() < this.#listenAgain) return;
    this.#listenAgain = performance.now() + POLL_MS;
    const channels = this.#queues.map((queue) => queue.wakeChannel);
    this.#listener = first.redis.listen(channels, (due) => this.until(Number(due) - this.#ahead));
  }

  close(): void {
    this.#listener?.close();
  }
}
