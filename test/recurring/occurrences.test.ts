import { describe, expect, it } from 'vitest';
import { occurrencesOf, specOf, specText } from '../../src/recurring/occurrences.js';

/** The first `n` occurrences after a time, as clocks in the zone show them, with the offset. */
async function next(spec: string, tz: string, from: string, n: number): Promise<string[]> {
  const times = await occurrencesOf(specOf(spec), tz, 0);
  const found: string[] = [];
  for (let at = times.after(Date.parse(from)); at !== undefined && found.length < n; at = times.after(at))
    found.push(localIn(tz, at));
  return found;
}

const formats = new Map<string, Intl.DateTimeFormat>();

/** `10-25 02:30 GMT+2`, by Intl alone. */
function localIn(tz: string, ms: number): string {
  const made = new Intl.DateTimeFormat('en-GB', {
    timeZone: tz,
    hourCycle: 'h23',
    ...{ month: '2-digit', day: '2-digit', hour: '2-digit', minute: '2-digit', timeZoneName: 'shortOffset' },
  });
  const format = formats.get(tz) ?? made;
  formats.set(tz, format);
  const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, value]));
  return `${part.month}-${part.day} ${part.hour}:${part.minute} ${part.timeZoneName}`;
}

const BERLIN = 'Europe/Berlin';
const NEW_YORK = 'America/New_York';
const LORD_HOWE = 'Australia/Lord_Howe';

describe('when clocks go forward', () => {
  it.each([
    ['30 2 * * *', BERLIN, '2026-03-28T12:00Z', ['03-29 03:00 GMT+2', '03-30 02:30 GMT+2']],
    ['*/15 2 * * *', BERLIN, '2026-03-28T12:00Z', ['03-29 03:00 GMT+2', '03-30 02:00 GMT+2']],
    ['0 2,3 * * *', BERLIN, '2026-03-28T12:00Z', ['03-29 03:00 GMT+2', '03-30 02:00 GMT+2']],
    ['5 2-4 * * *', BERLIN, '2026-03-28T12:00Z', ['03-29 03:00 GMT+2', '03-29 03:05 GMT+2', '03-29 04:05 GMT+2']],
    ['30 2 * * *', NEW_YORK, '2026-03-07T12:00Z', ['03-08 03:00 GMT-4', '03-09 02:30 GMT-4']],
    ['15 2 * * *', LORD_HOWE, '2026-10-03T12:00Z', ['10-04 02:30 GMT+11', '10-05 02:15 GMT+11']],
    ['45 2 * * *', LORD_HOWE, '2026-10-03T12:00Z', ['10-04 02:45 GMT+11', '10-05 02:45 GMT+11']],
  ])('%s in %s comes once, just after, if its time is skipped', async (spec, tz, from, expected) => {
    expect(await next(spec, tz, from, expected.length)).toEqual(expected);
  });

  it.each([
    ['15 * * * *', BERLIN, '2026-03-29T00:00Z', ['03-29 01:15 GMT+1', '03-29 03:15 GMT+2', '03-29 04:15 GMT+2']],
    ['*/30 * * * *', BERLIN, '2026-03-29T00:40Z', ['03-29 03:00 GMT+2', '03-29 03:30 GMT+2']],
    ['30 */2 * * *', BERLIN, '2026-03-29T00:00Z', ['03-29 03:00 GMT+2', '03-29 04:30 GMT+2']],
  ])('%s in %s goes on', async (spec, tz, from, expected) => {
    expect(await next(spec, tz, from, expected.length)).toEqual(expected);
  });
});

