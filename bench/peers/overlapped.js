/** As many as delayq itself has on their way. */
const IN_FLIGHT = 8;

/**
 * Hands `all` to `send`, `size` at a time, with several calls on their way at once: whoever waits for each answer before the next
 * call is half as fast.
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
