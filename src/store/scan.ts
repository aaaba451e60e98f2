import type { Arg, Caller } from '../redis/connection.js';

/** Yields what SCAN, or HSCAN or ZSCAN of a key, returns, a part at a time. An item may come more than once. */
export async function* scan(redis: Caller, [command, ...key]: readonly string[], ...options: Arg[]) {
  let cursor = '0';
  do {
    const reply = await redis.call(command as string, ...key, cursor, ...options);
    const [next, found] = reply as [Buffer, Buffer[]];
    cursor = String(next);
    yield found;
  } while (cursor !== '0');
}
