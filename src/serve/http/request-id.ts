import { randomFillSync } from 'node:crypto';

/** Crockford's base32, as ULIDs use it (github.com/ulid/spec). */
const DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';

const pool = Buffer.allocUnsafe(16 * 256);
let poolAt = pool.length;
let time = 0;
let head = '';

/** Makes a request id in the form of a ULID: 26 characters, 10 for the time in ms and 16 random. */
export function requestId(now = Date.now()): string {
  if (now !== time) {
    time = now;
    head = '';
    for (let i = 0, rest = now; i < 10; i++, rest = Math.floor(rest / 32)) head = DIGITS[rest % 32] + head;
  }
  if (poolAt === pool.length) {
    randomFillSync(pool);
    poolAt = 0;
  }
  let id = head;
  for (const end = poolAt + 16; poolAt < end; poolAt++) id += DIGITS[(pool[poolAt] as number) & 31];
  return id;
}
