import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isDelayqError } from '../../src/index.js';
import { exactDuration, formatDuration, formatTime, parseAt, parseDuration, parseMoment } from '../../src/internal.js';
import { runs, slowRuns } from '../support/property.js';

const SECOND = 1_000;
const HOUR = 3_600_000;
const DAY = 86_400_000;

describe('a duration', () => {
  it.each([
    ['500ms', 500],
    ['90s', 90 * SECOND],
    ['15m', 15 * 60 * SECOND],
    ['1h30m', 1.5 * HOUR],
    ['2d', 2 * DAY],
    ['1w', 7 * DAY],
    ['1w2d3h4m5s6ms', 7 * DAY + 2 * DAY + 3 * HOUR + 4 * 60 * SECOND + 5 * SECOND + 6],
    ['1.5h', 1.5 * HOUR],
    ['0s', 0],
  ])('%s is %d ms', (text, ms) => expect(parseDuration(text)).toBe(ms));

  it.each([
    ['5', 'it has no unit', 'write 5s, 5m or 5h, as one word'],
    ['1.5', 'it has no unit', 'write 1.5s, 1.5m or 1.5h, as one word'],
    ['0', 'it has no unit', 'write 0s'],
    ['-5m', 'it is negative', '15m'],
    ['-5', 'it is negative', '15m'],
    ['200y', 'there is no unit y', 'the units are ms, s, m (minutes), h, d and w'],
    ['3 months', 'there is no unit months', 'the units are'],
    ['1x', 'there is no unit x', 'the units are'],
    ['5M', 'there is no unit M', 'the units are'],
    ['5 minutes', 'its units are not in the short form', 'write 5m'],
    ['5 min', 'its units are not in the short form', 'write 5m'],
    ['1 hour 30 mins', 'its units are not in the short form', 'write 1h30m'],
    ['1h 30m', 'its units are not in the short form', 'write 1h30m'],
    ['250 milliseconds', 'its units are not in the short form', 'write 250ms'],
    ['30m1h', 'units must go from large to small, each at most once', '15m'],
    ['1m1m', 'units must go from large to small, each at most once', '15m'],
    ['101000w', 'it is longer than 100 years', '15m'],
    ...['', 'abc', 'abc 5m', 'P1DT2H', '5m!', '1e3s', '1,5h', '5 days ago', '5 constructor'].map((text) => [text]),
  ])('%j is rejected: %s', (text = '', why = '', next = '') =>
    expect(() => parseDuration(text)).toThrow(
      expect.objectContaining({
        code: 'usage',
        why: expect.stringContaining(why),
        next: expect.stringContaining(next),
      }),
    ),
  );

  it('that is shown exactly is read as the same', () => {
    fc.assert(
      fc.property(fc.integer({ min: 0, max: 100 * 365 * DAY }), (ms) => {
        expect(parseDuration(exactDuration(ms))).toBe(ms);
      }),
      runs(),
    );
  });

  it.each([
    [0, '0ms'],
    [850, '850ms'],
    [1_500, '1.5s'],
    [59_999, '59s'],
    [252_000, '4m 12s'],
    [3_600_000, '1h'],
    [DAY + 3 * HOUR + 59_000, '1d 3h'],
    [-5, '0ms'],
  ])('of %d ms is shown as %s', (ms, text) => expect(formatDuration(ms)).toBe(text));
});

