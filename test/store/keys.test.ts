import fc from 'fast-check';
import { expect, it } from 'vitest';
import { queueKeys, queuesKey } from '../../src/store/keys.js';
import { runs } from '../support/property.js';

const name = fc.stringMatching(/^[A-Za-z0-9][A-Za-z0-9._:-]{0,8}$/);
const keysOf = (prefix: string, queue: string) => {
  const { layout, ...keys } = queueKeys(prefix, queue);
  return Object.values(keys);
};

it('two queues never share a key, whatever their prefixes (failures 31)', () => {
  fc.assert(
    fc.property(name, name, name, name, (prefix, queue, otherPrefix, otherQueue) => {
      fc.pre(prefix !== otherPrefix || queue !== otherQueue);
      const all = [...keysOf(prefix, queue), ...keysOf(otherPrefix, otherQueue), queuesKey(prefix)];
      expect(new Set(all).size).toBe(all.length);
    }),
    runs(),
  );
});

it('all keys of a queue have the same hash tag', () => {
  expect(new Set(keysOf('delayq', 'order-close').map((key) => /\{(.*?)\}/.exec(key)?.[1]))).toEqual(
    new Set(['order-close']),
  );
});
