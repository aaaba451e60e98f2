import type { Span } from '../../internal.js';
import { grouped, many } from './output.js';

const EIGHTHS = ['', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/** A bar is no wider than this, so that a few of them still look like bars. */
const WIDEST = 6;

/**
 * Lines that draw how many jobs each of `spans` has, one beside the other in up to `width` columns and `height` lines,
 * with a title above and `marks`, at equal distances, below.
 */
export function histogram(
  spans: readonly Span[],
  how: { title: string; each: string; width: number; height: number; marks: readonly string[] },
): string[] {
  const { title, each, width, height, marks } = how;
  const total = spans.reduce((sum, { count }) => sum + count, 0);
  if (total === 0) return [`${title}: nothing`];
  const most = Math.max(...spans.map(({ count }) => count));
  const step = Math.max(1, Math.min(WIDEST, Math.floor(width / spans.length)));
  const bar = Math.max(1, step - 1);
  const lines = Array.from({ length: height }, (_, line) => {
    const below = (height - 1 - line) * 8;
    const cells = spans.map(({ count }) => {
      // Whatever is there is seen, however little it is.
      const filled = count > 0 ? Math.max(1, Math.round((count / most) * height * 8)) : 0;
      const eighths = Math.max(0, Math.min(8, filled - below));
      return (EIGHTHS[eighths] || (line === height - 1 ? '_' : ' ')).repeat(bar).padEnd(step);
    });
    return cells.join('').trimEnd();
  });
  let axis = '';
  for (const [i, mark] of marks.entries()) {
    const place = Math.round((i / (marks.length - 1)) * spans.length * step);
    // The last one ends where the bars do.
    axis = axis.padEnd(i === marks.length - 1 ? Math.max(axis.length + 1, place - mark.length) : place) + mark;
  }
  return [`${title}: ${many(total, 'job')}, up to ${grouped(most)} in ${each}`, ...lines, axis];
}