describe('a point in time', () => {
  const now = Date.parse('2026-11-21T13:00:00Z');
  const at = (text: string, zone = 'UTC') => new Date(parseAt(text, { zone, now }).ms).toISOString();

  it.each([
    ['2026-11-21T14:00:00+01:00', '2026-11-21T13:00:00.000Z'],
    ['2026-11-21T14:00:00Z', '2026-11-21T14:00:00.000Z'],
    ['2026-11-21t14:00:00.25z', '2026-11-21T14:00:00.250Z'],
    ['2026-11-21T14:00-05:30', '2026-11-21T19:30:00.000Z'],
    ['@1795266000', '2026-11-21T13:00:00.000Z'],
    ['@1795266000.5', '2026-11-21T13:00:00.500Z'],
  ])('%s means the same everywhere', (text, iso) => expect(at(text, 'Asia/Tokyo')).toBe(iso));

  it('without an offset is local time in the zone', () => {
    expect(at('2026-11-21 14:00', 'Europe/Berlin')).toBe('2026-11-21T13:00:00.000Z');
    expect(at('2026-07-01T14:00:30', 'America/New_York')).toBe('2026-07-01T18:00:30.000Z');
  });

  it('that is only a time of day means its next occurrence in the zone', () => {
    expect(at('14:00')).toBe('2026-11-21T14:00:00.000Z');
    expect(at('13:00')).toBe('2026-11-22T13:00:00.000Z');
    expect(at('12:59')).toBe('2026-11-22T12:59:00.000Z');
    expect(at('14:00', 'Europe/Berlin')).toBe('2026-11-22T13:00:00.000Z');
    expect(at('14:01', 'Europe/Berlin')).toBe('2026-11-21T13:01:00.000Z');
    expect(at('9:05', 'Pacific/Auckland')).toBe('2026-11-21T20:05:00.000Z');
  });

  // At this moment it is Saturday, 13:00 in London, 22:00 in Tokyo, and 04:00 in Anchorage.
  it.each([
    ['now', '2026-11-21T13:00:00Z', '2026-11-21T13:00:00Z', '2026-11-21T13:00:00Z'],
    ['now + 5 minutes', '2026-11-21T13:05:00Z', '2026-11-21T13:05:00Z', '2026-11-21T13:05:00Z'],
    ['now+1h30m', '2026-11-21T14:30:00Z', '2026-11-21T14:30:00Z', '2026-11-21T14:30:00Z'],
    ['now + 1 day', '2026-11-22T13:00:00Z', '2026-11-22T13:00:00Z', '2026-11-22T13:00:00Z'],
    ['now - 2 hours', '2026-11-21T11:00:00Z', '2026-11-21T11:00:00Z', '2026-11-21T11:00:00Z'],
    ['today 9:00', '2026-11-21T09:00:00Z', '2026-11-21T00:00:00Z', '2026-11-21T18:00:00Z'],
    ['Tomorrow  9:00', '2026-11-22T09:00:00Z', '2026-11-22T00:00:00Z', '2026-11-22T18:00:00Z'],
    ['2026-12-24 9:00:30.5', '2026-12-24T09:00:30.5Z', '2026-12-24T00:00:30.5Z', '2026-12-24T18:00:30.5Z'],
  ])('%s is understood in each zone', (text, london, tokyo, anchorage) => {
    const iso = (time: string) => new Date(time).toISOString();
    expect(at(text, 'Europe/London')).toBe(iso(london));
    expect(at(text, 'Asia/Tokyo')).toBe(iso(tokyo));
    expect(at(text, 'America/Anchorage')).toBe(iso(anchorage));
  });

  it.each([
    ['1700000000', 'a bare number', '@1700000000'],
    ['5m', 'it is a duration', 'write "now + 5m"'],
    ['in 5 minutes', 'it is a duration', 'write "now + 5m"'],
    ['+15m', 'it is a duration', 'write "now + 15m"'],
    ['@', 'seconds since 1970', '@1795266000'],
    ...['25:00', '14:60', '14:00:60', '2026-02-30 12:00', '2026-13-01 12:00', '0050-01-01 10:00'].map((text) => [
      text,
      'there is no such date or time of day',
    ]),
    ['2026-11-21T14:00:00+25:00', 'there is no such UTC offset'],
    ...['', 'at', '2026', '2026-11', '@abc', '2pm', 'tomorrow', '2026-11-21', '4:00 + 3 days'].map((text) => [text]),
    ...['11/12/2026 14:00', 'next friday 9:00', '9:00 tomorrow', '14:00Z', 'constructor 9:00'].map((text) => [text]),
  ])('%j is rejected: %s', (text = '', why = '', next = '') =>
    expect(() => at(text)).toThrow(
      expect.objectContaining({
        code: 'usage',
        why: expect.stringContaining(why),
        next: expect.stringContaining(next),
      }),
    ),
  );

  it('that a clock change repeats is rejected in words, too', () => {
    const before = { zone: 'Europe/Berlin', now: Date.parse('2026-10-24T12:00:00Z') };
    expect(() => parseAt('tomorrow 2:30', before)).toThrow(
      expect.objectContaining({ next: expect.stringMatching(/02:30:00\+02:00 or .*02:30:00\+01:00/) }),
    );
  });

  it('says whether it is past', () => {
    expect(parseAt('2026-11-21T12:59:59Z', { zone: 'UTC', now }).past).toBe(true);
    expect(parseAt('2026-11-21T13:00:01Z', { zone: 'UTC', now }).past).toBe(false);
  });

  it('that a clock change skips is rejected, with a time that exists', () => {
    expect(() => at('2026-03-29 02:30', 'Europe/Berlin')).toThrow(
      expect.objectContaining({
        code: 'usage',
        why: expect.stringContaining('skip'),
        next: expect.stringContaining('2026-03-29T'),
      }),
    );
  });

  it('that a clock change repeats is rejected, with both instants', () => {
    expect(() => at('2026-10-25 02:30', 'Europe/Berlin')).toThrow(
      expect.objectContaining({ code: 'usage', next: expect.stringMatching(/02:30:00\+02:00 or .*02:30:00\+01:00/) }),
    );
    expect(at('2026-10-25 03:30', 'Europe/Berlin')).toBe('2026-10-25T02:30:00.000Z');
  });

  it('in a zone that does not exist is rejected, not read as UTC', () => {
    expect(() => at('14:00', 'Mars/Olympus')).toThrow(
      expect.objectContaining({ code: 'usage', message: expect.stringContaining('Mars/Olympus') }),
    );
  });

  it('is shown with its offset', () => {
    expect(formatTime(now, 'Europe/Berlin')).toBe('2026-11-21 14:00:00 +01:00');
    expect(formatTime(now, 'America/St_Johns')).toBe('2026-11-21 09:30:00 -03:30');
  });
});

