import type { DelayqError } from '../model/errors.js';
import { inParts, legible, type Parts } from '../model/text.js';
import { type Clock, formatDuration, realClock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';

/**
 * Called with an error when there is trouble, and with undefined when it is over. Without `where`, Redis cannot be
 * used. With a queue, only that one cannot, and the others go on. With `handlers`, too many of them failed in a row.
 * With `onDead`, that has failed; nothing says that this is over.
 */
export type OnTrouble = (error: DelayqError | undefined, where?: Queue | 'handlers' | 'onDead') => void;

/** Prints a message; for an error also why, and what to do next. */
export type Tell = (what: string, parts?: Parts) => void;

/** Prints on stderr, as the command line does. */
export const onStderr: Tell = (what, parts = {}) => console.error(inParts(what, parts).map(legible).join('\n'));

/**
 * Returns an `onTrouble` that reports each trouble once, and its end once. `watch`: failed queues are tried again.
 * Otherwise the run ends with the error, so this prints only its message.
 */
export function troubleTeller(
  tell: Tell,
  { watch = true, clock = realClock }: { watch?: boolean | undefined; clock?: Clock } = {},
): OnTrouble {
  /** When each trouble began, by the clock; undefined stands for Redis as a whole. */
  const began = new Map<Queue | 'handlers' | undefined, number>();
  return (error, where) => {
    if (where === 'onDead') {
      if (error) tell(error.what, error);
      return;
    }
    const since = began.get(where);
    const queue = typeof where === 'object' ? where : undefined;
    const what = queue && (queue.partitions.length > 1 ? `partitions of ${queue.name}` : queue.name);
    if (error && queue && !watch) tell(`going on without ${what}: ${error.why ?? error.what}`);
    else if (error && since === undefined) {
      began.set(where, clock.now());
      // A run that ends says at its end why handlers failed.
      if (where === 'handlers')
        tell(`${error.what}: ${error.next}`, watch ? { why: error.why?.split('\n', 1)[0] } : {});
      else {
        tell(error.what, error);
        tell(what ? `going on without ${what}, retrying every second` : 'still trying');
      }
    } else if (!error && since !== undefined) {
      began.delete(where);
      const back = where === 'handlers' ? 'handlers work again' : `${queue?.name ?? 'Redis'} is back`;
      tell(`${back} after ${formatDuration(clock.now() - since)}`);
    }
  };
}
