import { describe, expect, it } from 'vitest';
import { checkId, checkName, type DelayqError } from '../../src/internal.js';
import { keysOf } from '../../src/model/validate.js';

describe('a name (failures 31)', () => {
  it.each(['a', 'order-close', 'A.b_c:d-9', '0', '-a', '_', '--', 'x'.repeat(511)])('%s is accepted', (name) =>
    expect(checkName(name)).toBe(name),
  );

  it.each(['', '.a', ':a', 'a b', 'a{b}', 'a*', 'ä', 'a\n', '\u202ea', 'x'.repeat(512), 'x'.repeat(10_240)])(
    '%j is rejected, and quoted without escape sequences',
    (name) => {
      const error = (() => {
        try {
          checkName(name);
        } catch (error) {
          return error as DelayqError;
        }
        return undefined;
      })();
      expect(error).toMatchObject({ code: 'usage' });
      expect(error?.what).toMatch(/^[\x20-\x7e]{1,120}$/);
    },
  );
});

describe('a prefix', () => {
  it('has at most 128 characters and begins with a letter or digit', () => {
    expect(checkName('x'.repeat(128), 'prefix')).toHaveLength(128);
    for (const one of ['x'.repeat(129), '-a', '_a'])
      expect(() => checkName(one, 'prefix')).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('an id given by the caller (failures 31)', () => {
  it.each(['a', '42', 'order:42', 'a@b.example/{x}*', 'x'.repeat(256)])('%s is accepted', (id) =>
    expect(checkId(id)).toBe(id),
  );
  it.each(['', '-1', '--', 'a b', 'a\tb', 'a\nb', 'ä', '\x1b[31m', 'x'.repeat(257)])('%j is rejected', (id) => {
    expect(() => checkId(id)).toThrow(expect.objectContaining({ code: 'usage' }));
  });
});

describe('an options object', () => {
  const checkKeys = keysOf<{ in?: string; leaseMs?: number; concurrency?: number }>('enqueue', {
    in: true,
    leaseMs: true,
    concurrency: true,
  });

  it('with known keys is returned', () => {
    const given = { in: '5m', [Symbol('mine')]: 1 };
    expect(checkKeys(given)).toBe(given);
  });

  it.each([
    ['delay', 'leave it out'],
    ['IN', 'did you mean in?'],
    ['inMs', 'did you mean in?'],
    ['lease', 'did you mean leaseMs?'],
    ['concurency', 'did you mean concurrency?'],
    ['s', 'leave it out'],
    ['toString', 'leave it out'],
    ['orderId', 'leave it out'],
  ])('with the key %s is refused: %s', (key, next) => {
    expect(() => checkKeys({ [key]: undefined })).toThrow(
      expect.objectContaining({
        code: 'usage',
        what: `enqueue has no option "${key}"`,
        why: 'it knows only in, leaseMs, concurrency',
        next,
      }),
    );
  });
});
