import { describe, expect, it } from 'vitest';
import { checkId, checkName } from '../../src/internal.js';

describe('a name (failures 31)', () => {
  it.each(['a', 'order-close', 'A.b_c:d-9', '0', 'x'.repeat(128)])('%s is accepted', (name) =>
    expect(checkName(name)).toBe(name),
  );

  it.each(['', '-a', '.a', 'a b', 'a{b}', 'a*', '--', 'ä', 'a\n', '\u202ea', 'x'.repeat(129), 'x'.repeat(10_240)])(
    '%j is rejected, and quoted without escape sequences',
    (name) => {
      const error = (() => {
        try {
          checkName(name);
        } catch (error) {
          return error as Error;
        }
        return undefined;
      })();
      expect(error).toMatchObject({ code: 'usage' });
      expect(error?.message).toMatch(/^[\x20-\x7e]{1,120}$/);
    },
  );
});

describe('an id given by the caller (failures 31)', () => {
  it.each(['a', '42', 'order:42', 'a@b.example/{x}*', 'x'.repeat(256)])('%s is accepted', (id) =>
    expect(checkId(id)).toBe(id),
  );
  it.each(['', '-1', '--', 'a b', 'a\tb', 'a\nb', 'ä', '\x1b[31m', 'x'.repeat(257)])('%j is rejected', (id) => {
    expect(() => checkId(id)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});
