import { DelayqError } from './errors.js';

const UNIT_MS: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 604_800_000,
};

/** The longest duration, ms: with at most 100 years, all sums of times are exact in a double and in Redis's scores. */
export const LONGEST_MS = 100 * 365 * 86_400_000;

function badTime(what: string, why: string, next: string): DelayqError {
  return new DelayqError('usage', what, { why, next });
}

/**
 * Parses a duration such as `500ms`, `90s`, `15m`, `1h30m`, `2d` or `1w`: units from large to small, each at most once.
 * Returns whole milliseconds. Throws `usage` for anything else, also for a number without a unit.
 */
export function parseDuration(text: string): number {
  const bad = (why: string) =>
    badTime(`"${text}" is not a duration`, why, 'write it as 500ms, 90s, 15m, 1h30m, 2d or 1w');
  if (/^\d+(\.\d+)?$/.test(text)) throw bad('it has no unit');
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdw])/gy)];
  const read = parts.reduce((length, part) => length + part[0].length, 0);
  if (parts.length === 0 || read !== text.length) throw bad('it must be numbers with units');
  let total = 0;
  let previous = Number.POSITIVE_INFINITY;
  for (const [, number, unit] of parts as unknown as [string, string, string][]) {
    const size = UNIT_MS[unit] as number;
    if (size >= previous) throw bad('units must go from large to small, each at most once');
    previous = size;
    total += Number(number) * size;
  }
  if (total > LONGEST_MS) throw bad('it is longer than 100 years');
  return Math.round(total);
}

/** Formats a duration in ms for people, with its two largest units: `850ms`, `4m 12s`, `2d 3h`. */
export function formatDuration(ms: number): string {
  const rest = Math.max(0, Math.round(ms));
  if (rest < 1_000) return `${rest}ms`;
  if (rest < 10_000) return `${(Math.floor(rest / 100) / 10).toString()}s`;
  const units = unitsOf(rest).slice(0, -1);
  const first = units.findIndex(([count]) => count > 0);
  return joined(units.slice(first, first + 2), ' ');
}

/** Formats a duration in ms exactly, so that {@link parseDuration} can read it: `0s`, `1h30m`, `1.5s`, `500ms`. */
export function exactDuration(ms: number): string {
  const whole = Math.round(ms);
  const fine = whole % 60_000;
  return joined([...unitsOf(whole).slice(0, 3), fine < 1_000 ? [fine, 'ms'] : [fine / 1_000, 's']], '') || '0s';
}

/** The days, hours, minutes, seconds and ms of a duration. */
function unitsOf(ms: number): [count: number, unit: string][] {
  return [
    [Math.floor(ms / 86_400_000), 'd'],
    [Math.floor(ms / 3_600_000) % 24, 'h'],
    [Math.floor(ms / 60_000) % 60, 'm'],
    [Math.floor(ms / 1_000) % 60, 's'],
    [ms % 1_000, 'ms'],
  ];
}

function joined(units: [count: number, unit: string][], separator: string): string {
  return units.flatMap(([count, unit]) => (count > 0 ? `${count}${unit}` : [])).join(separator);
}

/** The IANA name of the system's time zone. */
export function systemZone(): string {
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** Throws `usage` if `zone` is not an IANA time zone: Date would silently use UTC. */
function zoneFormat(zone: string): Intl.DateTimeFormat {
  let format = formats.get(zone);
  if (format) return format;
  try {
    format = new Intl.DateTimeFormat('en-US', {
      timeZone: zone,
      hourCycle: 'h23',
      year: 'numeric',
      month: 'numeric',
      day: 'numeric',
      hour: 'numeric',
      minute: 'numeric',
      second: 'numeric',
    });
  } catch (cause) {
    throw new DelayqError('usage', `"${zone}" is not a time zone`, {
      why: 'the IANA time zone database has no such name',
      next: 'set --tz (or DELAYQ_TZ, TZ) to a name such as Europe/Berlin or UTC',
      cause,
    });
  }
  formats.set(zone, format);
  return format;
}

/** Returns how far local time in `zone` is ahead of UTC at the instant `ms`, in ms. */
function zoneOffset(zone: string, ms: number): number {
  const parts: Record<string, number> = {};
  for (const { type, value } of zoneFormat(zone).formatToParts(ms)) parts[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1_000) * 1_000;
}

/** Returns the instants (none, one or two) at which clocks in `zone` show the local time `wall`, encoded as UTC. */
function instantsOf(zone: string, wall: number): number[] {
  // Offsets change at most once in two days, so the offsets of the day before and after are the only candidates.
  const offsets = new Set([zoneOffset(zone, wall - 86_400_000), zoneOffset(zone, wall + 86_400_000)]);
  return [...offsets]
    .map((offset) => wall - offset)
    .filter((instant) => instant + zoneOffset(zone, instant) === wall)
    .sort((a, b) => a - b);
}

/** Formats an instant as local time in `zone` with its offset: `2026-11-21 14:00:00 +01:00`. */
export function formatTime(ms: number, zone: string): string {
  const offset = zoneOffset(zone, ms);
  const minutes = Math.abs(Math.round(offset / 60_000));
  const two = (n: number) => String(n).padStart(2, '0');
  const wall = new Date(ms + offset).toISOString().slice(0, 19).replace('T', ' ');
  return `${wall} ${offset < 0 ? '-' : '+'}${two(Math.floor(minutes / 60))}:${two(minutes % 60)}`;
}

const WALL = /^(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,9}))?)?(Z|[+-]\d\d:\d\d)?$/i;
const CLOCK = /^(\d\d?):(\d\d)(?::(\d\d))?$/;