describe('when clocks go back', () => {
  it.each([
    ['30 2 * * *', BERLIN, '2026-10-24T12:00Z', ['10-25 02:30 GMT+2', '10-26 02:30 GMT+1']],
    ['0,30 2 * * *', BERLIN, '2026-10-24T12:00Z', ['10-25 02:00 GMT+2', '10-25 02:30 GMT+2', '10-26 02:00 GMT+1']],
    ['30 1 * * *', NEW_YORK, '2026-10-31T12:00Z', ['11-01 01:30 GMT-4', '11-02 01:30 GMT-5']],
    ['45 1 * * *', LORD_HOWE, '2026-04-04T03:00Z', ['04-05 01:45 GMT+11', '04-06 01:45 GMT+10:30']],
  ])('%s in %s comes once, at the first', async (spec, tz, from, expected) => {
    expect(await next(spec, tz, from, expected.length)).toEqual(expected);
  });

  it.each([
    [
      '*/30 * * * *',
      BERLIN,
      '2026-10-25T00:10Z',
      ['10-25 02:30 GMT+2', '10-25 02:00 GMT+1', '10-25 02:30 GMT+1', '10-25 03:00 GMT+1'],
    ],
    ['0 * * * *', NEW_YORK, '2026-11-01T04:30Z', ['11-01 01:00 GMT-4', '11-01 01:00 GMT-5', '11-01 02:00 GMT-5']],
    ['0 */2 * * *', BERLIN, '2026-10-24T23:00Z', ['10-25 02:00 GMT+2', '10-25 02:00 GMT+1', '10-25 04:00 GMT+1']],
    [
      '*/15 * * * *',
      LORD_HOWE,
      '2026-04-04T14:40Z',
      ['04-05 01:45 GMT+11', '04-05 01:30 GMT+10:30', '04-05 01:45 GMT+10:30', '04-05 02:00 GMT+10:30'],
    ],
  ])('%s in %s runs through both hours', async (spec, tz, from, expected) => {
    expect(await next(spec, tz, from, expected.length)).toEqual(expected);
  });
});

/** What one field matches, by its own reading of lists, ranges and steps. */
function matches(field: string, value: number, least: number): boolean {
  return field.split(',').some((part) => {
    const [range = '', step = '1'] = part.split('/');
    const [from, to] = range === '*' ? [least, 99] : range.split('-').map(Number);
    const last = to ?? from;
    return value >= Number(from) && value <= Number(last) && (value - Number(from)) % Number(step) === 0;
  });
}

/** All occurrences of a year, by walking through its minutes with Intl: what clocks show, and what they showed before. */
function walked(spec: string, tz: string, year: number): number[] {
  const [minute = '', hour = '', day = '', month = '', weekday = ''] = spec.split(' ');
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone: tz,
    hourCycle: 'h23',
    ...{ year: 'numeric', month: 'numeric', day: 'numeric', hour: 'numeric', minute: 'numeric' },
  });
  const wallAt = (ms: number) => {
    const part = Object.fromEntries(format.formatToParts(ms).map(({ type, value }) => [type, Number(value)]));
    return Date.UTC(part.year as number, (part.month as number) - 1, part.day, part.hour, part.minute);
  };
  const all = (field: string, first: number) =>
    new Set(Array.from({ length: 60 }, (_, n) => n).filter((n) => matches(field, n, first)));
  const [minutes, hours] = [all(minute, 0), all(hour, 0)];
  const [days, months, weekdays] = [all(day, 1), all(month, 1), all(weekday, 0)];
  const isDay = (date: Date) => {
    const [inMonth, inWeek] = [days.has(date.getUTCDate()), weekdays.has(date.getUTCDay())];
    return day !== '*' && weekday !== '*' ? inMonth || inWeek : inMonth && inWeek;
  };
  const isMatch = (wall: number) => {
    // Without a Date for each minute.
    if (!minutes.has((wall / 60_000) % 60) || !hours.has(Math.floor(wall / 3_600_000) % 24)) return false;
    const date = new Date(wall);
    return isDay(date) && months.has(date.getUTCMonth() + 1);
  };
  const isStep = /\*|\//.test(hour);
  const found: number[] = [];
  let furthest = Number.NEGATIVE_INFINITY;
  const offsetAt = (ms: number) => wallAt(ms) - ms;
  let [offset, isEven] = [0, false];
  for (let ms = Date.UTC(year, 0, 2); ms < Date.UTC(year, 11, 30); ms += 60_000) {
    // Offsets change at quarters of an hour, and not twice a day.
    if (ms % 86_400_000 === 0) isEven = offsetAt(ms) === offsetAt(ms + 86_400_000);
    if (ms % (isEven ? 86_400_000 : 900_000) === 0) offset = offsetAt(ms);
    const wall = ms + offset;
    let occurs = isMatch(wall) && (isStep || wall > furthest);
    if (furthest > 0 && hour !== '*')
      for (let skipped = furthest + 60_000; skipped < wall && !occurs; skipped += 60_000) occurs = isMatch(skipped);
    if (occurs) found.push(ms);
    furthest = Math.max(furthest, wall);
  }
  return found;
}

