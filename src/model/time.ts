import { DelayqError } from './errors.js';

const DAY_MS = 86_400_000;

const UNIT_MS: Record<string, number> = {
  ms: 1,
  s: 1_000,
  m: 60_000,
  h: 3_600_000,
  d: DAY_MS,
  w: 604_800_000,
};

/** The longest duration, ms: with at most 100 years, all sums of times are exact in a double and in Redis's scores. */
export const LONGEST_MS = 100 * 365 * DAY_MS;

/**
 * Parses a duration such as `500ms`, `90s`, `15m`, `1h30m`, `2d` or `1w`: units from large to small, each at most once.
 * Returns whole milliseconds. Throws `usage` for anything else, also for a number without a unit.
 */
export function parseDuration(text: string): number {
  const bad = (why: string, next = 'write it as 500ms, 90s, 15m, 1h30m, 2d or 1w') =>
    new DelayqError('usage', `"${text}" is not a duration`, { why, next });
  if (/^-\d/.test(text)) throw bad('it is negative');
  if (/^0+$/.test(text)) throw bad('it has no unit', 'write 0s');
  if (/^\d+(\.\d+)?$/.test(text)) throw bad('it has no unit', `write ${text}s, ${text}m or ${text}h, as one word`);
  const parts = [...text.matchAll(/(\d+(?:\.\d+)?)(ms|[smhdw])/gy)];
  const read = parts.reduce((length, part) => length + part[0].length, 0);
  if (parts.length === 0 || read !== text.length) throw bad(...misread(text));
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

const SHORT = /^([\d.]+(ms|[smhdw]))+$/;

/** `text` with the units in the form of {@link parseDuration}: 5m for "5 minutes". */
function shortUnits(text: string): string {
  const words =
    /(\d) *(ms|msecs?|milliseconds?|s|sec(?:ond)?s?|m|min(?:ute)?s?|h|hrs?|hours?|d|days?|w|weeks?)(?![a-z]) */g;
  return text.replace(words, (_, digit, word) => digit + (/^m(s|illi)/.test(word) ? 'ms' : word.charAt(0)));
}

/** Why a text is no duration, and what to write. */
function misread(text: string): [why: string, next?: string] {
  const short = shortUnits(text);
  if (SHORT.test(short)) return ['its units are not in the short form', `write ${short}`];
  const [, unit] = /^[\d.]+ *([a-z]+)$/i.exec(text) ?? [];
  if (unit) return [`there is no unit ${unit}`, 'the units are ms, s, m (minutes), h, d and w: 90s, 1h30m, 2d'];
  return ['it must be numbers with units'];
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
    [Math.floor(ms / DAY_MS), 'd'],
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
  const { timeZone } = Intl.DateTimeFormat().resolvedOptions();
  // As POSIX has it for a TZ that is empty, or names no file.
  return timeZone && timeZone !== 'Etc/Unknown' ? timeZone : 'UTC';
}

/** What to do about a name that is no time zone. */
export const ZONE_ADVICE = 'give the name of a time zone, such as Europe/Berlin or UTC';

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
      next: ZONE_ADVICE,
      cause,
    });
  }
  formats.set(zone, format);
  return format;
}

/** Returns how far local time in `zone` is ahead of UTC at the instant `ms`, in ms. */
export function zoneOffset(zone: string, ms: number): number {
  const parts: Record<string, number> = {};
  for (const { type, value } of zoneFormat(zone).formatToParts(ms)) parts[type] = Number(value);
  const { year = 0, month = 1, day = 1, hour = 0, minute = 0, second = 0 } = parts;
  return Date.UTC(year, month - 1, day, hour, minute, second) - Math.floor(ms / 1_000) * 1_000;
}