/**
 * Parses a point in time: RFC 3339 (`2026-11-21T14:00:00+01:00`), seconds since 1970 (`@1795266000`), a local time
 * (`2026-11-21 14:00`) or a time of day (`14:00`: its next occurrence), the last two in `zone`. `past`: it is before
 * `now`. Throws `usage` for anything else, and for a local time that a clock change skips or repeats.
 */
export function parseAt(text: string, { zone, now }: { zone: string; now: number }) {
  const bad = (why: string, next = 'write it as 2026-11-21T14:00:00+01:00, "2026-11-21 14:00", 14:00 or @1795266000') =>
    badTime(`"${text}" is not a time`, why, next);
  const instant = (ms: number) => ({ ms, past: ms < now });

  const epoch = /^@(\d{1,11}(?:\.\d{1,3})?)$/.exec(text);
  if (epoch) return instant(Math.round(Number(epoch[1]) * 1_000));
  if (text.startsWith('@')) throw bad('@ must be followed by seconds since 1970', 'write it as @1795266000');
  if (/^\d+$/.test(text))
    throw bad(
      'a bare number could be seconds, milliseconds, a year or an hour',
      `write @${text} for seconds since 1970, or 14:00 for a time of day`,
    );
  if (/^\d{4}-\d\d(-\d\d)?$/.test(text))
    throw bad('it has no time of day', `write "${text.length === 10 ? text : `${text}-01`} 09:00"`);

  const clock = CLOCK.exec(text);
  if (clock) return instant(nextOccurrence(text, clock, zone, now, bad));

  const match = WALL.exec(text);
  if (!match) throw bad('the format is not known');
  const [, year, month, day, hour, minute, second = '0', fraction = '0', offset] = match as unknown as string[];
  const wall =
    wallTime([year, month, day, hour, minute, second].map(Number), bad) + Math.floor(Number(`0.${fraction}`) * 1_000);
  if (offset === undefined) return instant(onlyInstant(text, wall, zone));
  if (offset.toUpperCase() === 'Z') return instant(wall);
  const [hours, minutes] = offset.slice(1).split(':').map(Number) as [number, number];
  if (hours > 23 || minutes > 59) throw bad('there is no such UTC offset');
  return instant(wall - (offset.startsWith('-') ? -1 : 1) * (hours * 60 + minutes) * 60_000);
}

/**
 * Parses a limit of a time range, ms: `-2h` and `+15m` from now, `now`, a time of day (today, in `zone`), or anything
 * that {@link parseAt} accepts. Throws `usage` for anything else.
 */
export function parseMoment(text: string, { zone, now }: { zone: string; now: number }): number {
  if (text === 'now') return now;
  if (/^[-+]/.test(text)) return now + (text.startsWith('-') ? -1 : 1) * parseDuration(text.slice(1));
  const clock = CLOCK.test(text) ? text.replace(/^\d:/, '0$&') : undefined;
  return parseAt(clock ? `${formatTime(now, zone).slice(0, 10)} ${clock}` : text, { zone, now }).ms;
}

/** Returns a calendar date and time, taken as UTC, in ms. Throws `bad` for 31 February or 25:00. */
function wallTime(fields: number[], bad: (why: string) => DelayqError): number {
  const [year = 0, month = 0, day = 0, hour = 0, minute = 0, second = 0] = fields;
  const ms = Date.UTC(year, month - 1, day, hour, minute, second);
  const date = new Date(ms);
  const same = date.getUTCMonth() === month - 1 && date.getUTCDate() === day && date.getUTCHours() === hour;
  if (!same || minute > 59 || second > 59) throw bad('there is no such date or time of day');
  return ms;
}

/** Returns the only instant at which clocks in `zone` show `wall`. Throws `usage` if there are none or two. */
function onlyInstant(text: string, wall: number, zone: string): number {
  const found = instantsOf(zone, wall - (wall % 1_000)).map((ms) => ms + (wall % 1_000));
  if (found.length === 1) return found[0] as number;
  const rfc3339 = (ms: number) => formatTime(ms, zone).replace(' ', 'T').replace(' ', '');
  const what = `"${text}" is not one point in time in ${zone}`;
  if (found.length === 0) {
    const after = rfc3339(wall - zoneOffset(zone, wall));
    throw badTime(what, 'a clock change skips it there that day', `write a time that exists, for example ${after}`);
  }
  const choices = found.map(rfc3339).join(' or ');
  throw badTime(what, 'a clock change repeats it there that day', `add the offset: ${choices}`);
}

/** Returns the first instant after `now` at which clocks in `zone` show the time of day `clock`. */
function nextOccurrence(
  text: string,
  clock: RegExpExecArray,
  zone: string,
  now: number,
  bad: (why: string) => DelayqError,
): number {
  const today = new Date(now + zoneOffset(zone, now));
  const time = [clock[1], clock[2], clock[3] ?? '0'].map(Number);
  for (const days of [0, 1]) {
    const date = new Date(Date.UTC(today.getUTCFullYear(), today.getUTCMonth(), today.getUTCDate() + days));
    const wall = wallTime([date.getUTCFullYear(), date.getUTCMonth() + 1, date.getUTCDate(), ...time], bad);
    // A repeated time that has passed once will come again, so skip only a time that has passed for good.
    if (instantsOf(zone, wall).every((ms) => ms <= now) && days === 0 && wall <= today.getTime()) continue;
    return onlyInstant(text, wall, zone);
  }
  throw bad('it does not occur within a day');
}
