import { isUtf8 } from 'node:buffer';
import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { hostname } from 'node:os';

/** A job's id: text, or bytes if they are not valid text. Other software may use any bytes as an id. */
export type Id = string | Buffer;

/**
 * The id in a reply of Redis. It stays bytes if it is empty, not UTF-8, or contains NUL, which no argument of a process
 * can. As isId in lua/lib/values.lua.
 */
export function idOf(bytes: Buffer): Id {
  return bytes.length > 0 && isUtf8(bytes) && !bytes.includes(0) ? bytes.toString('utf8') : bytes;
}

/** An id for output: the text itself if it fits on a line of ids, otherwise base64:…, which commands also accept. */
export function idWord(id: Id): string {
  const isLine = typeof id === 'string' && id !== '' && id.trim() === id && !/[\r\n]/.test(id);
  return isLine ? id : `base64:${Buffer.from(id as string).toString('base64')}`;
}

/** A map key for an id: the same whether the id is text or bytes. */
export function idKey(id: Id): string {
  return Buffer.from(id as string).toString('latin1');
}

/** The id of a key that {@link idKey} made. */
export const idOfKey = (key: string): Id => idOf(Buffer.from(key, 'latin1'));

let ownName: string | undefined;

/** Names this process for operators: host:pid. Made once, because the host's name is a system call. */
export function consumer(): string {
  ownName ??= `${hostname().replace(/\s/g, '-')}:${process.pid}`;
  return ownName;
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const pool = Buffer.allocUnsafe(4096);
let poolAt = pool.length;

/** Fills the pool from /dev/urandom if it exists: loading node:crypto takes longer than connecting. */
function fill(): void {
  let file: number | undefined;
  try {
    file = openSync('/dev/urandom', 'r');
    if (readSync(file, pool) < pool.length) randomFillSync(pool);
  } catch {
    randomFillSync(pool);
  } finally {
    if (file !== undefined) closeSync(file);
  }
}

function randomByte(): number {
  if (poolAt === pool.length) {
    fill();
    poolAt = 0;
  }
  return pool[poolAt++] as number;
}

/** Returns `length` random base62 characters. */
export function randomWord(length: number): string {
  let word = '';
  while (word.length < length) {
    const byte = randomByte();
    // 248 is 4 × 62: using larger bytes would favour the first digits.
    if (byte < 248) word += DIGITS[byte % 62];
  }
  return word;
}

const CODES = Array.from(DIGITS, (digit) => digit.charCodeAt(0));

/** Returns the last `length` digits of `n` in base62. */
function base62(n: number, length: number): string {
  const codes = new Array<number>(length);
  for (let rest = n, i = length - 1; i >= 0; i--, rest = Math.floor(rest / 62)) codes[i] = CODES[rest % 62] as number;
  return String.fromCharCode(...codes);
}

/** No id made by delayq is older than this, ms since 1970. */
const FIRST_MS = Date.UTC(2025, 0, 1);

/**
 * When delayq made `id`, ms by the producer's clock. Undefined if delayq cannot have made it. An id of other software
 * that has the same form and a time before `now` cannot be told apart.
 */
export function timeOfId(id: string, now: number = Date.now()): number | undefined {
  if (!/^[0-9A-Za-z]{13}$/.test(id)) return undefined;
  const ms = [...id.slice(0, 7)].reduce((sum, digit) => sum * 62 + DIGITS.indexOf(digit), 0);
  // Allow for clock skew.
  return ms >= FIRST_MS && ms <= now + 3_600_000 ? ms : undefined;
}

const TAILS = 62 ** 6;
let time = 0;
let head = '';
let tail = 0;

/**
 * Makes a job id: 13 base62 characters, 7 for the time in ms and 6 random. Ids never begin with a dash, fit in Redis's
 * smallest allocation, and sort in the order in which a process makes them (within a millisecond the random part
 * increases by random steps, as in monotonic ULIDs). So jobs due at the same time keep their order. Works until 2081.
 */
export function newId(now: number = Date.now()): string {
  tail += 1 + randomByte();
  if (now > time || tail >= TAILS) {
    time = Math.max(now, time + 1);
    head = base62(time, 7);
    // Start in the lower half of the range, to leave room for the increments.
    tail = (randomByte() * 2 ** 24 + randomByte() * 2 ** 16 + randomByte() * 2 ** 8 + randomByte()) * 6;
  }
  return head + base62(tail, 6);
}

/**
 * Makes a job id that fits, like {@link newId} otherwise. `fitting` gets the beginning of an id, and returns whether the
 * id fits with a last digit. Tries the 62 last digits for each beginning, which takes microseconds.
 */
export function newIdWhere(fitting: (start: string) => (last: string) => boolean): string {
  for (;;) {
    const start = newId().slice(0, -1);
    const fits = fitting(start);
    // From a random digit on, for different ids of different processes.
    const first = randomByte();
    for (let n = 0; n < 62; n++) {
      const digit = DIGITS[(first + n) % 62] as string;
      if (!fits(digit)) continue;
      // The next id must have another beginning: this one may be taken.
      tail += 62 - (tail % 62);
      return start + digit;
    }
  }
}