/** Returns the instants (none, one or two) at which clocks in `zone` show the local time `wall`, encoded as UTC. */
export function instantsOf(zone: string, wall: number): number[] {
  // Offsets change at most once in two days, so the offsets of the day before and after are the only candidates.
  const offsets = new Set([zoneOffset(zone, wall - DAY_MS), zoneOffset(zone, wall + DAY_MS)]);
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

const OFFSET = /^(\d{4}-\d\d-\d\d[t ]\d\d:\d\d.*?) ?(?:z|([+-])(\d\d):(\d\d))$/i;

const NEAR_DAYS = ['yesterday', 'today', 'tomorrow'];

/** 14:00, or 14:00:30.5, perhaps after yesterday, today, tomorrow or a date. */
const LOCAL = /^(?:(\d{4})-(\d\d)-(\d\d)[t ]|(yesterday|today|tomorrow) )?(\d\d?):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?$/;

function notTime(
  text: string,
  why: string,
  next = 'write it as 14:00, "tomorrow 9:00", "2026-11-21 14:00" or "now + 15m"',
): DelayqError {
  return new DelayqError('usage', `"${text}" is not a time`, { why, next });
}

/**
 * Parses a point in time: RFC 3339 (`2026-11-21T14:00:00+01:00`), seconds since 1970 (`@1795266000`), `now + 15m`, or a
 * local time in `zone`: `2026-11-21 14:00`, `tomorrow 9:00`, or `14:00`, which means the next one. Forms with an offset,
 * `@` and `now` mean the same in every zone. `past`: it is before `now`. Throws `usage` for anything else, and for a
 * local time that a clock change skips or repeats.
 */
export function parseAt(text: string, { zone, now }: { zone: string; now: number }) {
  const ms = instantOf(text, zone, now, true);
  return { ms, past: ms < now };
}

/**
 * Parses a limit of a time range, ms: `-2h` and `+15m` from now, a time of day (today, in `zone`), or anything that
 * {@link parseAt} accepts. Throws `usage` for anything else.
 */
export function parseMoment(text: string, { zone, now }: { zone: string; now: number }): number {
  if (/^[-+]/.test(text)) return now + (text.startsWith('-') ? -1 : 1) * parseDuration(text.slice(1));
  return instantOf(text, zone, now, false);
}

/** `isNext`: a time of day that has passed today means tomorrow's. */
function instantOf(text: string, zone: string, now: number, isNext: boolean): number {
  const epoch = /^@(\d{1,11}(?:\.\d{1,3})?)$/.exec(text);
  if (epoch) return Math.round(Number(epoch[1]) * 1_000);
  if (text.startsWith('@')) throw notTime(text, '@ must be followed by seconds since 1970', 'write it as @1795266000');
  if (/^\d+$/.test(text))
    throw notTime(
      text,
      'a bare number could be seconds, milliseconds, a year or an hour',
      `write @${text} for seconds since 1970, or 14:00 for a time of day`,
    );
  const [isNow, sign, length] = /^now(?: ?([-+]) ?(.+))?$/i.exec(text) ?? [];
  if (isNow) return length ? now + (sign === '-' ? -1 : 1) * parseDuration(shortUnits(length)) : now;
  const [, absolute, ahead, hours = 0, minutes = 0] = OFFSET.exec(text) ?? [];
  if (Number(hours) > 23 || Number(minutes) > 59) throw notTime(text, 'there is no such UTC offset');
  const duration = absolute ? '' : shortUnits(text.replace(/^(in |\+)/i, ''));
  if (SHORT.test(duration)) throw notTime(text, 'it is a duration', `write "now + ${duration}"`);
  // Only called if needed: to look up the offset of a zone is slow.
  const local = () => now + zoneOffset(zone, now);
  const { wall, isDaily } = localTime(absolute ?? text, local);
  if (absolute) return wall - Number(`${ahead ?? ''}1`) * (Number(hours) * 60 + Number(minutes)) * 60_000;
  // A repeated time that has passed once will come again, so skip only a time that has passed for good.
  const hasPassed = () => wall <= local() && instantsOf(zone, wall).every((ms) => ms <= now);
  return onlyInstant(text, isNext && isDaily && hasPassed() ? wall + DAY_MS : wall, zone);
}

/**
 * The local time that `text` means when it is `now()` there, as if local time were UTC. `isDaily`: it names no day, and
 * is today's.
 */
function localTime(text: string, now: () => number): { wall: number; isDaily: boolean } {
  const found = LOCAL.exec(text.toLowerCase().trim().replace(/\s+/g, ' '));
  if (!found) throw notTime(text, 'the format is not known');
  const [, year, month, day, near, hours, minutes, seconds = '0'] = found;
  const [h, m, s] = [Number(hours), Number(minutes), Number(seconds)];
  const today = () => Math.floor(now() / DAY_MS) * DAY_MS;
  const date = year
    ? Date.UTC(Number(year), Number(month) - 1, Number(day))
    : today() + (near ? NEAR_DAYS.indexOf(near) - 1 : 0) * DAY_MS;
  const isDate = !year || new Date(date).toISOString().startsWith(`${year}-${month}-${day}`);
  if (!isDate || h > 23 || m > 59 || s >= 60) throw notTime(text, 'there is no such date or time of day');
  return { wall: date + h * 3_600_000 + m * 60_000 + Math.floor(s * 1_000), isDaily: !year && !near };
}

/**
 * Parses a time that is the same everywhere, ms: RFC 3339 (`2026-11-21T14:00:00+01:00`, `2026-11-21T13:00:00Z`) or
 * seconds since 1970 (`@1795266000`). Throws `usage` for anything else, also for a local time.
 */
export function parseInstant(text: string): number {
  const bad = (why: string) =>
    notTime(text, why, 'write it as 2026-11-21T13:00:00Z or 2026-11-21T14:00:00+01:00, or give a Date');
  if (!text.startsWith('@') && !OFFSET.test(text)) throw bad('it must be a date and a time of day with an offset or Z');
  try {
    return instantOf(text, 'UTC', 0, false);
  } catch (error) {
    throw bad((error as DelayqError).why ?? 'it cannot be read');
  }
}

/** Returns the only instant at which clocks in `zone` show `wall`. Throws `usage` if there are none or two. */
function onlyInstant(text: string, wall: number, zone: string): number {
  const found = instantsOf(zone, wall - (wall % 1_000)).map((ms) => ms + (wall % 1_000));
  if (found.length === 1) return found[0] as number;
  const rfc3339 = (ms: number) => formatTime(ms, zone).replace(' ', 'T').replace(' ', '');
  const bad = (why: string, next: string) =>
    new DelayqError('usage', `"${text}" is not one point in time in ${zone}`, { why, next });
  if (found.length === 0) {
    const after = rfc3339(wall - zoneOffset(zone, wall));
    throw bad('a clock change skips it there that day', `write a time that exists, for example ${after}`);
  }
  const choices = found.map(rfc3339).join(' or ');
  throw bad('a clock change repeats it there that day', `add the offset: ${choices}`);
}

/**
 * Returns the result of `call`; undefined if there is none within `ms`. With 0 only if there is one already. In a process
 * that has stood still, what has come meanwhile is read first.
 */
export async function within<T>(ms: number, call: Promise<T>): Promise<T | undefined> {
  if (ms === Number.POSITIVE_INFINITY) return call;
  if (ms === 0) return Promise.race([call, undefined]);
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(() => setImmediate(() => resolve(undefined)), ms);
  });
  return Promise.race([call, late]).finally(() => clearTimeout(timer));
}

/** The longest delay that Node's timers accept, ms. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** A clock and its timers. What decides by time is given one, so that a test can move the time itself. */
export interface Clock {
  /** Returns the time, ms: it never goes back. Only differences mean anything. */
  now(): number;
  /**
   * Calls `act` after `ms`, at most {@link LONGEST_TIMER_MS}, unless the returned function is called before that. Without
   * `ref`, the timer does not keep the process alive.
   */
  after(ms: number, act: () => void, options?: { readonly ref?: boolean }): () => void;
}

/** The monotonic clock of this process: the wall clock may jump. */
export const realClock: Clock = {
  now: () => performance.now(),
  after(ms, act, { ref = true } = {}) {
    // Rounded up because timers fire early.
    const timer = setTimeout(act, Math.min(Math.ceil(ms), LONGEST_TIMER_MS));
    if (!ref) timer.unref();
    return () => clearTimeout(timer);
  },
};
