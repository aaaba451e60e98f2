/*
 * Text for people: numbers, and what others may have named anything.
 */

/** A whole number with thousands separated: 1,234,567. */
export function grouped(n: number): string {
  return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A number of things, in words: 1 job, 2,000 jobs. */
export function many(n: number, thing: string): string {
  return `${grouped(n)} ${n === 1 ? thing : thing.endsWith('s') ? `${thing}es` : `${thing}s`}`;
}

/** `text` quoted for an error: cut to `most` characters, and with nothing in it that a terminal would obey. */
export function printable(text: string, most = 60): string {
  const short = text.length > most ? `${text.slice(0, most - 3)}...` : text;
  return JSON.stringify(short).replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** `text` as one word for a shell: other software may have named things anything. */
export function shellWord(text: string): string {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
