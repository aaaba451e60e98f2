import { describe, expect, it } from 'vitest';
import { NO_ATTRIBUTES, packAttributes, readAttributes } from '../../src/model/attributes.js';

const numbered = (n: number) => Object.fromEntries(Array.from({ length: n }, (_, i) => [`n${i}`, 'x']));

describe('attributes are stored', () => {
  it('as fields of a record, ordered by name, without those that are undefined', () => {
    const packed = packAttributes({ traceparent: '00-4bf9-01', b: undefined, a: '' });
    expect(JSON.stringify(packed)).toBe('{"a:a":"","a:traceparent":"00-4bf9-01"}');
  });

  it('up to 16 of them, of up to 128 bytes, with names of up to 32 characters', () => {
    expect(Object.keys(packAttributes(numbered(16)))).toHaveLength(16);
    const most = { [`a${'-9'.repeat(15)}z`]: 'é'.repeat(64) };
    expect(readAttributes(packAttributes(most))).toEqual(most);
  });

  it.each<[string, unknown, string]>([
    ['an empty name', { '': 'x' }, '"" cannot name an attribute'],
    ['capitals', { Tenant: 'x' }, '"Tenant" cannot name an attribute'],
    ['a line break after a name', { 'a\n': 'x' }, '"a\\n" cannot name an attribute'],
    ['an underscore that clashes with a dash in variables', { 'a-b_c': 'x', 'a_b-c': 'y' }, 'a_b-c clashes with a-b_c'],
    ['an underscore at the beginning', { _a: 'x' }, '"_a" cannot name an attribute'],
    ['a name that begins with a digit', { '7a': 'x' }, '"7a" cannot name an attribute'],
    ['a name of 33 characters', { ['a'.repeat(33)]: 'x' }, 'cannot name an attribute'],
    ['a value of 129 bytes', { a: `${'é'.repeat(64)}x` }, 'over 128 bytes'],
    ['a number', { a: 7 }, 'it is not a string'],
    ['null', { a: null }, 'it is not a string'],
    ['a line break', { a: 'x\ny' }, 'a control character'],
    ['NUL', { a: '\0' }, 'a control character'],
    ['an escape sequence of one character', { a: '\x9b31m' }, 'a control character'],
    ['what was not UTF-8', { a: 'x\ufffd' }, 'damaged text'],
    ['half of a surrogate pair', { a: '\ud800' }, 'half of a surrogate pair'],
    ['17 of them', numbered(17), 'at most 16'],
    ['a list', ['a'], 'not an object'],
    ['a Map', new Map([['a', 'x']]), 'not an object'],
    ['a text', 'a=x', 'not an object'],
    ['null for all', null, 'not an object'],
  ])('but not %s', (_, attributes, message) => {
    const pack = () => packAttributes(attributes as Record<string, string>);
    expect(pack).toThrow(expect.objectContaining({ code: 'usage', next: expect.any(String) }));
    expect(pack).toThrow(expect.toSatisfy((error: Error) => error.message.includes(message)));
  });
});

describe('attributes are read from a record', () => {
  it('without what is invalid', () => {
    const record = { 'a:good': 'x', 'a:': 'x', 'a:Bad': 'x', 'a:n': 5, 'a:long': 'x'.repeat(129), 'a:c': '\x1b[2J' };
    expect(readAttributes({ ...record, tries: 3, good: 'y' })).toEqual({ good: 'x' });
  });

  it('only the first 16 by name', () => {
    const record = Object.fromEntries(Array.from({ length: 20 }, (_, i) => [`a:n${10 + i}`, 'x']).reverse());
    expect(Object.keys(readAttributes(record))).toEqual(Array.from({ length: 16 }, (_, i) => `n${10 + i}`));
  });

  it('none: they are one frozen object', () => {
    expect(readAttributes({ tries: 3 })).toBe(NO_ATTRIBUTES);
    expect(Object.isFrozen(NO_ATTRIBUTES)).toBe(true);
  });
});
