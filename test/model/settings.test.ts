import { describe, expect, it } from 'vitest';
import { formatSetting, parseSetting } from '../../src/internal.js';

describe('a setting', () => {
  it.each([
    ['tries', '4'],
    ['maxLost', '100'],
    ['backoff', '30s,1m,10m'],
    ['lease', '1m30s'],
    ['ttl', '2d'],
    ['text', 'on'],
    ['text', 'off'],
    ['events', '10000'],
    ['eventTypes', 'dead,lost'],
    ['keepDone', '1d'],
    ['maxDone', '500'],
  ])('%s=%s is formatted as it was given', (name, text) => {
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
    ['text', '2'],
    ['text', 'onoff'],
    ['paused', '1'],
    ['eventTypes', 'died'],
    ['keepDone', '0s'],
    ['maxDone', 'off'],
  ])('%s=%s is rejected', (name, text) => {
    expect(() => parseSetting(name, text)).toThrow(expect.objectContaining({ code: 'usage' }));
  });

  it.each(['ttl=none', 'events=off', 'event-types=all', 'keep-done=', 'burst=auto', 'rate=off', 'tries='])(
    'is taken off the queue: %s',
    (change) => {
      const [name, text] = change.split('=') as [string, string];
      expect(Object.values(parseSetting(name, text))).toEqual([null]);
    },
  );

  it('that is no number is quoted as it was given', () => {
    expect(() => parseSetting('tries', 'many')).toThrow('tries cannot be "many"');
  });
});
