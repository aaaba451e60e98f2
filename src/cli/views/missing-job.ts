import {
  DelayqError,
  formatDuration,
  formatTime,
  type Id,
  type Inspector,
  idWord,
  printable,
  queueWord,
  sampleOf,
  timeOfId,
} from '../../internal.js';
import { grouped } from '../terminal/output.js';
import { timeOf } from './problems.js';

const GONE: Record<string, string> = {
  acked: 'acked',
  removed: 'removed on delivery',
  expired: 'expired',
  cancelled: 'cancelled',
  purged: 'purged',
  moved: 'moved away',
};

const MAX_OTHERS = 200;

/** The error for a job that is not in its queue, with what is known about it. `word`: its id as it was given. */
export async function missingJob(
  inspector: Inspector,
  queue: string,
  { id, word }: { id: Id; word: string },
  zone: string,
): Promise<DelayqError> {
  return new DelayqError('missing', `there is no job ${printable(word)} in ${queue}`, {
    why: (await storyOf(inspector, queue, id, zone)).join('\n'),
    next: `list the jobs: delayq list ${queueWord(queue)}`,
  });
}

/** What is known about a job that is not in its queue, as lines. Only facts: why it is gone is not stored. */
async function storyOf(inspector: Inspector, queue: string, id: Id, zone: string): Promise<string[]> {
  const snapshot = await inspector.inspect(queue);
  const { now, stats, samples } = snapshot;
  const lines: string[] = [];
  const until = await inspector.rememberedUntil(queue, id);
  if (until !== undefined)
    lines.push(
      `its job has ended; the id stays taken until ${formatTime(until, zone)}, for ${formatDuration(until - now)} more` +
        ' (to free it: delayq cancel)',
    );
  if (await inspector.hasPayload(queue, id))
    lines.push('its payload exists without a due time (an orphan): enqueue the same id again to repair it');
  const others = (await inspector.queues()).filter((name) => name !== queue).slice(0, MAX_OTHERS);
  // One at a time: each reply may hold a large payload.
  for (const other of others) {
    const [job] = await inspector.show(other, [id]).catch(() => []);
    if (job) lines.push(`queue ${other} has a job ${printable(idWord(id))}: ${job.state}`);
  }
  const totals = Object.entries(GONE).filter(([name]) => (stats[name] ?? 0) > 0);
  if (totals.length === 0) lines.push('according to its counters, no job has ever left this queue');
  else if (until === undefined)
    lines.push('it left the queue, or never existed: nothing is kept of it (see delayq config: keep-done, events)');
  const made = timeOfId(idWord(id), now);
  if (made !== undefined) {
    lines.push(`its id was created ${formatTime(made, zone)}, ${formatDuration(now - made)} ago`);
    const before = samples.findLast(({ at }) => at <= made);
    if (before) {
      const after = sampleOf(snapshot);
      const more = (name: 'delivered' | 'done' | 'dead') => grouped(after[name] - before[name]);
      const counts = `${more('delivered')} delivered, ${more('done')} done, ${more('dead')} died`;
      lines.push(`since ${timeOf(before.at, now, zone)} in this queue: ${counts}`);
    }
  }
  const left = totals.map(([name, word]) => `${grouped(stats[name] ?? 0)} ${word}`);
  if (left.length > 0) lines.push(`totals of this queue: ${left.join(', ')}`);
  return lines;
}
