import * as zlib from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { timeOfId } from '../../src/internal.js';
import { slotOfKey } from '../../src/redis/slots.js';
import { crc32 } from '../../src/store/crc32.js';
import { PartitionMap } from '../../src/store/map.js';
import { tagFor } from '../../src/store/tags.js';
import { codePoint, runs } from '../support/property.js';

const mapOf = (count: number, from?: number) =>
  new PartitionMap(
    count,
    from,
    Array.from({ length: count }, (_, i) => (i === 0 ? '' : `q/${i}.0`)),
  );

describe('crc32', () => {
  it('is that of the check value of the standard, also in parts', () => {
    expect(crc32('123456789')).toBe(0xcbf43926);
    expect(crc32('6789', crc32('12345'))).toBe(0xcbf43926);
    expect(crc32('')).toBe(0);
  });

  // Node 20.15 and 22.2 have it.
  it.runIf('crc32' in zlib)('is that of zlib for any text and bytes', () => {
    fc.assert(
      fc.property(fc.string({ unit: codePoint }), (text) => crc32(text) === zlib.crc32(text)),
      runs(),
    );
    fc.assert(
      fc.property(fc.uint8Array(), (bytes) => crc32(Buffer.from(bytes)) === zlib.crc32(Buffer.from(bytes))),
      runs(),
    );
  });
});

describe('a map of partitions', () => {
  it('moves ids only to new partitions when it grows', () => {
    const sizes = fc.tuple(fc.integer({ min: 1, max: 64 }), fc.integer({ min: 1, max: 64 }));
    fc.assert(
      fc.property(fc.string(), sizes, (id, [from, more]) => {
        const [before, after] = [mapOf(from), mapOf(from + more, from)];
        expect(after.formerOf(id)).toBe(before.ownerOf(id));
        const owner = after.ownerOf(id);
        expect(owner === before.ownerOf(id) || owner >= from).toBe(true);
      }),
      runs(),
    );
  });

  it('spreads ids evenly over a power of two', () => {
    const owners = Array.from({ length: 16_000 }, (_, i) => mapOf(16).ownerOf(`order:${i}`));
    const counts = Array.from({ length: 16 }, (_, p) => owners.filter((owner) => owner === p).length);
    expect(Math.max(...counts)).toBeLessThan(1_150);
    expect(Math.min(...counts)).toBeGreaterThan(850);
  });

  it('knows which part of all ids belongs to each, also if they are no power of two', () => {
    for (const count of [1, 3, 4, 6, 13]) {
      const map = mapOf(count);
      const owners = Array.from({ length: 16_000 }, (_, i) => map.ownerOf(`order:${i}`));
      for (let p = 0; p < count; p++) {
        const found = owners.filter((owner) => owner === p).length / owners.length;
        expect(Math.abs(found - map.shareOf(p))).toBeLessThan(0.02);
      }
    }
  });

  it('makes ids of each partition, in their order, and each once', () => {
    for (const count of [2, 12, 16, 300]) {
      const map = mapOf(count);
      const ids = Array.from({ length: 500 }, (_, i) => map.newIdOf(i % count));
      for (const [i, id] of ids.entries()) expect(map.ownerOf(id)).toBe(i % count);
      expect(new Set(ids).size).toBe(500);
      expect(timeOfId(ids[0] as string)).toBeDefined();
      expect([...ids].sort()).toEqual(ids);
    }
  });

  it('reads what it writes, and nothing else', () => {
    for (const map of [mapOf(2, 1), mapOf(16), mapOf(7, 3)]) {
      const read = PartitionMap.parse(map.layoutOf(1) as string, map.packed);
      expect(read).toEqual(map);
      expect(PartitionMap.indexIn(map.layoutOf(1) as string)).toBe(1);
    }
    expect(PartitionMap.parse('1 0/1', '')).toBe(PartitionMap.ONE);
    for (const layout of ['3', '1', '2 0/1', '1 1/16', '1 1/2 from', ''])
      expect(PartitionMap.parse(layout, 'a')).toBe(undefined);
  });

  it('is newer with more partitions, and with a growth that is done', () => {
    const inOrder = [PartitionMap.ONE, mapOf(4, 1), mapOf(4), mapOf(16, 4), mapOf(16)];
    for (const [i, one] of inOrder.entries())
      for (const [k, other] of inOrder.entries()) expect(one.isNewerThan(other)).toBe(i > k);
  });
});

describe('tags', () => {
  it.each([
    [4, 3],
    [16, 3],
    [16, 6],
    [64, 7],
  ])('spread %i partitions evenly over %i nodes', (count, nodes) => {
    for (const queue of ['orders', 'mail', 'a', 'webhook:retry']) {
      const slots = Array.from({ length: count }, (_, i) => slotOfKey(`{${i === 0 ? queue : tagFor(queue, i)}}`));
      expect(new Set(slots).size).toBe(count);
      const nodeOf = (slot: number) => Math.floor((slot * nodes) / 16_384);
      const loads = Array.from({ length: nodes }, (_, node) => slots.filter((slot) => nodeOf(slot) === node).length);
      expect(Math.max(...loads) - Math.min(...loads)).toBeLessThanOrEqual(2);
    }
  });

  it('are the same whoever makes them', () => expect(tagFor('orders', 5)).toBe(tagFor('orders', 5)));
});
