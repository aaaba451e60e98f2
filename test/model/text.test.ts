import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { closest, printable } from '../../src/model/text.js';
import { codePoint, runs } from '../support/property.js';

it('text in an error is printable ASCII, and short', () => {
  fc.assert(
    fc.property(fc.string({ unit: codePoint, maxLength: 200 }), (text) => /^[\x20-\x7e]{0,400}$/.test(printable(text))),
    runs(),
  );
});

describe('of known words, the closest', () => {
  const known = ['order-close', 'mail', 'webhook', 'q', 'list', 'QA'];

  it.each([
    ['order-clsoe', 'order-close'],
    ['order_close', 'order-close'],
    ['Order-Close', 'order-close'],
    ['odrer-closs', 'order-close'],
    ['mial', 'mail'],
    ['mails', 'mail'],
    ['lst', 'list'],
    ['Q', 'q'],
    ['qa', 'QA'],
  ])('to %s is %s', (word, meant) => expect(closest(word, known)).toBe(meant));

  it.each(['s', 'qq', '', 'post', 'order', 'hookweb', 'orders-open'])('to %j is none', (word) =>
    expect(closest(word, known)).toBeUndefined(),
  );
});
