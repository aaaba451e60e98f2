import type { Item } from '../../consume/batcher.js';
import { DelayqError, type Enqueued, isDelayqError, type NewJob, type Queue } from '../../index.js';

/**
 * How long to repeat a call whose reply was lost, ms. A Redis that does not answer has already used the time of a call,
 * 5 s; requests must not wait for another.
 */
export const REPEAT_MS = 1_500;

/**
 * Enqueues the jobs of several requests in as few calls as possible. Each request gets its own outcome. Throws the
 * first error of a call, too.
 */
export async function enqueueAll(queue: Queue, items: readonly Item<NewJob, Enqueued>[]): Promise<void> {
  const options = { repeatMs: REPEAT_MS };
  async function* jobs() {
    yield items.map(({ item }) => item);
  }
  let at = 0;
  let failure: unknown;
  for await (const result of queue.enqueueBatches(jobs(), options)) {
    const some = items.slice(at, at + result.batch.length);
    at += some.length;
    if ('enqueued' in result) for (const [i, { resolve }] of some.entries()) resolve(result.enqueued[i] as Enqueued);
    else if (some.length > 1 && isDelayqError(result.error, 'usage', 'data'))
      // One of the jobs is invalid, so none of them was sent.
      await Promise.all(some.map(({ item, resolve, reject }) => queue.enqueue(item, options).then(resolve, reject)));
    else {
      failure ??= result.error;
      for (const [i, { item, reject }] of some.entries()) reject(errorOf(result.error, item, i, some.length));
    }
  }
  if (failure !== undefined) throw failure;
}

/** The error of a call for one of its jobs: a client must not see other ids. */
function errorOf(error: unknown, { id }: NewJob, i: number, count: number): unknown {
  if (!isDelayqError(error, 'unknown')) return error;
  const own = error.ids.length === count ? error.ids[i] : id;
  const { what, why, next, cause } = error;
  return new DelayqError('unknown', what, { why, next, cause, ids: own === undefined ? [] : [own] });
}
