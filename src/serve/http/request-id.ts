import { randomFillSync } from 'node:crypto';

/** Crockford's base32, as ULIDs use it (github.com/ulid/spec). */
const DIGITS = '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
const CODES = Buffer.from(DIGITS);

/** Random digits for the next ids. */
const bytes = Buffer.allocUnsafe(16 * 256);
let random = '';
let at = 0;
let time = 0;
let head = '';

/** Makes a request id in the form of a ULID: 26 characters, 10 for the time in ms and 16 random. */
export function requestId(now = Date.now()): string {
  if (now !== time) {
    time = now;
    head = '';
    for (let i = 0, rest = now; i < 10; i++, rest = Math.floor(rest / 32)) head = DIGITS[rest % 32] + head;
  }
  if (at === random.length) {
    randomFillSync(bytes);
    for (let i = 0; i < bytes.length; i++) bytes[i] = CODES[(bytes[i] as number) & 31] as number;
    random = bytes.toString('latin1');
    at = 0;
  }
  at += 16;
  return head + random.slice(at - 16, at);
}
