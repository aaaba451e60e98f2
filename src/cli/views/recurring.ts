import { exactDuration, formatTime, many, NO_ATTRIBUTES, type RecurringJob, upcoming } from '../../internal.js';
import { withPayload } from '../lines/drain-line.js';
import { field, orNull, visible } from '../terminal/output.js';
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
  return withPayload(JSON.stringify({ ...more, queue, ...rest, ...own }, orNull), payload);
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
  const limits = Object.entries({
    tries,
    'max-lost': maxLost,
    ttl: ttl && lifetimeText(ttl),
    'once-for': onceFor && exactDuration(onceFor),
    ...attributes,
  }).flatMap(([name, value]) => (value === undefined ? [] : [`${name}=${value}`]));
  const times = (await upcoming(job, SHOWN)).map((ms) => momentOf(ms, now, tz ?? zone));
  const lines = [
    `${queue} ${id}  recurring${paused ? ', paused' : ''}`,
    field('recurs', whenText(job, zone)),
    ...times.map((time, i) => field(i === 0 ? 'next' : '', time)),
    field('missed', missed),
    field('overlap', overlap),
    ...(last === undefined ? [] : [field('last job', last)]),
    ...(limits.length === 0 ? [] : [field('its jobs', limits.join(' '))]),
    field('payload', many(payload.length, 'byte')),
    payload.toString('utf8'),
  ];
  return lines.map((line) => `${visible(line)}\n`).join('');
}
