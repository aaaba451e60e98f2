import { randomFillSync } from 'node:crypto';

/** Crockford's base32, as ULIDs use it (github.com/ulid/spec). */
const DIGITS = Buffer.from('0123456789ABCDEFGHJKMNPQRSTVWXYZ');

/** Random bytes for the next ids. */
const random = Buffer.allocUnsafe(16 * 256);
let at = random.length;
let time = 0;
const text = Buffer.alloc(26);

/** Makes a request id in the form of a ULID: 26 characters, 10 for the time in ms and 16 random. */
export function requestId(now = Date.now()): string {
  if (now !== time) {
    time = now;
    for (let i = 9, rest = now; i >= 0; i--, rest = Math.floor(rest / 32)) text[i] = DIGITS[rest % 32] as number;
  }
  if (at === random.length) {
    randomFillSync(random);
    at = 0;
  }
  for (let i = 10; i < 26; i++) text[i] = DIGITS[(random[at++] as number) & 31] as number;
  // In one piece: a string that is put together from pieces keeps them all.
  return text.toString('latin1');
}
