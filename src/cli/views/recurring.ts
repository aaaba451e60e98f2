import { exactDuration, formatTime, NO_ATTRIBUTES, type RecurringJob, upcoming } from '../../internal.js';
import { withPayload } from '../lines/drain-line.js';
import { visible } from '../terminal/output.js';
import { lifetimeText } from './jobs.js';
import { momentOf } from './problems.js';

/** How many of the next occurrences are shown. */
export const SHOWN = 3;

/**
 * Formats a recurring job as a JSON object, `more` first, its payload unchanged at the end. Missing values are null, but
 * missing attributes are left out. Times are ms since 1970.
 */
export function recurringJson(queue: string, job: RecurringJob, more: object = {}): Buffer {
  const { payload, attributes, ...rest } = job;
  const own = attributes === NO_ATTRIBUTES ? undefined : { attributes };
  const head = JSON.stringify({ ...more, queue, ...rest, ...own }, (_, value) => value ?? null);
  return withPayload(head, payload);
}

/** When a recurring job recurs, in words. */
export function whenText({ when, tz, created }: RecurringJob, zone: string): string {
  return tz === undefined ? `every ${when}, from ${formatTime(created, zone)}` : `${when}, in ${tz}`;
}

/** A recurring job as lines. */
export async function recurringText(
  queue: string,
  job: RecurringJob,
  { zone, now }: { zone: string; now: number },
): Promise<string> {
  const { id, tz, missed, overlap, paused, last, tries, maxLost, ttl, onceFor, attributes, payload } = job;
  const line = (name: string, value: string) => `  ${name.padEnd(10)}  ${visible(value)}\n`;
  const limits = [
    ...(tries === undefined ? [] : [`tries=${tries}`]),
    ...(maxLost === undefined ? [] : [`max-lost=${maxLost}`]),
    ...(ttl === undefined ? [] : [`ttl=${lifetimeText(ttl)}`]),
    ...(onceFor === undefined ? [] : [`once-for=${exactDuration(onceFor)}`]),
    ...Object.entries(attributes).map(([name, value]) => `${name}=${value}`),
  ];
  const times = (await upcoming(job, SHOWN)).map((ms) => momentOf(ms, now, tz ?? zone));
  let text = `${queue} ${visible(id)}  recurring${paused ? ', paused' : ''}\n`;
  text += line('recurs', whenText(job, zone));
  text += times.map((time, i) => line(i === 0 ? 'next' : '', time)).join('');
  text += line('missed', missed) + line('overlap', overlap);
  if (last !== undefined) text += line('last job', last);
  if (limits.length > 0) text += line('its jobs', limits.join(' '));
  return `${text}${line('payload', `${payload.length} bytes`)}${visible(payload.toString('utf8'))}\n`;
}
