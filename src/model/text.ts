/*
 * Numbers as people are told them.
 */

/** A whole number with thousands separated: 1,234,567. */
export function grouped(n: number): string {
  return n.toString().replace(/\B(?=(\d{3})+$)/g, ',');
}

/** A number of things, in words: 1 job, 2,000 jobs. */
export function many(n: number, thing: string): string {
  return `${grouped(n)} ${n === 1 ? thing : thing.endsWith('s') ? `${thing}es` : `${thing}s`}`;
}
