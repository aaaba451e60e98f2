import { type Clock, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { Agenda } from './agenda.js';
import type { TakenJobs } from './leases.js';
import { Outages } from './outages.js';
import { inDoubt, type TakeOptions, Takes } from './takes.js';
import type { OnTrouble } from './trouble.js';
import { Wakes } from './wakes.js';

/** How to poll queues. Durations are ms. */
export interface PollOptions extends TakeOptions {
  /** With `watch`: stop after this time. */
  readonly forMs?: number | undefined;
  /** Stops polling. Jobs that are already taken are still yielded. */
  readonly signal?: AbortSignal | undefined;
  /** Called when one of several queues is in trouble; with `watch` also when Redis is, and again when that is over. */
  readonly onTrouble?: OnTrouble | undefined;
  /**
   * While there are more jobs, send the next call before the answer to the last one has arrived, so that neither Redis
   * nor the consumer waits for the other. After a stop or an error, read on until the end: jobs in flight are still
   * yielded. Breaking out of the loop gives them back.
   */
  readonly ahead?: boolean | undefined;
  /** Called with the answer of each drain call. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
  /** Called before each wait: no more jobs come for now, even if the last answer promised some. */
  readonly onWait?: (() => void) | undefined;
  /** Default: that of this process. */
  readonly clock?: Clock | undefined;
}

/**
 * Yields due jobs of `queues` until all that were due at the start are taken; with `watch`, until stopped. While a
 * queue has more jobs, tries those before it again before each batch. Otherwise a queue is looked at when its next job
 * falls due, and once in each poll interval. Delivery relies on this alone; the wake channel only shortens the wait.
 *
 * Partitions replace their queue as soon as they are known: asks all of them at once when their next jobs are due, then
 * takes jobs from the one with the oldest due job.
 *
 * A queue whose server does not answer holds up the others once, for 250 ms, or if all are on that server for 2 s;
 * further ones meanwhile for 25 ms. Its late answer still counts. Until it recovers, each call asks for one job: all
 * jobs that a call may bring count against the limit.
 *
 * With `watch`, errors that pass are waited out; the last one is thrown if the time ends before it has passed. A queue
 * that fails with another error, or without `watch` with any, is left out and, with `watch`, tried again later. Its
 * error is thrown at the end, or as soon as no other queue is left.
 *
 * `next(n)` says that n of the jobs were given back: they do not count against the limit.
 */
export async function* poll(
  queues: readonly Queue[],
  options: PollOptions = {},
): AsyncGenerator<TakenJobs, void, number | undefined> {
  const { watch = false, signal, leases, clock = realClock } = options;
  const outages = leases?.outages ?? new Outages();
  outages.begin(queues, options);
  /** Ends the pause. */
  let ring = () => {};
  const takes = new Takes(queues, options, clock, () => ring());
  const hearing = new Hearing(queues, clock, (queue, due) => agenda.sourceOf(queue).heard(due) && ring());
  const agenda = new Agenda(queues, {
    ...{ watch, clock, outages, ahead: options.ahead ?? false },
    end: clock.now() + (options.forMs ?? Number.POSITIVE_INFINITY),
    send: (queue, max) => takes.send(queue, max),
    isStopped: () => signal?.aborted ?? false,
    hasAll: () => takes.left === 0,
    heardFrom: () => hearing.surelyFrom,
    onDrained: (queue, drained) => options.onDrained?.(queue, drained),
  });
  const stop = () => ring();
  signal?.addEventListener('abort', stop);
  if (leases) leases.onSettled = (queue) => agenda.ended(queue) && ring();
  if (watch) hearing.listen();
  try {
    for (let step = agenda.next(); step; step = agenda.next()) {
      if ('taken' in step) takes.left += (yield step.taken) ?? 0;
      else {
        const { until, isIdle } = step;
        if (isIdle) options.onWait?.();
        if (isIdle && until < Number.POSITIVE_INFINITY) hearing.listen();
        await new Promise<void>((resolve) => {
          // In a process that has stood still, what has come meanwhile is read first.
          const cancel = clock.after(until - clock.now(), () => setImmediate(resolve));
          ring = () => {
            cancel();
            resolve();
          };
        });
      }
    }
  } finally {
    for (const call of agenda.open) takes.abandon(call);
    signal?.removeEventListener('abort', stop);
    hearing.close();
    outages.end(agenda.timeIsOver && !signal?.aborted);
  }
  const { failure } = agenda;
  if (failure) throw signal?.aborted ? inDoubt(failure.queue, failure.error, options.leaseMs) : failure.error;
  if (outages.error) throw outages.error;
}

/** Hears of jobs that fall due in the queues, and in the partitions of them that are known. */
class Hearing {
  readonly #queues: readonly Queue[];
  readonly #clock: Clock;
  readonly #heard: (queue: Queue, due: number) => void;
  readonly #wakes = new Map<Queue['redis'], Wakes>();
  readonly #known = new Set<Queue>();

  constructor(queues: readonly Queue[], clock: Clock, heard: (queue: Queue, due: number) => void) {
    this.#queues = queues;
    this.#clock = clock;
    this.#heard = heard;
  }

  /** From when on all of them are surely heard, by the clock, ms. */
  get surelyFrom(): number {
    return Math.max(0, ...[...this.#wakes.values()].map(({ surelyFrom }) => surelyFrom));
  }

  /** Listens to those that it does not listen to yet. */
  listen(): void {
    for (const queue of this.#queues) {
      for (const part of queue.partitions) {
        if (this.#known.has(part)) continue;
        this.#known.add(part);
        const wakes = this.#wakes.get(queue.redis) ?? new Wakes(queue.redis, this.#clock);
        this.#wakes.set(queue.redis, wakes);
        wakes.on(part.wakeChannel, (due) => this.#heard(part, due));
      }
    }
  }

  close(): void {
    for (const wakes of this.#wakes.values()) wakes.close();
  }
}
