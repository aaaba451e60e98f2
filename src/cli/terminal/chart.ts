import type { Span } from '../../internal.js';
import { grouped, many } from './output.js';

const EIGHTHS = ['', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/** The widest that a bar is drawn, columns, with the gap behind it: a few wide ones would not look like bars. */
const MAX_STEP = 6;

/**
 * Draws a bar for the number of jobs in each of `spans`. Returns lines: a title, bars in up to `width` columns and
 * `height` lines, and an axis with `marks` at equal distances. `each` is what one bar stands for, such as "an hour".
 */
export function histogram(
  spans: readonly Span[],
  how: { title: string; each: string; width: number; height: number; marks: readonly string[] },
): string[] {
  const { title, each, width, height, marks } = how;
  const total = spans.reduce((sum, { count }) => sum + count, 0);
  if (total === 0) return [`${title}: nothing`];
  const max = Math.max(...spans.map(({ count }) => count));
  const step = Math.max(1, Math.min(MAX_STEP, Math.floor(width / spans.length)));
  const bar = Math.max(1, step - 1);
  const lines = Array.from({ length: height }, (_, line) => {
    const below = (height - 1 - line) * 8;
    const cells = spans.map(({ count }) => {
      // A count above zero is always visible.
      const filled = count > 0 ? Math.max(1, Math.round((count / max) * height * 8)) : 0;
      const eighths = Math.max(0, Math.min(8, filled - below));
      return (EIGHTHS[eighths] || (line === height - 1 ? '_' : ' ')).repeat(bar).padEnd(step);
    });
    return cells.join('').trimEnd();
  });
  let axis = '';
  for (const [i, mark] of marks.entries()) {
    const column = Math.round((i / (marks.length - 1)) * spans.length * step);
    // The last mark ends where the bars end.
    axis = axis.padEnd(i === marks.length - 1 ? Math.max(axis.length + 1, column - mark.length) : column) + mark;
  }
  return [`${title}: ${many(total, 'job')}, up to ${grouped(max)} in ${each}`, ...lines, axis];
}
