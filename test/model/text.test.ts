import fc from 'fast-check';
import { it } from 'vitest';
import { printable } from '../../src/model/text.js';

it('text in an error is printable ASCII, and short', () => {
  fc.assert(
    fc.property(fc.string({ unit: 'binary', maxLength: 200 }), (text) => /^[\x20-\x7e]{0,400}$/.test(printable(text))),
  );
});
