import { formatDuration, lag, many } from '../../internal.js';
import { grouped, type Paint, type Room, shortened, table, visible } from '../terminal/output.js';
import { bad, late, NONE } from './problems.js';
import type { Row } from './snapshot.js';

/** Formats a queue as a table of its partitions. */
export async function partitionTable(
  { parts }: Row,
  { paint, room }: { readonly paint: Paint; readonly room: Room },
): Promise<string[]> {
  const rows = parts.map(({ index, tag, found }) => {
    const begin = [String(index), shortened(visible(tag), Math.max(12, room.width - 50))];
    if (!found) return [...begin, ...Array.from({ length: 5 }, () => '?')];
    const { pending, due, active, dead } = found;
    const behind = due > 0 ? late(found, formatDuration(lag(found)), paint) : NONE;
    return [...begin, grouped(pending), grouped(due), behind, grouped(active), bad(dead, paint)];
  });
  const shown = rows.length < room.height ? rows : rows.slice(0, room.height - 2);
  const head = ['partition', 'tag', 'pending', 'due', 'lag', 'active', 'dead'].map((name) => paint.underline(name));
  const lines = (await table(head, shown, [1])).split('\n');
  const more = rows.length - shown.length;
  return [...lines, ...(more > 0 ? [`… and ${many(more, 'more partition')}: delayq inspect --partitions | less`] : [])];
}
