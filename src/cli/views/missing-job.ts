import {
  formatDuration,
  formatTime,
  type Id,
  type Inspector,
  idWord,
  printable,
  sampleOf,
  timeOfId,
} from '../../internal.js';
import { grouped } from '../terminal/output.js';
import { timeOf } from './problems.js';

/** Counters of jobs that are no longer there, and what became of them in words. */
const GONE: Record<string, string> = {
  acked: 'acked',
  removed: 'removed as they were taken',
  expired: 'expired',
  cancelled: 'cancelled',
  purged: 'purged',
  moved: 'moved away',
};

/** Other queues that are searched for an id. */
const ELSEWHERE = 200;

/** What can be said of a job that is not in its queue, a line each: facts, from which nobody needs to conclude too much. */
export async function storyOf(inspector: Inspector, queue: string, id: Id, zone: string): Promise<string[]> {
  const snapshot = await inspector.inspect(queue);
  const { now, stats, samples } = snapshot;
  const lines: string[] = [];
  if (await inspector.hasPayload(queue, id))
    lines.push('its payload is there, but no due time: an orphan. Enqueuing this id anew mends it');
  const others = (await inspector.queues()).filter((name) => name !== queue).slice(0, ELSEWHERE);
  // One after the other: each comes with its payload.
  for (const other of others) {
    const [job] = await inspector.show(other, [id]).catch(() => []);
    if (job) lines.push(`a job ${printable(idWord(id))} is in ${other}: ${job.state}`);
  }
  const totals = Object.entries(GONE).filter(([name]) => (stats[name] ?? 0) > 0);
  if (totals.length === 0) lines.push('by its counters no job has ever left this queue');
  else lines.push('it has left, or was never there: jobs that are done, cancelled or moved are not kept');
  const made = timeOfId(idWord(id), now);
  if (made !== undefined) {
    lines.push(`its id says that it was made ${formatTime(made, zone)}, ${formatDuration(now - made)} ago`);
    const before = samples.findLast(({ at }) => at <= made);
    if (before) {
      const after = sampleOf(snapshot);
      const [delivered, done, dead] = (['delivered', 'done', 'dead'] as const).map(
        (name) => after[name] - before[name],
      );
      const counts = `${grouped(delivered ?? 0)} were delivered, ${grouped(done ?? 0)} done, ${grouped(dead ?? 0)} died`;
      lines.push(`since ${timeOf(before.at, now, zone)} of the jobs of this queue ${counts}`);
    }
  }
  if (totals.length > 0)
    lines.push(
      `in all, of this queue: ${totals.map(([name, word]) => `${grouped(stats[name] ?? 0)} ${word}`).join(', ')}`,
    );
  return lines;
}
