import { DelayqError } from './errors.js';

const DAY_MS = 86_400_000;
const NEAR_DAYS = ['yesterday', 'today', 'tomorrow'];
const WEEKDAYS = 'sunday monday tuesday wednesday thursday friday saturday'.split(' ');
const MONTHS = 'january february march april may june july august september october november december'.split(' ');

/** 14:00, 14:00:30.5, 2:30 pm, 2pm, noon or midnight, among other words. */
const TIME = /(?:^| )(?:(\d\d?):(\d\d)(?::(\d\d(?:\.\d{1,9})?))?(?: ?([ap])m)?|(\d\d?) ?([ap])m|noon|midnight)(?= |$)/;

/** A time or day that words may mean, in ms, as if local time were UTC. */
interface Meant {
  readonly first: number;
  /** What they mean instead, if the first has passed. */
  readonly second?: number;
  /** It is a weekday, or a day without a year: people may mean the last one or the next one. */
  readonly isVague?: boolean;
}

/** The error for a text that is not a point in time. */
export function notTime(
  text: string,
  why: string,
  next = 'write it as 14:00, "tomorrow 9:00", "2026-11-21 14:00" or "now + 15m"',
): DelayqError {
  return new DelayqError('usage', `"${text}" is not a time`, { why, next });
}

/**
 * The local time that words such as `2pm`, `tomorrow 9:00`, `noon fri`, `24 dec 14:00` or `2026-12-24 14:00` mean when
 * it is `now()` there. Throws `usage` if they mean none, and for words that can be read in two ways.
 */
export function localTime(text: string, now: () => number): Meant {
  const words = text
    .toLowerCase()
    .trim()
    .replace(/\s+/g, ' ')
    .replace(/^(\d{4}-\d\d-\d\d)t(?=\d)/, '$1 ');
  const found = TIME.exec(words);
  const day = words.replace(TIME, '').trim();
  const meant = found ? dayOf(day, now) : undefined;
  if (!found || !meant) throw notTime(text, ...misread(day, found?.[0].trim(), now));
  if (day && found[0].endsWith('midnight'))
    throw notTime(text, 'a day has midnight at its start and at its end', `write "${day} 0:00" or "${day} 23:59"`);
  const time = timeOfDay(found);
  if (Number.isNaN(meant.first + time)) throw notTime(text, 'there is no such date or time of day');
  const { first, second } = meant;
  return { ...meant, first: first + time, ...(second === undefined ? {} : { second: second + time }) };
}

/** The groups of {@link TIME}: hours, minutes and seconds, with or without am or pm; or an hour with am or pm. */
function timeOfDay([text, hours, minutes = '0', seconds = '0', half, hour = hours, onlyHalf = half]: RegExpExecArray) {
  if (hour === undefined) return text.endsWith('noon') ? DAY_MS / 2 : 0;
  const [h, m, s] = [Number(hour), Number(minutes), Number(seconds)];
  const isClock = m < 60 && s < 60 && (onlyHalf ? h >= 1 && h <= 12 : h < 24);
  const inDay = onlyHalf ? (h % 12) + (onlyHalf === 'p' ? 12 : 0) : h;
  return isClock ? inDay * 3_600_000 + m * 60_000 + Math.floor(s * 1_000) : Number.NaN;
}

/** The start of the day that words mean. No words mean today or tomorrow; undefined: these words are no day. */
function dayOf(words: string, now: () => number): Meant | undefined {
  const [, isoYear, isoMonth, isoDay] = /^(\d{4})-(\d\d)-(\d\d)$/.exec(words) ?? [];
  if (isoYear) return { first: dateOf(isoYear, isoMonth, isoDay) };
  const today = startOfDay(now());
  if (words === '') return { first: today, second: today + DAY_MS };
  const near = NEAR_DAYS.indexOf(words);
  if (near >= 0) return { first: today + (near - 1) * DAY_MS };
  const weekday = indexIn(WEEKDAYS, words);
  if (weekday >= 0) {
    const first = today + ((weekday - new Date(today).getUTCDay() + 7) % 7) * DAY_MS;
    return { first, second: first + 7 * DAY_MS, isVague: true };
  }
  const [, before, day, name = before, year] = /^(?:([a-z]+) )?(\d\d?)(?: ([a-z]+))?(?:,? (\d{4}))?$/.exec(words) ?? [];
  const month = indexIn(MONTHS, name);
  if (month < 0 || (before && before !== name)) return undefined;
  const date = new Date(today);
  // As at(1) has it by POSIX.
  const nextYear = month < date.getUTCMonth() ? 1 : 0;
  return { first: dateOf(year ?? date.getUTCFullYear() + nextYear, month + 1, day), isVague: !year };
}

const startOfDay = (ms: number) => ms - (ms % DAY_MS);

/** The index in `names` of a name, or of its first three or more letters; -1: none. */
function indexIn(names: readonly string[], word = ''): number {
  return word.length < 3 ? -1 : names.findIndex((name) => name.startsWith(word));
}

/** The start of a date; NaN if there is no such date. */
function dateOf(...[year, month, day]: readonly (string | number | undefined)[]): number {
  const ms = Date.UTC(Number(year), Number(month) - 1, Number(day));
  const date = new Date(ms);
  const isSame = date.getUTCFullYear() === Number(year) && date.getUTCMonth() === Number(month) - 1;
  return isSame ? ms : Number.NaN;
}

/** Why words without a known day or time of day are refused, and what to write. */
function misread(day: string, time: string | undefined, now: () => number): [why: string, next?: string] {
  const written = (...dates: readonly number[]) =>
    [...new Set(dates)]
      .filter((date) => !Number.isNaN(date))
      .map((date) => `"${new Date(date).toISOString().slice(0, 10)} ${time ?? '9:00'}"`)
      .join(' or ');
  const [, first, second, end] = /^(\d\d?)[/.-](\d\d?)[/.-](\d{4}|\d\d)$/.exec(day) ?? [];
  const year = end?.length === 2 ? `20${end}` : end;
  const dates = written(dateOf(year, second, first), dateOf(year, first, second));
  if (dates.includes(' or '))
    return ['the day and the month of such a date can be taken for each other', `write ${dates}`];
  if (dates) return ['a date has its year first', `write ${dates}`];
  const [, next] = /^next ([a-z]+)$/.exec(day) ?? [];
  const weekday = indexIn(WEEKDAYS, next);
  if (weekday >= 0) {
    const today = startOfDay(now());
    const coming = today + (((weekday - new Date(today).getUTCDay() + 6) % 7) + 1) * DAY_MS;
    return [
      `some mean the coming ${next} by it, others the one after`,
      `write ${written(coming, coming + 7 * DAY_MS)}`,
    ];
  }
  if (next) return ['"next" can be read in several ways', 'write "now + 1 week", or the date: "2026-11-21 9:00"'];
  const [, rest = day, hour] = /^(.+) ([01]?\d|2[0-3])$/.exec(day) ?? [];
  if (/^(utc|gmt|[a-z]{2,4}t)$/.test(day.split(' ').at(-1) ?? ''))
    return ['it names a time zone', 'set the zone with --tz Europe/Berlin, or write "2026-11-21T14:00:00+01:00"'];
  if (time !== undefined || day === '') return ['the format is not known'];
  if (dayOf(day, now)) return ['it has no time of day', `write "${day} 9:00"`];
  if (dayOf(rest, now)) return [`${hour} is not a time of day`, `write "${rest} ${hour}:00"`];
  return ['the format is not known'];
}
