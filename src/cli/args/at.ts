import { type Connection, formatDuration, parseAt } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';

/** Reads `--at`, ms by Redis's clock where that matters: the next 14:00 is Redis's next one. A past time is said to be. */
export async function readAt(
  context: Context,
  redis: Connection,
  options: { at?: string; tz?: string },
): Promise<number | undefined> {
  const { at: text } = options;
  if (text === undefined) return undefined;
  // Not sooner: to look up the system's zone takes as long as a third of a whole enqueue.
  const zone = context.zone(options);
  // Read once before Redis is asked for its clock, so that a mistake is told without Redis.
  parseAt(text, { zone, now: Date.now() });
  const now = await redis.now();
  const { ms, past } = parseAt(text, { zone, now });
  if (past) say(context, `${text} was ${formatDuration(now - ms)} ago: due now`);
  return ms;
}
