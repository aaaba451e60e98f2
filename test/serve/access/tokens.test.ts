import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection } from '../../../src/index.js';
import { hashOf, type NewToken, Tokens } from '../../../src/serve/access/tokens.js';
import { ownRedis } from '../../support/serve.js';

let redis: Awaited<ReturnType<typeof ownRedis>>;
let connection: Connection;
let tokens: Tokens;

beforeAll(async () => {
  redis = await ownRedis();
  connection = new Connection(redis.url);
  tokens = new Tokens(connection, 'delayq');
});
afterAll(() => connection.close());

/** A namespace that no other test uses. */
let namespaces = 0;
const fresh = () => `ns${namespaces++}`;

describe('a token', () => {
  it('is 32 random bytes as base64url; Redis keeps its SHA-256, and never its text', async () => {
    const ns = fresh();
    const text = await tokens.add(ns, { description: 'orders' });
    expect(text).toMatch(/^[A-Za-z0-9_-]{43}$/);
    const stored = (await connection.call('HGETALL', 'delayq:http:tokens')) as Buffer[];
    expect(stored.map(String)).toContain(hashOf(text));
    expect(stored.map(String).join()).not.toContain(text);
    expect(await tokens.add(ns)).not.toBe(text);
  });

  it('has a namespace, publish and consume, a description, and when it was made', async () => {
    const ns = fresh();
    const now = await connection.now();
    const hash = hashOf(await tokens.add(ns, { description: 'orders' }));
    const [found] = await tokens.list(ns);
    expect(found).toEqual({
      hash,
      fingerprint: hash.slice(0, 12),
      ns,
      description: 'orders',
      rights: ['publish', 'consume'],
      limits: undefined,
      created: expect.any(Number),
    });
    expect(found?.created).toBeGreaterThanOrEqual(now);
    expect(found?.created).toBeLessThanOrEqual(await connection.now());
    expect(await tokens.get(hash)).toEqual(found);
  });

  it('may be a text that clients have already, once', async () => {
    const ns = fresh();
    const token = '01HVZ7Q6K1M4:old'.replace(':', '-').padEnd(20, 'x');
    expect(await tokens.add(ns, { token })).toBe(token);
    expect(await tokens.find(ns, token)).toMatchObject({ ns });
    await expect(tokens.add(fresh(), { token })).rejects.toMatchObject({ code: 'usage', message: /exists already/ });
    expect(await tokens.find(ns, token)).toMatchObject({ ns });
  });

  it.each<[string, string, NewToken]>([
    ['a namespace with a dot', 'a.b', {}],
    ['an empty namespace', '', {}],
    ['a text of 19 characters', 'shop', { token: 'x'.repeat(19) }],
    ['a text with a space', 'shop', { token: `${'x'.repeat(19)} ` }],
    ['a text with a colon', 'shop', { token: `pool:${'x'.repeat(20)}` }],
    ['no rights', 'shop', { rights: [] }],
    ['an unknown right', 'shop', { rights: ['publish', 'admin' as 'operate'] }],
    ['limits that are both 0', 'shop', { limits: { read: 0, write: 0, interval: 1 } }],
    ['a limit below 0', 'shop', { limits: { read: -1, write: 5, interval: 1 } }],
    ['a fraction', 'shop', { limits: { read: 1.5, write: 0, interval: 1 } }],
    ['no interval', 'shop', { limits: { read: 1, write: 1, interval: 0 } }],
  ])('is refused with %s, without saying its text, and nothing is stored', async (_, ns, given) => {
    const before = await tokens.count();
    const error = await tokens.add(ns, given).catch((error: Error) => error);
    expect(error).toMatchObject({ code: 'usage', next: expect.any(String) });
    if (given.token) expect(JSON.stringify(error) + String(error)).not.toContain(given.token);
    expect(await tokens.count()).toBe(before);
  });

  it('is found by its fingerprint or text in its own namespace alone', async () => {
    const [ns, other] = [fresh(), fresh()];
    const text = await tokens.add(ns);
    const fingerprint = hashOf(text).slice(0, 12);
    expect(await tokens.find(ns, fingerprint)).toMatchObject({ ns });
    expect(await tokens.find(other, fingerprint)).toBeUndefined();
    expect(await tokens.find(other, text)).toBeUndefined();
  });

  it('that was removed does not come back with a change of its limits', async () => {
    const ns = fresh();
    const token = await tokens.find(ns, await tokens.add(ns));
    if (!token) throw new Error('it was made');
    expect(await tokens.limit(token, { read: 1, write: 2, interval: 3 })).toBe(true);
    expect(await tokens.list(ns)).toMatchObject([{ limits: { read: 1, write: 2, interval: 3 } }]);
    await tokens.remove(token);
    expect(await tokens.limit(token, { read: 1, write: 2, interval: 3 })).toBe(false);
    expect(await tokens.list(ns)).toEqual([]);
  });

  it('that other software has written badly is none', async () => {
    const records = [
      '',
      'null',
      '[]',
      '{"ns":1,"rights":[]}',
      '{"ns":"x"}',
      '{"ns":"x","rights":["publish"],"limits":{"read":"y"}}',
    ];
    for (const [i, record] of records.entries())
      await connection.call('HSET', 'bad:http:tokens', String(i).repeat(64), record);
    const bad = new Tokens(connection, 'bad');
    expect(await bad.list()).toEqual([]);
    expect(await bad.get('0'.repeat(64))).toBeUndefined();
  });
});
