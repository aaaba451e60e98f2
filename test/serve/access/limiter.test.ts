import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection } from '../../../src/index.js';
import { type Granted, Limiter } from '../../../src/serve/access/limiter.js';
import type { Limits, Token } from '../../../src/serve/access/tokens.js';
import { ownRedis } from '../../support/serve.js';
import { until } from '../../support/until.js';

let connection: Connection;
let limiter: Limiter;

beforeAll(async () => {
  connection = new Connection((await ownRedis()).url);
  limiter = new Limiter(connection, 'delayq');
});
afterAll(() => connection.close());

let tokens = 0;
const fresh = (): Token => {
  const hash = String(tokens++).padStart(64, '0');
  return { hash, fingerprint: hash.slice(0, 12), ns: 'shop', description: '', rights: [], created: 0 };
};
const limit = (read: number): Limits => ({ read, write: 0, interval: 3_600 });
const take = (token: Token, n: number, limits = limit(3), by = limiter) =>
  Promise.all(Array.from({ length: n }, () => by.take(token, limits, 'read')));
const granted = (all: readonly Granted[]) => all.filter(({ window }) => window !== undefined).length;

describe('a limit', () => {
  it('lets so many requests of an interval through, also of those that come at once', async () => {
    const token = fresh();
    expect(granted(await take(token, 2))).toBe(2);
    const more = await take(token, 5);
    expect(granted(more)).toBe(1);
    expect(more.at(-1)?.restMs).toBeGreaterThan(3_000_000);
    expect(more.at(-1)?.restMs).toBeLessThanOrEqual(3_600_000);
    expect(granted(await take(token, 5))).toBe(0);
  });

  it('begins anew after its interval', async () => {
    const token = fresh();
    expect(granted(await take(token, 4))).toBe(3);
    await connection.call('HSET', 'delayq:http:used', `${token.hash}:read`, `3 ${await connection.now()}`);
    expect(granted(await take(token, 1))).toBe(1);
    expect(granted(await take(token, 4))).toBe(2);
  });

  it('is one for all servers, and for each token its own', async () => {
    const [token, other] = [fresh(), fresh()];
    const second = new Limiter(connection, 'delayq');
    expect(granted(await take(token, 2))).toBe(2);
    expect(granted(await take(token, 2, limit(3), second))).toBe(1);
    expect(granted(await take(other, 3))).toBe(3);
  });

  it('counts its two sides apart', async () => {
    const token = fresh();
    const limits = { read: 1, write: 1, interval: 60 };
    expect(granted([await limiter.take(token, limits, 'read')])).toBe(1);
    expect(granted([await limiter.take(token, limits, 'write')])).toBe(1);
    expect(granted([await limiter.take(token, limits, 'read')])).toBe(0);
  });

  it('gets back what a request has not used, unless its interval is over', async () => {
    const token = fresh();
    const [first] = await take(token, 3);
    limiter.giveBack(token, 'read', first?.window as string);
    await until(async () => granted(await take(token, 1)) === 1);
    limiter.giveBack(token, 'read', '12345');
    await limiter.take(fresh(), limit(1), 'read');
    expect(granted(await take(token, 1))).toBe(0);
  });

  it('lasts no longer than its interval after the clock of Redis has stepped back', async () => {
    const token = fresh();
    const till = (await connection.now()) + 2 * 3_600_000;
    await connection.call('HSET', 'delayq:http:used', `${token.hash}:read`, `3 ${till}`);
    expect(granted(await take(token, 1))).toBe(1);
  });

  it('costs one call for all requests that wait', async () => {
    const token = fresh();
    const calls = async () => {
      const nodes = (await connection.nodes()).map((node) => node.call('INFO', 'commandstats'));
      const counts = (await Promise.all(nodes)).map((info) =>
        Number(/cmdstat_evalsha:calls=(\d+)/.exec(String(info))?.[1] ?? 0),
      );
      return counts.reduce((sum, count) => sum + count, 0);
    };
    await take(token, 1);
    const before = await calls();
    await take(token, 250, limit(1_000));
    expect((await calls()) - before).toBe(1);
  });
});
