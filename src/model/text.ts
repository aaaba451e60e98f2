/** Formats a whole number with separators: 1,234,567. */
export function grouped(n: number): string {
  return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Formats a number of things: 1 job, 2,000 jobs. `thing` is the singular. */
export function many(n: number, thing: string): string {
  return `${grouped(n)} ${n === 1 ? thing : thing.endsWith('s') ? `${thing}es` : `${thing}s`}`;
}

const GIB = 1024 ** 3;

/** A number of bytes, such as `5.1 MiB`. */
export const sizeText = (bytes: number): string =>
  bytes >= GIB ? `${(bytes / GIB).toFixed(1)} GiB` : `${(bytes / 1024 ** 2).toFixed(1)} MiB`;

/** Quotes `text` for an error: as printable ASCII without escape sequences, cut to `maxLength` characters. */
export function printable(text: string, maxLength = 60): string {
  const short = text.length > maxLength ? `${text.slice(0, maxLength - 3)}...` : text;
  return JSON.stringify(short).replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** The beginning of `text`, at most so many bytes of UTF-8. */
export function cutBytes(text: string, most: number): string {
  const bytes = Buffer.from(text);
  if (bytes.length <= most) return text;
  let end = most;
  while (((bytes[end] as number) & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

// biome-ignore lint/suspicious/noControlCharactersInRegex: this is what it is for
const CONTROL = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/g;

/** `text` without control characters but tabs and line ends: it must not control a terminal. */
export const legible = (text: string): string => text.replace(CONTROL, (c) => printable(c).slice(1, -1));

/** Why something is the case, and what to do next, as far as it is known. */
export interface Parts {
  readonly why?: string | undefined;
  readonly next?: string | undefined;
}

/** The lines that tell on stderr what is the case, why, and what to do next. */
export function inParts(what: string, { why, next }: Parts): string[] {
  const reasons = why ? why.split('\n').map((line, i) => `${i ? '       ' : '  why: '} ${line}`) : [];
  return [`delayq: ${what}`, ...reasons, ...(next ? [`  next: ${next}`] : [])];
}

/** Quotes `text` as one word for a shell, if it needs quotes. */
export function shellWord(text: string): string {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}

/** The name of a queue as an argument of a command line: `--` tells one that begins with a dash from an option. */
export const queueWord = (name: string): string => (name.startsWith('-') ? `-- ${name}` : name);

/** The command that repairs a queue. */
export const fixLine = (queue: string) => `delayq doctor --fix ${queueWord(queue)}`;

/** The command line that moves jobs from one queue into another. */
export const moveLine = (from: string, into: string): string =>
  from.startsWith('-') ? `delayq move --into ${into} -- ${from}` : `delayq move ${from} --into ${into}`;

/** The word of `known` that `word` is probably a misspelling of: at most one letter in three is wrong, lost or swapped. */
export function closest(word: string, known: readonly string[]): string | undefined {
  let [found, fewest]: [string | undefined, number] = [undefined, Number.POSITIVE_INFINITY];
  for (const other of known) {
    const maxEdits = Math.max(word.length, other.length) / 3;
    if (Math.abs(word.length - other.length) > maxEdits) continue;
    const edits = editsBetween(word.toLowerCase(), other.toLowerCase());
    if (edits <= maxEdits && edits < fewest) [found, fewest] = [other, edits];
  }
  return found;
}

/** How many letters to change, insert, remove or swap with the next one to get from `a` to `b`. */
function editsBetween(a: string, b: string): number {
  const table = [Array.from({ length: b.length + 1 }, (_, j) => j)];
  const at = (i: number, j: number) => table[i]?.[j] ?? Number.POSITIVE_INFINITY;
  for (let i = 1; i <= a.length; i += 1) {
    const row = [i];
    table.push(row);
    for (let j = 1; j <= b.length; j += 1) {
      const isSwap = a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const changed = at(i - 1, j - 1) + (a[i - 1] === b[j - 1] ? 0 : 1);
      row.push(Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, changed, isSwap ? at(i - 2, j - 2) + 1 : changed));
    }
  }
  return at(a.length, b.length);
}
