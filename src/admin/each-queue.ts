import { DelayqError, isDelayqError } from '../model/errors.js';
import { within } from '../model/time.js';

/** How many queues to ask at once. */
const AT_ONCE = 50;

/** After waiting this long for a queue, ms, another one is asked meanwhile. */
const PATIENCE_MS = 250;

/** What was found out about a queue, or why it cannot be read. */
export type Seen<T> = { readonly queue: string } & ({ readonly found: T } | { readonly error: DelayqError });

/**
 * Looks at each queue, many at once, and returns what was found in the order of `queues`. A server that does not answer
 * costs its time limit once, however many queues it has. `limitMs`: give up on a queue earlier, ms. Throws if no queue
 * can be read and the reason is not in the queues: Redis does not answer, or refuses the calls.
 */
export async function eachQueue<T>(
  queues: readonly string[],
  look: (queue: string) => Promise<T>,
  limitMs?: (queue: string) => number,
): Promise<Seen<T>[]> {
  const seen: Seen<T>[] = [];
  const rest = [...queues.entries()];
  const askAll = async (): Promise<void> => {
    for (let next = rest.shift(); next; next = rest.shift()) {
      const [i, queue] = next;
      const looked = look(queue).then(
        (found) => ({ queue, found }),
        (error: unknown) => {
          if (!isDelayqError(error)) throw error;
          return { queue, error };
        },
      );
      const result = within(limitMs?.(queue) ?? Number.POSITIVE_INFINITY, looked).then((one) => {
        seen[i] = one ?? { queue, error: noAnswer() };
      });
      // A successor asks the next queue meanwhile.
      if (
        await within(
          PATIENCE_MS,
          result.then(() => true),
        )
      )
        continue;
      await Promise.all([result, askAll()]);
      return;
    }
  };
  await Promise.all(queues.slice(0, AT_ONCE).map(askAll));
  const errors = seen.map((one) => ('error' in one ? one.error : undefined));
  const general = errors.find((error) => error && !isDelayqError(error, 'config', 'usage', 'missing'));
  if (general && !errors.includes(undefined)) throw general;
  return seen;
}

const noAnswer = () => new DelayqError('unknown', 'no answer yet', { next: 'check that Redis is up' });
