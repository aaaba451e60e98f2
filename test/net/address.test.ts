import { Cluster, Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { Connection, type ConnectOptions, connect, Queue } from '../../src/index.js';
import { addressAt, addressOf } from '../../src/net/address.js';
import { LIBRARY_NAMES } from '../../src/net/errors.js';
import { afterwards, during } from '../support/afterwards.js';
import { freshName, redisUrl } from '../support/redis.js';
import { Server } from '../support/server.js';

const refusal = (given: unknown) => connect(given as ConnectOptions).catch((error) => error);

describe('connect() with options', () => {
  it('connects as the URL that says the same', async () => {
    const server = await during(Server.start({ tcp: true }));
    await server.admin.call('ACL', 'SETUSER', 'me', 'on', '>p@ss:1', '+@all', '~*', '&*');
    const { port, socket: path } = server;
    const login = { username: 'me', password: 'p@ss:1', db: 3 };
    for (const options of [
      { host: '127.0.0.1', port, ...login },
      { path, ...login, tls: undefined },
    ]) {
      const name = freshName();
      const redis = await connect(options);
      afterwards(() => redis.close());
      await new Queue(redis, name).enqueue({ payload: 1 });
      const url = 'path' in options ? `unix://me:p@ss:1@${path}?db=3` : `redis://me:p@ss:1@127.0.0.1:${port}/3`;
      const other = await connect(url);
      afterwards(() => other.close());
      expect(await new Queue(other, name).counts()).toMatchObject({ pending: 1 });
      expect(redis.address).toBe(other.address);
      expect(redis.address).not.toContain('me');
    }
  });

  it('logs in a user who needs no password', async () => {
    const server = await during(Server.start({ tcp: true }));
    await server.admin.call('ACL', 'SETUSER', 'me', 'on', 'nopass', '+@all', '~*', '&*');
    const redis = await connect({ port: server.port, username: 'me' });
    afterwards(() => redis.close());
    expect(String(await redis.call('ACL', 'WHOAMI'))).toBe('me');
  });

  it.each([
    [{}, 'redis://127.0.0.1:6379'],
    [{ host: '::1', db: 0 }, 'redis://[::1]:6379'],
    [{ host: 'h', port: 1, db: 2, password: 's3cret', tls: true }, 'rediss://h:1/2'],
    [{ tls: false }, 'redis://127.0.0.1:6379'],
    [{ path: '/run/r', db: 2, tls: false }, 'unix:///run/r?db=2'],
    [{ nodes: [{ host: 'h' }], cluster: false }, 'redis://h:6379'],
    [
      { nodes: [{ host: 'h1' }, { host: '::1', port: 7001 }], db: 2, password: 's3cret' },
      'redis://h1:6379,[::1]:7001/2',
    ],
    [{ port: 7000, cluster: true }, 'redis+cluster://127.0.0.1:7000'],
    [{ nodes: [{ host: 'h' }], cluster: true, tls: { ca: 'c' } }, 'rediss+cluster://h:6379'],
    [
      {
        sentinel: { name: 'a/b', nodes: [{ host: 's' }, { host: 't', port: 1 }], password: 's3cret' },
        db: 3,
        tls: true,
      },
      'rediss+sentinel://s:26379,t:1/a%2Fb/3',
    ],
  ])('%j means %s', (options, shown) => {
    expect(addressOf(options, LIBRARY_NAMES).shown).toBe(shown);
    expect(new Connection(options).address).toBe(shown);
  });

  it.each([
    [{ hots: 'h' }, 'connect() has no option "hots"', 'did you mean host?'],
    [{ tls: { rejectUnauthorized: false } }, 'tls has no option "rejectUnauthorized"', 'leave it out'],
    [{ port: '6379' }, 'port is not', '6379'],
    [{ port: 65536 }, 'port is not', '6379'],
    [{ db: -1 }, 'db is not', '0'],
    [{ host: '' }, 'host is not text, or empty', 'omit'],
    [{ host: 'me:s3cret@h' }, 'more than the name', 'URL'],
    [{ password: 5 }, 'password is not text', 'text'],
    [{ path: 'run/s3cret' }, 'not absolute', '/run/redis.sock'],
    [{ path: '/run/r', port: 1 }, 'path excludes', 'omit'],
    [{ path: '/run/r', tls: {} }, 'path excludes', 'omit'],
    [{ path: '/run/r', cluster: true }, 'path excludes', 'omit path, or omit cluster'],
    [{ host: 'h', nodes: [{ host: 'h1' }] }, 'nodes excludes', 'omit nodes, or omit host'],
    [{ host: 'h1,h2' }, 'more than the name', 'URL'],
    [{ cluster: 'yes' }, 'cluster is neither', 'cluster: true'],
    [{ cluster: true, db: 1 }, 'only database 0', 'another prefix'],
    ['redis+cluster://:s3cret@h1,h2/1', 'only database 0', 'another prefix'],
    [{ nodes: [] }, 'nodes is not an array, or empty', "host: 'h1'"],
    [{ nodes: 'h1,h2' }, 'nodes is not an array', "host: 'h1'"],
    [{ nodes: ['me:s3cret@h1'] }, 'a node must be an object', 'host, port'],
    [{ nodes: [{ host: 'h1', prot: 7000 }] }, 'a node has no option "prot"', 'did you mean port?'],
    [{ nodes: [{ host: 'h1', password: 's3cret' }] }, 'a node has no option "password"', 'leave it out'],
    [{ nodes: [{ port: 7000 }] }, 'one of nodes has no host', "host: 'h1'"],
    [{ nodes: [{ host: 'me:s3cret@h1' }] }, 'more than the name', 'URL'],
    [{ nodes: [{ host: 'h1', port: 0 }] }, 'port is not', '6379'],
    [{ sentinel: {} }, 'sentinel has no name', 'mymaster'],
    [{ sentinel: 'mymaster' }, 'sentinel must be an object', 'name, nodes'],
    [{ sentinel: { name: 'm' } }, 'sentinel.nodes is not an array', "host: 'h1'"],
    [{ sentinel: { name: '', nodes: [{ host: 's' }] } }, 'sentinel.name is not text', 'omit'],
    [{ sentinel: { nmae: 'm' } }, 'sentinel has no option "nmae"', 'did you mean name?'],
    [{ sentinel: { name: 'm', nodes: [{ host: 's', db: 1 }] } }, 'a node has no option "db"', 'leave'],
    [{ sentinel: { name: 'm', nodes: [{ host: 's' }], password: 5 } }, 'sentinel.password is not text', 'text'],
    [
      { sentinel: { name: 'm', nodes: [{ host: 's' }], password: 's3cret', passwordFile: '/f' } },
      'sentinel.password excludes passwordFile',
      'omit one',
    ],
    [{ sentinel: { name: 'm', nodes: [{ host: 's' }] }, cluster: true }, 'sentinel excludes', 'omit cluster'],
    [{ sentinel: { name: 'm', nodes: [{ host: 's' }] }, host: 'h' }, 'sentinel excludes', 'or omit host'],
    [{ tls: 'yes' }, 'tls is neither', 'tls: true'],
    [{ tls: { ca: 5 } }, 'tls.ca is not', 'path'],
    [{ tls: { key: '/k' } }, 'key for TLS is given alone', 'tls.cert'],
    [{ tls: { cert: '/c' } }, 'certificate for TLS is given alone', 'tls.key'],
    [new URL('redis://:s3cret@h'), 'neither a URL as text', "'redis://host:6379'"],
    [[{ host: 'h' }], 'neither a URL as text', 'host'],
    [null, 'neither a URL as text', 'host'],
    [6379, 'neither a URL as text', 'host'],
  ])('refuses %j with what to write, and shows no secret', async (given, why, next) => {
    const error = await refusal(given);
    expect(error).toMatchObject({ code: 'usage', next: expect.stringContaining(next) });
    expect(`${error.message}: ${error.why}`).toContain(why);
    expect(`${error.message} ${error.why} ${error.next}`).not.toContain('s3cret');
  });

  it('asks one server as ever, and knows the others of a list with the same login', () => {
    expect(addressOf('redis://h:7000/2', LIBRARY_NAMES).several).toBeUndefined();
    const list = addressOf('rediss://me:pw@h1:7000,h2/2', LIBRARY_NAMES);
    const places = [
      { host: 'h1', port: 7000 },
      { host: 'h2', port: 6379 },
    ];
    expect(list).toMatchObject({ options: { ...places[0], username: 'me' }, several: { kind: 'any', places } });
    expect(addressAt(list, { host: '::1', port: 1 })).toEqual({
      options: { host: '::1', port: 1, path: undefined, username: 'me', password: 'pw', db: 2 },
      tls: {},
      shown: 'rediss://[::1]:1',
    });
    expect(addressOf('redis+cluster://h', LIBRARY_NAMES).several).toMatchObject({ kind: 'cluster' });
  });

  it('refuses a client of another library, because its settings may send a script twice', async () => {
    const settings = { lazyConnect: true, password: 's3cret' };
    const clients = [
      new Redis(settings),
      new Cluster(['redis://127.0.0.1:1'], { lazyConnect: true }),
      // As @redis/client shows itself.
      { isOpen: false, sendCommand: async () => {}, options: settings },
    ];
    for (const client of clients) {
      const error = await refusal(client);
      expect(error).toMatchObject({
        code: 'usage',
        why: expect.stringContaining('send a script twice'),
        next: expect.stringContaining('URL, or the host, port'),
      });
      expect(`${error.message} ${error.why} ${error.next}`).not.toContain('s3cret');
    }
    const own = await connect(redisUrl);
    afterwards(() => own.close());
    expect(await refusal(own)).toMatchObject({ code: 'usage', why: expect.stringContaining('neither a URL') });
  });
});
