/** The part of text.js that tests use. */
export function tablesOf(markdown: string): { heading: string; rows: string[][] }[];