describe('any point in time', () => {
  const ZONES = ['UTC', 'Europe/Berlin', 'America/St_Johns', 'Pacific/Auckland', 'Australia/Lord_Howe'];
  const seconds = fc.integer({ min: Date.UTC(2000, 0) / SECOND, max: Date.UTC(2100, 0) / SECOND });
  const place = fc.record({ ms: seconds.map((s) => s * SECOND), zone: fc.constantFrom(...ZONES) });
  /** The instant that a text means, or the reason why it means none. */
  const read = (text: string, zone: string, now: number) => {
    try {
      return parseAt(text, { zone, now }).ms;
    } catch (error) {
      if (!isDelayqError(error, 'usage')) throw error;
      return error.why;
    }
  };

  it('that is shown is read as the same', () => {
    fc.assert(
      fc.property(place, ({ ms, zone }) => {
        expect(parseAt(formatTime(ms, zone), { zone: 'UTC', now: 0 }).ms).toBe(ms);
      }),
      runs(),
    );
  });

  it('as a time of day is the next moment at which clocks show it', () => {
    fc.assert(
      fc.property(place, seconds, ({ ms, zone }, other) => {
        const time = formatTime(other * SECOND, zone).slice(11, 19);
        const due = read(time, zone, ms);
        if (typeof due !== 'number') return expect(due).toMatch(/skips|repeats/);
        expect(due).toBeGreaterThan(ms);
        expect(due).toBeLessThanOrEqual(ms + 25 * HOUR);
        expect(formatTime(due, zone).slice(11, 19)).toBe(time);
      }),
      runs(),
    );
  });

  it('or nothing at all: any words are understood or rejected', () => {
    const word = fc.constantFrom(
      ...['now', '+', '5', 'minutes', 'tomorrow', '9:00', '2', 'pm', '2026', '2026-12-24', '@', 'T', 'Z', '+01:00', ''],
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 5 }), fc.constantFrom('', ' '), (words, between) => {
        const meant = read(words.join(between), 'Europe/Berlin', Date.UTC(2026, 10, 21));
        if (typeof meant === 'number') expect(meant).toBeGreaterThanOrEqual(0);
        else expect(meant).not.toContain('undefined');
      }),
      slowRuns(2_000),
    );
  });
});

describe('a limit of a time range', () => {
  const now = Date.parse('2026-11-21T13:00:00Z');
  const moment = (text: string, zone = 'UTC') => new Date(parseMoment(text, { zone, now })).toISOString();

  it.each([
    ['now', '2026-11-21T13:00:00.000Z'],
    ['-2h', '2026-11-21T11:00:00.000Z'],
    ['+15m', '2026-11-21T13:15:00.000Z'],
    ['@1795266000', '2026-11-21T13:00:00.000Z'],
    ['2026-11-20 09:00', '2026-11-20T09:00:00.000Z'],
    ['now - 2 hours', '2026-11-21T11:00:00.000Z'],
    ['yesterday 9:00', '2026-11-20T09:00:00.000Z'],
  ])('%s is accepted', (text, iso) => expect(moment(text)).toBe(iso));

  it('that is only a time of day means today in the zone, past or not', () => {
    expect(moment('14:00')).toBe('2026-11-21T14:00:00.000Z');
    expect(moment('9:05')).toBe('2026-11-21T09:05:00.000Z');
    expect(moment('12:59:30')).toBe('2026-11-21T12:59:30.000Z');
    // At this moment it is 2 a.m. on the 22nd in Auckland.
    expect(moment('9:05', 'Pacific/Auckland')).toBe('2026-11-21T20:05:00.000Z');
    expect(moment('01:00', 'Pacific/Auckland')).toBe('2026-11-21T12:00:00.000Z');
  });

  it.each(['-', '+', '-2', '+1x', '2h', 'yesterday', '25:00', '14', '', '- 2h', 'fri 9:00'])('%j is rejected', (text) =>
    expect(() => moment(text)).toThrow(expect.objectContaining({ code: 'usage' })),
  );
});

it.each([
  [0, '0s'],
  [1, '1ms'],
  [90_000, '1m30s'],
  [691_200_000, '8d'],
  [1_500, '1.5s'],
  [60_500, '1m500ms'],
  [90_061_001, '1d1h1m1.001s'],
])('%d ms are exactly %s, and read so', (ms, text) => {
  expect(exactDuration(ms)).toBe(text);
  expect(parseDuration(text)).toBe(ms);
});
