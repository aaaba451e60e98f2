import { type Id, type Inspector, idOf } from '../../internal.js';

/**
 * The ids that words on the command line or stdin stand for. `base64:…` gives the bytes of an id, unless a job of the
 * queue has that very text as its id.
 */
export async function idsOf(inspector: Inspector, queue: string, words: readonly string[]): Promise<Id[]> {
  const encoded = words.filter((word) => decoded(word) !== undefined);
  const jobs = await inspector.show(queue, encoded);
  const literal = new Set(encoded.filter((_, i) => jobs[i]));
  return words.map((word) => (literal.has(word) ? word : (decoded(word) ?? word)));
}

/** The id that `base64:…` stands for; undefined: the word is no such one. */
export function decoded(word: string): Id | undefined {
  if (!word.startsWith('base64:')) return undefined;
  const base64 = word.slice('base64:'.length);
  const bytes = Buffer.from(base64, 'base64');
  // Node ignores characters that are not base64.
  return bytes.toString('base64') === base64 ? idOf(bytes) : undefined;
}
