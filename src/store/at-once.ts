/**
 * Runs `act` for all items, `most` at a time, and begins no more after a failure. Throws the first error when none is
 * running.
 */
export async function atOnce<T>(
  most: number,
  items: Iterable<T> | AsyncIterable<T>,
  act: (item: T) => Promise<unknown>,
): Promise<void> {
  const rest = (async function* () {
    yield* items;
  })();
  const one = async () => {
    for await (const item of rest) await act(item);
  };
  const ended = await Promise.allSettled(Array.from({ length: most }, one));
  for (const end of ended) if (end.status === 'rejected') throw end.reason;
}
