import { describe, expect, it } from 'vitest';
import { exactDuration, formatDuration, formatTime, parseAt, parseDuration, parseMoment } from '../../src/internal.js';

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

  it.each(['90', '', 'abc', 'abc 5m', '5 m', '-5m', 'P1DT2H', '1M', '1y', '30m1h', '1m1m', '5m!', '1e3s', '101000w'])(
    '%j is rejected, with what to write instead',
    (text) =>
      expect(() => parseDuration(text)).toThrow(
        expect.objectContaining({ code: 'usage', next: expect.stringContaining('15m') }),
      ),
  );

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

  it.each([
    '1700000000',
    '2026',
    '2026-11',
    '2026-11-21',
    '11/12/2026',
    'tomorrow',
    '',
    '@',
    '@abc',
    '25:00',
    '14:60',
    '2026-02-30 12:00',
    '2026-13-01 12:00',
    '2026-11-21T14:00:00+25:00',
  ])('%j is rejected, with what to write instead', (text) =>
    expect(() => at(text)).toThrow(expect.objectContaining({ code: 'usage' })),
  );

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

describe('a limit of a time range', () => {
  const now = Date.parse('2026-11-21T13:00:00Z');
  const moment = (text: string, zone = 'UTC') => new Date(parseMoment(text, { zone, now })).toISOString();

  it.each([
    ['now', '2026-11-21T13:00:00.000Z'],
    ['-2h', '2026-11-21T11:00:00.000Z'],
    ['+15m', '2026-11-21T13:15:00.000Z'],
    ['@1795266000', '2026-11-21T13:00:00.000Z'],
    ['2026-11-20 09:00', '2026-11-20T09:00:00.000Z'],
  ])('%s is accepted', (text, iso) => expect(moment(text)).toBe(iso));

  it('that is only a time of day means today in the zone, past or not', () => {
    expect(moment('14:00')).toBe('2026-11-21T14:00:00.000Z');
    expect(moment('9:05')).toBe('2026-11-21T09:05:00.000Z');
    expect(moment('12:59:30')).toBe('2026-11-21T12:59:30.000Z');
    // At this moment it is 2 a.m. on the 22nd in Auckland.
    expect(moment('9:05', 'Pacific/Auckland')).toBe('2026-11-21T20:05:00.000Z');
    expect(moment('01:00', 'Pacific/Auckland')).toBe('2026-11-21T12:00:00.000Z');
  });

  it.each(['-', '+', '-2', '+1x', '2h', 'yesterday', '25:00', '14', '', '- 2h'])('%j is rejected', (text) =>
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
