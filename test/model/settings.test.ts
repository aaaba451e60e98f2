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
  ])('%s=%s is rejected', (name, text) => {
    expect(() => parseSetting(name, text)).toThrow(expect.objectContaining({ code: 'usage' }));
  });

  it('that is no number is quoted as it was given', () => {
    expect(() => parseSetting('tries', 'many')).toThrow('tries cannot be "many"');
  });
});
