import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { exactDuration, instantsOf, parseDuration, zoneOffset } from '../model/time.js';

/** The times at which a recurring job occurs. All are whole seconds, as ms since 1970. */
export interface Occurrences {
  /** The first one after `ms`; undefined: there is none any more. */
  after(ms: number): number | undefined;
}

/** The nicknames of expressions in other crons. */
const NICKNAMES: Readonly<Record<string, string>> = {
  '@hourly': '0 * * * *',
  '@daily': '0 0 * * *',
  '@midnight': '0 0 * * *',
  '@weekly': '0 0 * * 0',
  '@monthly': '0 0 1 * *',
  '@yearly': '0 0 1 1 *',
  '@annually': '0 0 1 1 *',
};

const FIELDS = ['second', 'minute', 'hour', 'day', 'month', 'weekday'];

/** The shortest interval, ms: ids have whole seconds. */
const SHORTEST_MS = 1_000;

/** Longer than any change of a clock, ms. */
const LONGEST_SHIFT_MS = 3 * 3_600_000;

/**
 * Converts user input to the stored form: `every MS` for a duration such as `15m`, or the cron expression, unchecked.
 * Throws `usage` for a duration below a second.
 */
export function specOf(text: string): string {
  const words = text.trim().replace(/\s+/g, ' ');
  const interval = words.replace(/^@every /, '');
  if (!/^[\d.]+[a-z][\d.a-z]*$/.test(interval) && interval === words) return words;
  const ms = parseDuration(interval);
  if (ms >= SHORTEST_MS && ms % 1_000 === 0) return `every ${ms}`;
  throw new DelayqError('usage', `a job cannot recur every ${printable(interval)}`, {
    why: 'the interval must be whole seconds, at least one',
    next: 'write it as 1s, 90s, 15m, 6h or 1d',
  });
}

/** The reverse of {@link specOf}. */
export const specText = (spec: string) => (/^every \d+$/.test(spec) ? exactDuration(Number(spec.slice(6))) : spec);

/** Whether a stored form is an interval, which has no time zone. */
export const isInterval = (spec: string) => spec.startsWith('every ');

/** A cache: parsing an expression takes longer than finding its next time. */
const known = new Map<string, Occurrences>();
const MAX_KNOWN = 1_000;

/**
 * The occurrences of a stored form: an interval counts from `created`; a cron expression follows the clocks in the zone
 * `tz`. Throws `usage` for an invalid expression or zone.
 */
export async function occurrencesOf(spec: string, tz: string, created: number): Promise<Occurrences> {
  if (!isInterval(spec)) {
    const key = `${tz} ${spec}`;
    const found = known.get(key) ?? (await cronOccurrences(spec, tz));
    if (known.size >= MAX_KNOWN) known.clear();
    known.set(key, found);
    return found;
  }
  const [interval, start] = [Number(spec.slice(6)), Math.floor(created / 1_000) * 1_000];
  if (!(interval >= SHORTEST_MS)) throw notExpression(spec, 'the interval is not a number of ms');
  return { after: (ms) => start + interval * Math.max(1, Math.floor((ms - start) / interval) + 1) };
}

/**
 * croner gets local times as if they were UTC; this function handles changes of the clocks.
 *
 * - Expressions that name their hours: a skipped time occurs just after, once; a repeated time only the first time.
 * - With `*` or a step in the hours: whenever clocks show the time. With a step, a skipped time occurs just after.
 */
async function cronOccurrences(spec: string, tz: string): Promise<Occurrences> {
  const name = spec.toLowerCase();
  const fields = ((Object.hasOwn(NICKNAMES, name) && NICKNAMES[name]) || spec).split(' ');
  if (fields.length !== 5 && fields.length !== 6) throw notExpression(spec, faultOf(fields));
  const hours = fields.at(-4) as string;
  const isHourly = /^\*(\/1)?$/.test(hours);
  const isRepeated = isHourly || hours.includes('/');
  zoneOffset(tz, 0);
  const { Cron } = await import('croner');
  const read = (parts: readonly string[]) =>
    new Cron(parts.join(' '), { utcOffset: 0, paused: true, mode: '5-or-6-parts' });
  let cron: InstanceType<typeof Cron>;
  try {
    cron = read(fields);
  } catch (cause) {
    throw notExpression(spec, badField(fields, read) ?? reasonOf(cause), cause);
  }
  const next = (wall: number) => cron.nextRun(new Date(wall))?.getTime();

  /** When clocks show `wall`: once or twice, or, if it is skipped, at the end of the gap. */
  const instants = (wall: number) => {
    const found = instantsOf(tz, wall);
    if (found.length === 0) return isHourly ? [] : [changeAfter(wall - zoneOffset(tz, wall + 86_400_000))];
    return isRepeated ? found : found.slice(0, 1);
  };
  /** The next change of the clocks after `ms`, within {@link LONGEST_SHIFT_MS}; there must be one. */
  const changeAfter = (ms: number) => {
    let [before, after] = [ms, ms + LONGEST_SHIFT_MS];
    const offset = zoneOffset(tz, before);
    while (after - before > 1_000) {
      const middle = Math.floor((before + after) / 2_000) * 1_000;
      if (zoneOffset(tz, middle) === offset) before = middle;
      else after = middle;
    }
    return after;
  };
  const nextAfter = (wall: number, ms: number): number | undefined => {
    for (let at = next(wall); at !== undefined; at = next(at)) {
      const first = instants(at).find((instant) => instant > ms);
      if (first !== undefined) return first;
    }
    return undefined;
  };
  return {
    after: (ms) => {
      const offset = zoneOffset(tz, ms);
      const found = nextAfter(ms + offset, ms);
      if (!isRepeated) return found;
      // Clocks are about to go back: these hours repeat before any later time.
      if (zoneOffset(tz, ms + LONGEST_SHIFT_MS) >= offset) return found;
      const change = changeAfter(ms);
      const again = nextAfter(change + zoneOffset(tz, change) - 1, change - 1);
      return again === undefined || (found !== undefined && found < again) ? found : again;
    },
  };
}

/** Why text with this number of fields is no cron expression. */
function faultOf(fields: readonly string[]): string {
  if (fields[0]?.startsWith('@')) return `there is no ${fields[0]}`;
  return `it has ${fields.length} ${fields.length === 1 ? 'field' : 'fields'}, and needs 5, or 6 with seconds`;
}

/** croner's message. It numbers the fields from 0, seconds first, and writes days and months as numbers. */
function reasonOf(cause: unknown): string {
  const text = (cause as Error).message.replace(/^CronPattern: (Syntax error, )?/, '');
  return text.replace(/^configuration entry .*/, 'it cannot be read; days are sun to sat, months jan to dec');
}

/** The first invalid field, as it was written, and why; undefined: each field alone is valid. */
function badField(fields: readonly string[], read: (fields: readonly string[]) => unknown): string | undefined {
  for (const [i, field] of fields.entries()) {
    try {
      read(fields.map((_, j) => (j === i ? field : '*')));
    } catch (cause) {
      return `${FIELDS.at(i - fields.length)} ${field}: ${reasonOf(cause)}`;
    }
  }
  return undefined;
}

function notExpression(spec: string, why: string, cause?: unknown): DelayqError {
  return new DelayqError('usage', `${printable(spec)} is not a time to recur at`, {
    why: printable(why, 120).slice(1, -1),
    next: "write a cron expression, minute hour day month weekday: '0 9 * * 1-5'; or an interval: 15m",
    cause,
  });
}
