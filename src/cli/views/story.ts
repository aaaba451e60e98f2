import { formatDuration, type Inspector, type JobEvent } from '../../internal.js';
import { REASONS } from '../terminal/deaths.js';
import { visible } from '../terminal/output.js';
import { timeOf } from './problems.js';

/** The clock of a producer may differ from that of Redis by so much, ms. */
const SKEW_MS = 60_000;

/** What is kept of what happened to a job; undefined: its queue keeps no events. `made`: when it was made, if known. */
export async function storyOf(
  inspector: Inspector,
  queue: string,
  id: string,
  made?: number,
): Promise<JobEvent[] | undefined> {
  const since = made === undefined ? undefined : Math.max(0, made - SKEW_MS);
  const story: JobEvent[] = [];
  if (!(await inspector.hasEvents(queue))) return undefined;
  for await (const event of inspector.events(queue, { id, since })) story.push(event);
  return story;
}

/** An event as a line: when, what, and what else is known. */
export function storyLine({ at, type, by, attempt, due, reason, error }: JobEvent, now: number, zone: string): string {
  const first = error?.split('\n')[0];
  const parts = [
    attempt !== undefined && `attempt ${attempt}`,
    by !== undefined && `by ${by}`,
    due !== undefined && dueWords(type, due - at),
    reason !== undefined && (REASONS[reason] ?? reason),
    first,
  ];
  const more = parts.filter(Boolean).join(', ');
  return `${timeOf(at, now, zone)}  ${type}${more && `: ${visible(more)}`}`;
}

function dueWords(type: JobEvent['type'], ms: number): string {
  const wasDue = type === 'delivered' || type === 'removed' || type === 'lost' || type === 'expired';
  if (wasDue) return `${formatDuration(Math.max(0, -ms))} late`;
  return ms <= 0 ? 'due now' : `due in ${formatDuration(ms)}`;
}
