/** The most characters of a kind: more says no more to a person. */
const MAX_KIND = 120;

/** Stands for what differs between errors of one kind. */
const BLANK = '…';

/**
 * What differs between errors of one kind, the longest forms first: URLs, times, addresses with or without a port, UUIDs,
 * words that mix letters with digits, numbers.
 */
const VARYING = new RegExp(
  [
    String.raw`\b[a-z[a-z0-9+.-]*:\/\/[^\s'"<>,)]+`,
    String.raw`\d{4}-\d\d-\d\d[T ][\d:.,]+Z?`,
    String.raw`\[?(?:\b[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?::[0-9a-f:]*\]?(?::\d+)?`,
    String.raw`\b\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?\b`,
    String.raw`\b[a-z0-9][\w-]*(?:\.[\w-]+)*:\d{2,5}\b`,
    String.raw`\b(?:[a-z0-9-]+\.){2,}[a-z]{2,}\b`,
    String.raw`\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b`,
    // These numbers say what failed.
    String.raw`(\b(?:exit|status|code|signal|http(?:\/[\d.]+)?|errno)(?: status| code)?[ :=#]{0,2}\d{1,3}\b)`,
    String.raw`\b(?=\w*\d)(?=\w*[a-z])[\w-]{6,}\b`,
    String.raw`\d+(?:[.,:T-]\d+)*Z?`,
  ].join('|'),
  'gi',
);

/**
 * The kind of an error: its first line without numbers, hosts and ids, so that the same failure of many jobs is one kind.
 * At most 120 characters. The status of a process and of HTTP is kept.
 */
export function errorKind(error: string): string {
  const [line = ''] = error.trimStart().split(/[\r\n]/, 1);
  return (
    line
      .slice(0, 4 * MAX_KIND)
      .replace(VARYING, (_, status?: string) => status ?? BLANK)
      // Control and format characters must not reach a terminal, nor be shown there in another form.
      .replace(/[\s\p{Cc}\p{Cf}]+/gu, ' ')
      .replace(/\u2026(?:[\s,/]*\u2026)+/g, BLANK)
      .trim()
      .slice(0, MAX_KIND)
      .toWellFormed()
  );
}

/** Whether an error has `text`, or its kind has: a text that was cut from a kind finds it. `…` stands for any text. */
export function isOfKind(error: string, text: string): boolean {
  if (error.includes(text)) return true;
  const kind = errorKind(error);
  let at = 0;
  return text.split(BLANK).every((part) => {
    const found = kind.indexOf(part, at);
    at = found + part.length;
    return found >= 0;
  });
}

/** Whether `text` is the beginning of a kind, and ends with `…` in place of the rest. */
export const isCutFrom = (kind: string, text: string) => text.endsWith(BLANK) && kind.startsWith(text.slice(0, -1));