describe('a year', () => {
  const specs = ['30 2 * * *', '*/20 1-3 * * *', '0,45 * * * *', '15 */3 * * *', '10 2 13 * 5', '0 2 31 * *'];
  const specsOfDays = ['5 1,2 1-7 3,10 0', '59 23 28-31 * *', '*/7 2 * 3-11/1 0-6'];
  const zones = [BERLIN, NEW_YORK, LORD_HOWE, 'UTC'];
  it.each([...specs, ...specsOfDays].map((spec, i) => ({ spec, tz: zones[i % zones.length] as string })))(
    'of $spec in $tz is that of a walk through its minutes',
    async ({ spec, tz }) => {
      const times = await occurrencesOf(spec, tz, 0);
      const found: number[] = [];
      const last = Date.UTC(2026, 11, 30);
      let at = times.after(Date.UTC(2026, 0, 2) - 1);
      for (; at !== undefined && at < last; at = times.after(at)) found.push(at);
      expect(found).toEqual(walked(spec, tz, 2026));
    },
  );
});

describe('an expression', () => {
  it.each([
    ['0 0 L * *', ['02-28 00:00 GMT+0', '03-31 00:00 GMT+0']],
    ['0 9 * * 5L', ['02-27 09:00 GMT+0', '03-27 09:00 GMT+0']],
    ['0 9 * * 1#2', ['02-09 09:00 GMT+0', '03-09 09:00 GMT+0']],
    ['0 9 13 * +5', ['02-13 09:00 GMT+0', '03-13 09:00 GMT+0']],
    ['0 9 * jan,JUN mon-fri', ['06-01 09:00 GMT+0', '06-02 09:00 GMT+0']],
    ['@daily', ['02-02 00:00 GMT+0', '02-03 00:00 GMT+0']],
    ['@Weekly', ['02-08 00:00 GMT+0', '02-15 00:00 GMT+0']],
    ['  0  12 * *  * ', ['02-01 12:00 GMT+0', '02-02 12:00 GMT+0']],
  ])('%s is understood', async (spec, expected) => {
    expect(await next(spec, 'UTC', '2026-02-01T00:00Z', 2)).toEqual(expected);
  });

  it('with six fields has seconds first', async () => {
    const times = await occurrencesOf('*/20 0 9 * * *', 'UTC', 0);
    expect(times.after(Date.parse('2026-02-01T09:00:20Z'))).toBe(Date.parse('2026-02-01T09:00:40Z'));
  });

  it.each([
    ['0 9 * *', /4 fields/],
    ['0 0 9 * * * 2027', /7 fields/],
    ['61 9 * * *', /^minute 61: Invalid value for minute: 61/],
    ['0 9 * * foo', /^weekday foo: it cannot be read; days are/],
    ['0 9 * * MON-FRY', /^weekday MON-FRY: it cannot be read; days are/],
    ['0 0 9 * jun-mai *', /^month jun-mai: /],
    ['0 9 * * FRI-MON', /^weekday FRI-MON: From value is larger/],
    ['x 0 9 * * 1', /^second x: /],
    ['@reboot', /there is no @reboot/],
    ['constructor', /1 field/],
    ['', /1 field/],
  ])('%s is refused, and why is said', async (spec, why) => {
    await expect(occurrencesOf(spec, 'UTC', 0)).rejects.toMatchObject({
      code: 'usage',
      why: expect.stringMatching(why),
    });
  });

  it('in a zone that does not exist is refused', async () => {
    await expect(occurrencesOf('0 9 * * *', 'Mars/X', 0)).rejects.toMatchObject({ code: 'usage' });
  });

  it('that never comes has no occurrence', async () => {
    expect((await occurrencesOf('0 0 30 2 *', 'UTC', 0)).after(0)).toBeUndefined();
  });
});

describe('an interval', () => {
  it('counts from its creation, in whole seconds', async () => {
    const times = await occurrencesOf(specOf('1m30s'), '', 1_000_400);
    expect(times.after(1_000_400)).toBe(1_090_000);
    expect(times.after(1_090_000)).toBe(1_180_000);
    expect(times.after(0)).toBe(1_090_000);
  });

  it.each(['500ms', '1.5s', '0s'])('of %s is refused', (text) => {
    expect(() => specOf(text)).toThrowError(expect.objectContaining({ code: 'usage' }));
  });

  it('is shown as it is written', () => {
    expect(specText(specOf('90s'))).toBe('1m30s');
    expect(specText('0 9 * * *')).toBe('0 9 * * *');
  });
});
