import { describe, expect, it } from 'vitest';
import { exactDuration, formatBackoff, formatSetting, parseBackoff, parseSetting } from '../../src/internal.js';

describe('a backoff', () => {
  it.each([
    ['30s,1m,10m', [30_000, 60_000, 600_000]],
    ['0s', [0]],
    ['1h30m, 500ms', [5_400_000, 500]],
    ['exponential', 'exponential'],
  ])('%j is read and written', (text, backoff) => {
    expect(parseBackoff(text)).toEqual(backoff);
    expect(parseBackoff(formatBackoff(parseBackoff(text)))).toEqual(backoff);
  });

  it.each(['', '30', '30s,', 'exp', '1m;2m'])('%j is refused', (text) => {
    expect(() => parseBackoff(text)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('a setting', () => {
  it.each([
    ['tries', '4'],
    ['maxLost', '100'],
    ['backoff', '30s,1m,10m'],
    ['lease', '1m30s'],
    ['ttl', '2d'],
  ])('%s=%s is written as it was read', (name, text) => {
    const [value] = Object.values(parseSetting(name, text));
    expect(formatSetting(name as 'tries', value as never)).toBe(text);
  });

  it.each([
    ['tries', '0'],
    ['tries', '1e3'],
    ['maxLost', 'many'],
    ['lease', '0s'],
    ['lease', '90'],
    ['ttl', '-1s'],
    ['maxlost', '4'],
    ['paused', '1'],
  ])('%s=%s is refused', (name, text) => {
    expect(() => parseSetting(name, text)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

it.each([
  [0, '0s'],
  [1, '1ms'],
  [90_000, '1m30s'],
  [691_200_000, '8d'],
  [90_061_001, '1d1h1m1s1ms'],
])('%d ms are exactly %s', (ms, text) => expect(exactDuration(ms)).toBe(text));
