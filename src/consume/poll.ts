import { realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { Agenda } from './agenda.js';
import type { TakenJobs } from './leases.js';
import { Outages } from './outages.js';
import { inDoubt, type PollOptions, Takes } from './takes.js';
import { Wakes } from './wakes.js';

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
  const { signal, leases, clock = realClock } = options;
  const outages = leases?.outages ?? new Outages();
  outages.begin(queues, options);
  /** Ends the pause. */
  let ring = () => {};
  const takes = new Takes(options, clock, () => ring());
  const wakes = new Map<Queue['redis'], Wakes>();
  const listen = (queue: Queue) => {
    const heard = wakes.get(queue.redis) ?? new Wakes(queue.redis, clock);
    wakes.set(queue.redis, heard);
    heard.on(queue.wakeChannel, (due) => agenda.sourceOf(queue).heard(due) && ring());
  };
  const heardFrom = () => Math.max(0, ...[...wakes.values()].map(({ surelyFrom }) => surelyFrom));
  const agenda = new Agenda(queues, options, { clock, takes, outages, listen, heardFrom });
  const stop = () => ring();
  signal?.addEventListener('abort', stop);
  if (leases) leases.onSettled = (queue) => agenda.ended(queue) && ring();
  try {
    for (let step = agenda.next(); step; step = agenda.next()) {
      if ('taken' in step) takes.left += (yield step.taken) ?? 0;
      else {
        const { until } = step;
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
    for (const heard of wakes.values()) heard.close();
    outages.end(agenda.timeIsOver && !signal?.aborted);
  }
  const { failure } = agenda;
  if (failure) throw signal?.aborted || options.stream ? inDoubt(failure.queue, failure.error, options) : failure.error;
  if (outages.error) throw outages.error;
}
