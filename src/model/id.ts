import { isUtf8 } from 'node:buffer';
import { randomFillSync } from 'node:crypto';
import { closeSync, openSync, readSync } from 'node:fs';
import { hostname } from 'node:os';

/**
 * A job's id: text, or bytes where no handler could be given them as text. Other software may have made an id of anything.
 */
export type Id = string | Buffer;

/** The id that Redis told: bytes when they are none or not UTF-8, or hold a NUL, as no argument can. As lua/lib/ids.lua judges. */
export function idOf(bytes: Buffer): Id {
  return bytes.length > 0 && isUtf8(bytes) && !bytes.includes(0) ? bytes.toString('utf8') : bytes;
}

/** An id as people and programs read it: text as it is if it can be a line of ids, else base64:…, which commands take. */
export function idWord(id: Id): string {
  const isLine = typeof id === 'string' && id !== '' && id.trim() === id && !/[\r\n]/.test(id);
  return isLine ? id : `base64:${Buffer.from(id as string).toString('base64')}`;
}

/** The same text for the same id, whether it came as text or as bytes. */
export function idKey(id: Id): string {
  return Buffer.from(id as string).toString('latin1');
}

/** Who takes jobs, for operators: host and process. */
export function consumer(): string {
  return `${hostname().replace(/\s/g, '-')}:${process.pid}`;
}

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';
const pool = Buffer.allocUnsafe(4096);
let poolAt = pool.length;

/** Fills the pool from the system's random source. Where it is a file: to load node:crypto takes longer than to connect. */
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

/** A byte of the system's random source. */
function randomByte(): number {
  if (poolAt === pool.length) {
    fill();
    poolAt = 0;
  }
  return pool[poolAt++] as number;
}

/** `length` random characters of base62. */
export function randomWord(length: number): string {
  let word = '';
  while (word.length < length) {
    const byte = randomByte();
    // 248 is four times 62: larger bytes would favour the first digits.
    if (byte < 248) word += DIGITS[byte % 62];
  }
  return word;
}

const CODES = Array.from(DIGITS, (digit) => digit.charCodeAt(0));

/** `n` in base62, as its last `length` digits. */
function base62(n: number, length: number): string {
  const codes = new Array<number>(length);
  for (let rest = n, i = length - 1; i >= 0; i--, rest = Math.floor(rest / 62)) codes[i] = CODES[rest % 62] as number;
  return String.fromCharCode(...codes);
}

/** Ids of delayq are not older than delayq, ms. */
const FIRST_MS = Date.UTC(2025, 0, 1);

/**
 * When an id was made, ms by the clock of whoever made it, if delayq has made it: some other id that looks like one, and
 * from before `now`, is taken for one as well. Undefined when delayq cannot have made it.
 */
export function timeOfId(id: string, now: number = Date.now()): number | undefined {
  if (!/^[0-9A-Za-z]{13}$/.test(id)) return undefined;
  const ms = [...id.slice(0, 7)].reduce((sum, digit) => sum * 62 + DIGITS.indexOf(digit), 0);
  // Clocks are a little apart.
  return ms >= FIRST_MS && ms <= now + 3_600_000 ? ms : undefined;
}

const TAILS = 62 ** 6;
let time = 0;
let head = '';
let tail = 0;

/**
 * A new job id: 13 characters of base62, 7 of the time in ms and 6 random. Ids never begin with a dash, stay in Redis's
 * smallest allocation, and sort in the order in which a process makes them (within a millisecond the random part goes
 * up by random steps, as in monotonic ULIDs), so jobs due at the same time come out as they went in. Until 2081.
 */
export function newId(now: number = Date.now()): string {
  tail += 1 + randomByte();
  if (now > time || tail >= TAILS) {
    time = Math.max(now, time + 1);
    head = base62(time, 7);
    // Half of the range is left to go up in.
    tail = (randomByte() * 2 ** 24 + randomByte() * 2 ** 16 + randomByte() * 2 ** 8 + randomByte()) * 6;
  }
  return head + base62(tail, 6);
}
