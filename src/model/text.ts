/** Formats a whole number with separators: 1,234,567. */
export function grouped(n: number): string {
  return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** Formats a number of things: 1 job, 2,000 jobs. `thing` is the singular. */
export function many(n: number, thing: string): string {
  return `${grouped(n)} ${n === 1 ? thing : thing.endsWith('s') ? `${thing}es` : `${thing}s`}`;
}

/** Quotes `text` for an error: as printable ASCII without escape sequences, cut to `most` characters. */
export function printable(text: string, most = 60): string {
  const short = text.length > most ? `${text.slice(0, most - 3)}...` : text;
  return JSON.stringify(short).replace(/[^\x20-\x7e]/g, (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, '0')}`);
}

/** Quotes `text` as one word for a shell, if it needs quotes. */
export function shellWord(text: string): string {
  return /^[\w./:=@%+,-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`;
}
