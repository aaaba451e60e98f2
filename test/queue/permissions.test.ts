import { afterAll, describe, expect, it } from 'vitest';
import { Connection, Queue, Transfer } from '../../src/index.js';
import { serverWith } from '../support/doctor.js';
import { freshName, key, timePasses } from '../support/redis.js';
import { luaTexts } from '../support/scripts.js';

const commands = [
  ...new Set(luaTexts().flatMap((one) => [...one.matchAll(/\b(?:call|try)\('([A-Z]+)'/g)].map(([, name]) => name))),
].filter((name) => name !== 'TIME') as string[];

describe('a user who may not run one of the commands', () => {
  const opened: Connection[] = [];
  afterAll(() => {
    for (const connection of opened) connection.close();
  });
  const open = (url: string) => {
    const connection = new Connection(url);
    opened.push(connection);
    return connection;
  };

  const drains = {
    'one due job': { due: 1, held: 0, options: {} },
    'many due jobs': { due: 30, held: 0, options: {} },
    'due jobs, at most once': { due: 3, held: 0, options: { leaseMs: 0 } },
    'expired leases': { due: 0, held: 5, options: {} },
  };

  it.each(['a hash', 'string keys'])('loses no job by an adopt of %s', async (kind) => {
    const server = await serverWith();
    let refused = 0;
    for (const command of commands) {
      const user = `no-${command.toLowerCase()}`;
      await server.admin.call('ACL', 'SETUSER', user, 'reset', 'on', '>secret', '~*', '&*', '+@all', `-${command}`);
      const mine = open(server.url.replace('unix://', `unix://${user}:secret@`));
      const [name, zset, hash] = [freshName(), freshName(), freshName()];
      await server.admin.zadd(zset, 1, 'a', 2, 'b');
      const isHash = kind === 'a hash';
      if (isHash) await server.admin.hset(hash, 'a', '1', 'b', '2');
      else await server.admin.mset(`${hash}a`, '1', `${hash}b`, '2');
      const from = isHash ? { hash } : { stringKeys: `${hash}{id}` };
      await (async () => {
        for await (const _ of new Transfer(mine).adopt(name, { zset, ...from, unit: 'ms' }));
      })().catch(() => {
        refused += 1;
      });
      const [scheduled, values, pending, payloads] = await Promise.all([
        server.admin.zrange(zset, '0', '-1'),
        isHash ? server.admin.hkeys(hash) : server.admin.keys(`${hash}?`),
        server.admin.zrange(key(name, 'pending'), '0', '-1'),
        server.admin.hkeys(key(name, 'payload')),
      ]);
      expect([...scheduled, ...pending].sort(), command).toEqual(['a', 'b']);
      expect(values.map((one) => one.replace(hash, '')).sort(), command).toEqual(scheduled.sort());
      expect(payloads.sort(), command).toEqual(pending.sort());
    }
    expect(refused).toBeGreaterThan(5);
  });

  it.each(Object.entries(drains))('loses no job by a drain of %s', async (_, { due, held, options }) => {
    const server = await serverWith();
    const all = open(server.url);
    let refused = 0;
    for (const command of commands) {
      const user = `no-${command.toLowerCase()}`;
      const rules = ['~*', '&*', '+@all', `-${command}`];
      await server.admin.call('ACL', 'SETUSER', user, 'reset', 'on', '>secret', ...rules);
      const mine = open(server.url.replace('unix://', `unix://${user}:secret@`));
      const name = freshName();
      const queue = new Queue(all, name);
      const payloads = (n: number) => Array.from({ length: n }, () => ({ payload: 1 }));
      await queue.enqueue([...payloads(held), { payload: 1, in: '1h' }]);
      if (held > 0) await queue.drain({ leaseMs: 1_000 });
      await timePasses(name, 2_000, server.admin);
      await queue.enqueue(payloads(due));
      const ids = await server.admin.hkeys(key(name, 'payload'));
      for (let i = 0; i < 2; i++) {
        const drained = await new Queue(mine, name).drain(options).catch(() => undefined);
        if (drained) {
          const taken = 'leaseMs' in options ? drained.jobs.map(({ id }) => id) : [];
          for (const id of taken) ids.splice(ids.indexOf(id), 1);
        } else refused += 1;
      }
      const sets = await Promise.all(
        ['pending', 'active'].map((one) => server.admin.zrange(key(name, one), '0', '-1')),
      );
      expect([...new Set(sets.flat())].sort(), command).toEqual(ids.sort());
      expect(await server.admin.hexists(key(name, 'lease'), ''), command).toBe(0);
    }
    expect(refused).toBeGreaterThan(10);
  });
});
