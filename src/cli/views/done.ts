import { type DoneJob, formatDuration } from '../../internal.js';
import { clip, columns, type Paint, table, visible } from '../terminal/output.js';
import { agoOf } from './jobs.js';

/** A job that is done as a line of JSON, `more` first. */
export const doneJson = (queue: string, job: DoneJob, more: object = {}): string =>
  `${JSON.stringify({ ...more, queue, state: 'done', ...job, result: job.result ?? null })}\n`;

/** The most room for ids where they are cut, and the least room for a result, columns. */
const MAX_ID = 24;
const MIN_RESULT = 16;

/** Formats jobs that are done as rows of a table, cut to `width` columns if given. */
export async function doneTable(
  jobs: readonly DoneJob[],
  {
    now,
    paint,
    first,
    width,
    wholeIds,
  }: { now: number; paint: Paint; first: boolean; width: number | undefined; wholeIds: boolean },
): Promise<string> {
  const cells = jobs.map(({ id, done, attempts, tookMs, by, result = '' }) => [
    wholeIds ? visible(id) : clip(visible(id), MAX_ID),
    agoOf(done, now),
    String(attempts),
    formatDuration(tookMs),
    visible(by),
    visible(result),
  ]);
  const head = ['id', 'done', 'attempts', 'took', 'by', 'result'];
  const wide = (i: number) =>
    Math.max(columns(head[i] as string), ...cells.map((row) => columns(row[i] as string))) + 2;
  const room =
    width === undefined ? undefined : Math.max(MIN_RESULT, width - [0, 1, 2, 3, 4].reduce((n, i) => n + wide(i), 0));
  if (room !== undefined) for (const row of cells) row[5] = clip(row[5] as string, room);
  return table(first ? head.map((name) => paint.underline(name)) : undefined, cells, [0, 4, 5]);
}
