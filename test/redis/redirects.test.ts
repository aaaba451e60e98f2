import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { Connection } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { type Said, Scripted } from '../support/scripted.js';
import { freePort } from '../support/server.js';
import { until } from '../support/until.js';

const SLOT = 12_182; // of foo

const connect = (...places: string[]) => {
  const redis = new Connection(`redis://${places.join(',')}`);
  afterwards(() => redis.close());
  return redis;
};

/** A node that answers GET like this, and is the only owner of slots. */
const node = (get: (n: number, call: readonly string[]) => Said | Promise<Said>, slots?: () => Said) => {
  let n = 0;
  return during(
    Scripted.start(([command = '', ...args]) => {
      if (command === 'GET') return get(++n, args);
      if (command === 'CLUSTER') return slots?.() ?? new Error('ERR not now');
      return 'OK';
    }),
  );
};

const owner = (host: string, port: number, ...more: Said[]): Said => [[0, 16_383, [host, port, 'id', more]]];

describe('a call on a cluster', () => {
  it('goes to the host that answered if MOVED names only a port', async () => {
    const to = await node(() => 'here');
    const from = await node(() => new Error(`MOVED ${SLOT} :${to.port}`));
    expect(String(await connect(from.place).call('GET', 'foo'))).toBe('here');
  });

  it('goes to the owner again after an attempt that followed ASK', async () => {
    const to = await node(() => new Error('TRYAGAIN later'));
    const from = await node((n) => (n === 1 ? new Error(`ASK ${SLOT} ${to.place}`) : 'here'));
    expect(String(await connect(from.place).call('GET', 'foo'))).toBe('here');
    expect(to.calls).toEqual(['ASKING', 'GET foo']);
  });

  it.each(['call', 'pinned'] as const)('says ASKING where ASK sends it: %s', async (how) => {
    const to: Scripted = await node(() =>
      to.calls.at(-2) === 'ASKING' ? 'here' : new Error(`MOVED ${SLOT} ${from.place}`),
    );
    const from: Scripted = await node(() => new Error(`ASK ${SLOT} ${to.place}`));
    const redis = connect(from.place);
    for (let i = 0; i < 2; i++) {
      const get = (caller: Pick<Connection, 'call'>) => caller.call('GET', 'foo');
      expect(String(await (how === 'call' ? get(redis) : redis.pinned('foo', get)))).toBe('here');
    }
  });

  it.each([
    ['an address', (port: number) => owner('127.0.0.1', port)],
    ['no host', (port: number) => owner('', port)],
    ['an unknown host name', (port: number) => owner('?', port, 'ip', '127.0.0.1')],
  ])('goes by the map of another node if the owner cannot be reached: with %s', async (_, slots) => {
    const [first, to] = [await node(() => 'first'), await node(() => 'here')];
    let now = first;
    const from = await node(
      () => new Error(`MOVED ${SLOT} ${first.place}`),
      () => slots(now.port),
    );
    const redis = connect(from.place);
    expect(String(await redis.call('GET', 'foo'))).toBe('first');
    // It has looked at the map by itself, and does not again.
    await until(() => from.heard('CLUSTER SLOTS') === 2);
    now = to;
    await first.stop();
    // A call that was under way is lost.
    const get = () => redis.call('GET', 'foo').then(String, ({ code }) => code);
    await until(async () => (await get()) === 'here');
  });

  it('is not sent again so late that its reply could not be awaited', async () => {
    const delays = Array.from({ length: 12 }, (_, i) => 60 + 5 * i);
    const slow = await Promise.all(delays.map((ms) => node(() => sleep(ms).then(() => new Error('TRYAGAIN later')))));
    const calls = slow.map(({ place }) =>
      connect(place)
        .call('GET', 'foo')
        .catch(({ code }) => code),
    );
    expect(new Set(await Promise.all(calls))).toEqual(new Set(['temporary']));
    expect(new Set(slow.map(({ connections }) => connections))).toEqual(new Set([1]));
  });

  it('ends in time although the cluster is gone, however many nodes it has', async () => {
    const gone = await Promise.all(Array.from({ length: 18 }, () => freePort()));
    const from = await node(() => new Error(`MOVED ${SLOT} 127.0.0.1:${gone[0]}`));
    const redis = connect(from.place, ...gone.map((port) => `127.0.0.1:${port}`));
    await redis.call('PING');
    const started = performance.now();
    const ended = expect(redis.call('GET', 'foo')).rejects.toMatchObject({ code: 'unreachable' });
    await until(() => from.heard('GET') > 0);
    await from.stop();
    await ended;
    expect(performance.now() - started).toBeLessThan(6_000);
  });

  it('is not lost when its node is too busy to show the map to others', async () => {
    const other = await node(
      () => 'there',
      () => owner('127.0.0.1', other.port),
    );
    const busy: Scripted = await during(
      Scripted.start(async ([command, key]): Promise<Said> => {
        if (command === 'GET' && key === 'bar') return new Error(`MOVED 5061 ${other.place}`);
        await sleep(1_500);
        return command === 'GET' ? 'here' : [[0, 16_383, ['127.0.0.1', busy.port, 'id']]];
      }),
    );
    const redis = connect(busy.place);
    // By now it is known to be a cluster.
    expect(String(await redis.call('GET', 'bar'))).toBe('there');
    const call = redis.call('GET', 'foo');
    expect(await redis.nodes()).toHaveLength(1);
    expect(String(await call)).toBe('here');
    expect(busy.connections).toBe(1);
  });
});

describe('a list of servers of which the last is the primary', () => {
  const replica = () => during(Scripted.start(() => new Error('READONLY replica')));

  it.each(['call', 'pinned'] as const)('is tried to its end: %s', async (how) => {
    const [one, two] = [await replica(), await replica()];
    const primary = await during(Scripted.start(() => 'OK'));
    const redis = connect(one.place, two.place, primary.place);
    const set = () =>
      how === 'call' ? redis.call('SET', 'foo', 1) : redis.pinned('foo', (pinned) => pinned.call('SET', 'foo', 1));
    expect(String(await set())).toBe('OK');
    expect(primary.calls).toEqual(['SET foo 1']);
  });

  it('loses no call that the replica is about to refuse', async () => {
    const demoted = await during(
      Scripted.start(async ([, key]) => {
        if (key === 'bar') await until(() => demoted.heard('SET foo') > 0 && sleep(100, true));
        return new Error('READONLY replica');
      }),
    );
    const primary = await during(Scripted.start(() => 'OK'));
    const redis = connect(demoted.place, primary.place);
    await Promise.all([redis.call('SET', 'foo', 1), redis.call('SET', 'bar', 1)]);
    expect(primary.calls.sort()).toEqual(['SET bar 1', 'SET foo 1']);
  });
});
