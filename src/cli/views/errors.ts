import { type ErrorGroup, idWord } from '../../internal.js';
import { clip, columns, grouped, orNull, type Paint, table, visible } from '../terminal/output.js';
import { agoOf } from './jobs.js';

/** Lines that each group takes. */
export const GROUP_LINES = 2;

/** The least room for an error, columns. */
const MIN_ERROR = 24;

/** Formats a group as a line of JSON. Missing values are null. */
export function groupJson(queue: string, { samples, ...group }: ErrorGroup): string {
  return `${JSON.stringify({ queue, ...group, samples: samples.map(idWord) }, orNull)}\n`;
}

/** Formats groups as a table of `width` columns, if given: a row for each, and below it the ids of some of its jobs. */
export async function groupTable(
  groups: readonly ErrorGroup[],
  { now, paint, width = Number.POSITIVE_INFINITY }: { now: number; paint: Paint; width: number | undefined },
): Promise<string> {
  const when = (ms: number | undefined) => (ms === undefined ? 'unknown' : agoOf(ms, now));
  const head = ['waiting', 'dead', 'first', 'last'];
  const counts = groups.map(({ waiting, dead, first, last }) => [
    grouped(waiting),
    grouped(dead),
    when(first),
    when(last),
  ]);
  const widest = (i: number) => Math.max(...[head, ...counts].map((row) => columns(row[i] as string)));
  const taken = head.reduce((sum, _, i) => sum + widest(i) + 2, 0);
  const room = Math.max(MIN_ERROR, width - taken);
  const rows = groups.flatMap(({ kind, samples }, i) => [
    [...(counts[i] as string[]), clip(kind === undefined ? 'no error is stored' : visible(kind), room)],
    [...head.map(() => ''), paint.dim(clip(samples.map((id) => visible(idWord(id))).join(' '), room))],
  ]);
  const names = [...head, 'error'].map((name) => paint.underline(name));
  return table(names, rows, [head.length]);
}
