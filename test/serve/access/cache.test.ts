import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection } from '../../../src/index.js';
import { TokenCache } from '../../../src/serve/access/cache.js';
import { Recent } from '../../../src/serve/access/recent.js';
import { hashOf, Tokens } from '../../../src/serve/access/tokens.js';
import { ManualClock } from '../../support/manual-clock.js';
import { Server } from '../../support/server.js';

let server: Server;
let connection: Connection;
let tokens: Tokens;

beforeAll(async () => {
  server = await Server.start();
  connection = new Connection(server.url);
  tokens = new Tokens(connection, 'delayq');
});
afterAll(async () => {
  connection.close();
  await server.stop();
});

const looks = async () => Number(/cmdstat_hget:calls=(\d+)/.exec(await server.admin.info('commandstats'))?.[1] ?? 0);

describe('the cache of tokens', () => {
  it('asks once for all who ask at the same time, and then not at all', async () => {
    const hash = hashOf(await tokens.add('shop'));
    const cache = new TokenCache(tokens);
    expect(cache.get(hash)).toBeUndefined();
    const before = await looks();
    const all = await Promise.all(Array.from({ length: 100 }, () => cache.ask(hash)));
    expect(new Set(all).size).toBe(1);
    for (let n = 0; n < 1_000; n++) expect(cache.get(hash)).toMatchObject({ hash, ns: 'shop' });
    expect((await looks()) - before).toBe(1);
  });

  it('trusts no answer that is older than 5 s', async () => {
    const hash = hashOf(await tokens.add('shop'));
    const clock = new ManualClock();
    const cache = new TokenCache(tokens, clock);
    await cache.ask(hash);
    const before = await looks();
    clock.pass(4_999);
    expect(cache.get(hash)).toMatchObject({ hash });
    expect(await looks()).toBe(before);
    clock.pass(1);
    expect(cache.get(hash)).toBeUndefined();
  });

  it('refuses a token as soon as it hears that it was removed', async () => {
    const hash = hashOf(await tokens.add('shop'));
    const cache = new TokenCache(tokens);
    const token = await cache.ask(hash);
    if (token) await tokens.remove(token);
    expect(cache.get(hash)).toMatchObject({ hash });
    await cache.ask(hash);
    expect(cache.get(hash)).toBeNull();
    expect(cache.wasKnown(hash)).toBe(false);
  });

  it('knows for a second that there is no such token, then asks again', async () => {
    const clock = new ManualClock();
    const cache = new TokenCache(tokens, clock);
    const hash = hashOf('nobody has this one');
    expect(await cache.ask(hash)).toBeUndefined();
    clock.pass(999);
    expect(cache.get(hash)).toBeNull();
    expect(cache.wasKnown(hash)).toBe(false);
    clock.pass(1);
    expect(cache.get(hash)).toBeUndefined();
  });

  it('does not keep the reply to a question that is older than a change', async () => {
    const hash = hashOf(await tokens.add('shop'));
    const cache = new TokenCache(tokens);
    const asked = cache.ask(hash);
    cache.forget(hash);
    await asked;
    expect(cache.get(hash)).toBeUndefined();
  });

  it('knows nothing more when Redis does not answer, and asks again', async () => {
    const lost = new Connection('redis://127.0.0.1:1');
    const cache = new TokenCache(new Tokens(lost, 'delayq'));
    await expect(cache.ask('x')).rejects.toMatchObject({ code: 'unreachable' });
    expect(cache.get('x')).toBeUndefined();
    await expect(cache.ask('x')).rejects.toMatchObject({ code: 'unreachable' });
    lost.close();
  });
});

describe('a map of a bounded size', () => {
  it('forgets what was set longest ago', () => {
    const recent = new Recent<string, number>(2);
    for (const [i, key] of ['a', 'b', 'a', 'c'].entries()) recent.set(key, i);
    expect([recent.get('a'), recent.get('b'), recent.get('c')]).toEqual([2, undefined, 3]);
  });
});
