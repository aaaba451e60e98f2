import { describe, expect, it } from 'vitest';
import { formatBackoff, parseBackoff } from '../../src/internal.js';

describe('a backoff', () => {
  it.each([
    ['30s,1m,10m', [30_000, 60_000, 600_000]],
    ['0s', [0]],
    ['1h30m, 500ms', [5_400_000, 500]],
    ['exponential', 'exponential'],
  ])('%j is parsed and formatted', (text, backoff) => {
    expect(parseBackoff(text)).toEqual(backoff);
    expect(parseBackoff(formatBackoff(parseBackoff(text)))).toEqual(backoff);
  });

  it.each(['', '30', '30s,', 'exp', '1m;2m'])('%j is rejected', (text) => {
    expect(() => parseBackoff(text)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});
