/** Calls in flight, as many as delayq has. */
const IN_FLIGHT = 8;

/**
 * Calls `send` with `size` items of `all` at a time and keeps several calls in flight: waiting for each reply halves the
 * rate.
 *
 * @template T
 * @param {T[]} all
 * @param {number} size
 * @param {(some: T[]) => Promise<unknown>} send
 */
export async function overlapped(all, size, send) {
  let next = 0;
  const lane = async () => {
    while (next < all.length) {
      const some = all.slice(next, next + size);
      next += size;
      await send(some);
    }
  };
  await Promise.all(Array.from({ length: IN_FLIGHT }, lane));
}
