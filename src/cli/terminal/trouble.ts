import { type DelayqError, formatDuration, type Queue } from '../../internal.js';
import type { Context } from '../host/context.js';
import { complain, say } from './output.js';

/**
 * Makes a listener for the trouble of a connection: it reports once on stderr that Redis, or only `queue`, cannot be
 * used (`error`), and once that it works again (undefined). `watch`: a queue that has failed is tried again. Otherwise
 * the run ends with its error, so that only the message is reported.
 */
export function troubleReporter(
  context: Context,
  { watch = true } = {},
): (error: DelayqError | undefined, queue?: Queue) => void {
  /** When the trouble began, by the monotonic clock; undefined stands for Redis as a whole. */
  const began = new Map<Queue | undefined, number>();
  return (error, queue) => {
    const since = began.get(queue);
    const what = queue && (queue.partitions.length > 1 ? `partitions of ${queue.name}` : queue.name);
    if (error && queue && !watch) say(context, `going on without ${what}: ${error.why ?? error.message}`);
    else if (error && since === undefined) {
      began.set(queue, performance.now());
      complain(context, error);
      say(context, what ? `going on without ${what}, retrying every second` : 'still trying');
    } else if (!error && since !== undefined) {
      began.delete(queue);
      say(context, `${queue?.name ?? 'Redis'} is back after ${formatDuration(performance.now() - since)}`);
    }
  };
}
