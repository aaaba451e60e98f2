import { spawnSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it } from 'vitest';
import { Auditor, connect, Inspector, type NewJob, Operator, Queue, Recurring } from '../src/index.js';
import { during } from './support/afterwards.js';
import { Authority } from './support/certificates.js';
import { sh } from './support/cli.js';
import { Cluster } from './support/cluster.js';
import { show } from './support/handlers.js';
import { admin, connection, freshName, freshQueue, key, onCluster, timePasses } from './support/redis.js';
import { Sentinels } from './support/sentinel.js';
import { freePort, Server } from './support/server.js';

const path = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const has = (command: string, ...args: string[]) => spawnSync(command, args).status === 0;

/** The producers in examples/, each with the command that runs it, where what it needs is installed. */
const producers = [
  ['php-redis', `php ${path('producer.php')}`, has('php', '-r', 'exit(class_exists("Redis") ? 0 : 1);')],
  ['Predis', `php ${path('predis.php')}`, has('php', '-r', 'exit((int) !@include "Predis/autoload.php");')],
  ['redis-py', `/usr/bin/python3 ${path('producer.py')}`, has('/usr/bin/python3', '-c', 'import redis')],
] as const;
const there = producers.filter(([, , isThere]) => isThere);

const PAYLOAD = `{"orderId":42,"note":"it's \\"quoted\\" $(touch x) %"}`;

/** Runs a producer with these words. */
const run = (command: string, words: readonly string[], env: Record<string, string> = {}) =>
  sh(`${command} ${words.map((_, i) => `"$W${i}"`).join(' ')}`, {
    env: { ...Object.fromEntries(words.map((word, i) => [`W${i}`, word])), ...env },
  });

/** What a producer makes of a job in 15 minutes; `error` if it fails. */
const answer = async (command: string, act: string, queue: string, id: string, payload = '{"n":2}') => {
  const words = [act, queue, id, ...(act === 'cancel' ? [] : ['900', payload])];
  const { code, stdout } = await run(command, words);
  return code === 0 ? stdout.trim() : 'error';
};

/** All that a queue stores, but its counters. */
const stored = async (queue: string) =>
  Promise.all(
    ['pending', 'active', 'dead', 'done', 'payload', 'meta', 'lease'].map(async (name) => {
      const type = await admin.type(key(queue, name));
      return type === 'hash'
        ? admin.hgetall(key(queue, name))
        : admin.zrange(key(queue, name), '0', '-1', 'WITHSCORES');
    }),
  );

const enqueues = async (ended: Awaited<ReturnType<typeof sh>>, name: string) => {
  expect(ended).toMatchObject({ code: 0, stderr: '' });
  const id = ended.stdout.trim();
  const { pending, payload, now, upcoming } = await new Queue(connection, name).counts(1);
  expect({ pending, payload, id: upcoming[0]?.id }).toEqual({ pending: 1, payload: 1, id });
  expect((upcoming[0]?.due ?? 0) - now).toBeGreaterThan(880_000);
  expect((upcoming[0]?.due ?? 0) - now).toBeLessThanOrEqual(900_000);
  expect(await admin.hget(key(name, 'payload'), id)).toBe(PAYLOAD);
  expect(await admin.sismember('delayq:queues', name)).toBe(1);
};

describe('a job written with ZADD, HSET and SADD alone', { concurrent: true }, () => {
  const write = async (queue: Queue, id: string, record?: object) => {
    const writes = admin.multi().hset(key(queue.name, 'payload'), id, PAYLOAD);
    if (record) writes.hset(key(queue.name, 'meta'), id, JSON.stringify(record));
    await writes.zadd(key(queue.name, 'pending'), await connection.now(), id).exec();
    await admin.sadd('delayq:queues', queue.name);
  };

  /** Takes such jobs with all that they have; one is done, and one fails as often as it may. */
  const drains = async (queue: Queue) => {
    await write(queue, 'order:42');
    const { jobs } = await queue.drain({ limit: 1 });
    expect(jobs.map(({ id, payload }) => [id, payload.toString()])).toEqual([['order:42', PAYLOAD]]);
    expect(await queue.ack(jobs)).toEqual(['held']);
    await write(queue, 'order:43', { tries: 1, 'a:tenant': '7' });
    const { jobs: others } = await queue.drain({ limit: 1 });
    expect(others.map(({ id, attributes }) => [id, attributes])).toEqual([['order:43', { tenant: '7' }]]);
    expect(await queue.nack(others)).toMatchObject([{ answer: 'dead' }]);
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: 1, payload: 1 });
    const found = await new Auditor(connection).examine(queue.name);
    expect(found).toMatchObject([{ check: 'jobs', level: 'ok' }, { check: 'dead' }]);
    expect(await new Inspector(connection).queues()).toContain(queue.name);
  };

  const operator = new Operator(connection);
  const recurring = new Recurring(connection);
  /** Has a queue use a limit of each kind, a window and a recurring job. */
  const useAll = async ({ name }: Queue) => {
    await operator.configure(name, { rate: { jobs: 1_000, perMs: 1_000 }, maxActive: 1, onceFor: 3_600_000 });
    await recurring.put(name, { id: 'daily', when: '1d', payload: 1 });
  };

  it('is drained, in a queue that nobody has made', async () => {
    const queue = freshQueue();
    await drains(queue);
    expect(await admin.exists(key(queue.name, 'config'), key(queue.name, 'done'))).toBe(0);
  });

  it('is drained in a queue that uses limits, a window and a recurring job, and its id is remembered', async () => {
    const queue = freshQueue();
    await useAll(queue);
    await drains(queue);
    await write(queue, 'order:44', { once: 60_000 });
    await queue.ack((await queue.drain()).jobs);
    const again = await queue.enqueue(['order:42', 'order:44'].map((id) => ({ id, payload: 1 })));
    expect(again.map(({ outcome }) => outcome)).toEqual(['kept-done', 'kept-done']);
    await timePasses(queue.name, 60_001);
    expect(await queue.enqueue({ id: 'order:44', payload: 1 })).toMatchObject({ outcome: 'created' });
  });

  it('is drained in a queue that has used all of them, and nothing of that is left', async () => {
    const queue = freshQueue();
    await useAll(queue);
    await queue.enqueue({ id: 'order:41', payload: 1 });
    await queue.ack((await queue.drain()).jobs);
    await operator.configure(queue.name, { rate: null, maxActive: null, onceFor: null });
    await recurring.remove(queue.name, ['daily']);
    await timePasses(queue.name, 3_600_001);
    await drains(queue);
    const left = await Promise.all(
      ['config', 'done', 'every', 'occurs'].map((name) => admin.type(key(queue.name, name))),
    );
    expect(left).toEqual(['none', 'none', 'none', 'none']);
  });
});

// The shared cluster has a URL of another form. Each producer is run on a cluster below.
describe.skipIf(onCluster)('a producer without delayq', { concurrent: true }, () => {
  it('enqueues with redis-cli', async () => {
    const name = freshName();
    const env = { REDISCLI_OPTIONS: `-s ${inject('redisSocket')}` };
    await enqueues(await run(path('enqueue-redis-cli.sh'), [name, '900', PAYLOAD], env), name);
  });

  describe.each(producers)('with %s', (_, command, isThere) => {
    it.runIf(isThere)('enqueues', async () => {
      const name = freshName();
      await enqueues(await run(command, ['enqueue', name, '900', PAYLOAD]), name);
    });

    it.runIf(isThere)(
      'refuses words that are not complete or not known, and a layout that it does not know',
      async () => {
        const { name } = freshQueue();
        for (const words of [
          ['keep', name, 'a', '900'],
          ['remove', name, 'a', '0', '1'],
          ['keep', name, 'a', 'soon', '1'],
        ]) {
          const ended = await run(command, words);
          expect(ended.code).not.toBe(0);
          expect(ended.stdout + ended.stderr).toMatch(/^usage/m);
        }
        expect(await admin.keys(`*{${name}}*`)).toEqual([]);
        await admin.hset(key(name, 'config'), 'layout', '2 0/1');
        expect(await run(command, ['enqueue', name, '0', '1'])).toMatchObject({ code: 1, stdout: '' });
        expect(await admin.keys(`*{${name}}*`)).toEqual([key(name, 'config')]);
      },
    );

    it.runIf(isThere)(
      'keeps, replaces and cancels a job in the partition of its id, unless the queue is growing',
      async () => {
        const [queue, operator] = [freshQueue(), new Operator(connection)];
        for await (const _ of operator.partition(queue.name, 6));
        const ids = ['order:1', 'order:2', 'order:3', 'daily@2026-11-23T08:00:00Z'];
        const act = (act: string, some = ids) => Promise.all(some.map((id) => answer(command, act, queue.name, id)));
        expect(await act('keep')).toEqual(ids.map(() => 'created'));
        // They are where delayq expects them: partition 0 has only its own.
        const again = await queue.enqueue(ids.map((id) => ({ id, payload: 2 })));
        expect(again.map(({ outcome }) => outcome)).toEqual(ids.map(() => 'kept'));
        expect(await act('keep', ids.slice(0, 1))).toEqual(['kept']);
        expect(await act('replace', ids.slice(1))).toEqual(['replaced', 'replaced', 'replaced']);
        expect(await act('cancel', ids.slice(2))).toEqual(['cancelled', 'cancelled']);
        expect(await queue.counts()).toMatchObject({ pending: 2, payload: 2 });
        // A growth does not end while a consumer holds jobs that must be moved, which some of these must.
        await queue.enqueue(Array.from({ length: 60 }, (_, i) => ({ id: `held:${i}`, payload: i })));
        while ((await queue.drain()).jobs.length > 0);
        for await (const _ of operator.partition(queue.name, 7)) break;
        expect((await operator.partitions(queue.name)).growth).toMatchObject({ from: 6 });
        for (const one of ['keep', 'replace', 'cancel']) expect(await act(one, ['order:1'])).toEqual(['error']);
        expect(await queue.counts()).toMatchObject({ pending: 2 });
        // Nobody looks for a new id.
        const { stdout } = await run(command, ['enqueue', queue.name, '900', PAYLOAD]);
        expect(await show(queue, stdout.trim())).toMatchObject({ state: 'pending' });
      },
    );
  });

  // All three do what the script says, so one of them tells of it.
  describe.each(there.slice(0, 1))('by the script of the examples, here with %s,', (_, command) => {
    it('replaces and cancels a pending job as delayq does, with all that it had', async () => {
      const [mine, theirs] = [freshQueue(), freshQueue()];
      const first: NewJob = { id: 'order:42', payload: 1, tries: 3, ttl: '1h', attributes: { tenant: '7' } };
      for (const queue of [mine, theirs]) {
        await queue.enqueue(first);
        const { jobs } = await queue.drain();
        await queue.nack(jobs, { error: 'no such host' });
        expect(await show(queue, 'order:42')).toMatchObject({ state: 'pending', failures: 1 });
      }
      await mine.enqueue({ id: 'order:42', payload: { n: 2 }, in: '15m' }, { ifExists: 'replace' });
      expect(await answer(command, 'replace', theirs.name, 'order:42')).toBe('replaced');
      const now = await connection.now();
      const [own, other] = (await Promise.all([mine, theirs].map((queue) => show(queue, 'order:42')))).map((job) => ({
        ...job,
        minutes: Math.round(((job?.due ?? 0) - now) / 60_000),
        due: undefined,
      }));
      expect(other).toEqual(own);
      expect(await answer(command, 'cancel', theirs.name, 'order:42')).toBe('cancelled');
      expect(await answer(command, 'cancel', theirs.name, 'order:42')).toBe('missing');
      expect(await admin.exists(...['pending', 'payload', 'meta'].map((name) => key(theirs.name, name)))).toBe(0);
      expect(await new Auditor(connection).examine(theirs.name)).toMatchObject([{ level: 'ok' }]);
    });

    it('leaves alone what a consumer holds, what is dead, and an id that is remembered', async () => {
      const queue = freshQueue();
      await queue.enqueue([
        { id: 'held', payload: 1 },
        { id: 'dead', payload: 1, tries: 1 },
        { id: 'done', payload: 1, onceFor: '1h' },
      ]);
      const { jobs } = await queue.drain();
      const named = (id: string) => jobs.filter((job) => job.id === id);
      await queue.nack(named('dead'), { error: 'no such order' });
      await queue.ack(named('done'));
      const before = await stored(queue.name);
      for (const act of ['keep', 'replace', 'cancel']) {
        expect(await answer(command, act, queue.name, 'held')).toBe('active');
        expect(await answer(command, act, queue.name, 'dead')).toBe('dead');
        expect(await answer(command, act, queue.name, 'done')).toBe(act === 'cancel' ? 'missing' : 'done');
      }
      expect(await stored(queue.name)).toEqual(before);
      // The consumer's lease still counts.
      expect(await queue.ack(named('held'))).toEqual(['held']);
      await timePasses(queue.name, 3_600_001);
      expect(await answer(command, 'replace', queue.name, 'done')).toBe('created');
    });

    it('changes nothing when a key has another type', async () => {
      const queue = freshQueue();
      await queue.enqueue({ id: 'a', payload: 1, in: '1h' });
      for (const name of ['meta', 'done']) {
        await admin.set(key(queue.name, name), 'text');
        for (const act of ['keep', 'replace', 'cancel']) {
          expect(await answer(command, act, queue.name, act === 'keep' ? 'b' : 'a')).toBe('error');
        }
        await admin.del(key(queue.name, name));
      }
      expect(await queue.counts()).toMatchObject({ pending: 1, payload: 1 });
    });
  });
});

describe('every producer reaches', { concurrent: true }, () => {
  const authority = new Authority();
  const { ca } = authority;

  /** Each makes a job at `url`, which is where delayq finds it, and cancels it. */
  const reaches = async (url: string, env: Record<string, string> = {}) => {
    const redis = await connect(env.DELAYQ_TLS_CA === undefined ? url : `${url}?ca=${encodeURIComponent(ca)}`);
    try {
      for (const [name, command] of there) {
        const queue = `${freshName()}:${name}`;
        const place = { DELAYQ_REDIS_URL: url, ...env };
        expect(await run(command, ['keep', queue, 'order:42', '900', PAYLOAD], place)).toMatchObject({
          ...{ code: 0, stdout: 'created\n', stderr: '' },
        });
        const [job] = await new Inspector(redis).show(queue, ['order:42']);
        expect(job?.payload?.toString()).toBe(PAYLOAD);
        expect(await new Inspector(redis).queues()).toContain(queue);
        expect(await run(command, ['cancel', queue, 'order:42'], place)).toMatchObject({ stdout: 'cancelled\n' });
      }
    } finally {
      redis.close();
    }
  };

  /** A password that a URL must not be read past; `%` is written `%25` in it. */
  const password = 'p@:s/3%cret';
  const login = `app:${password.replace('%', '%25')}@`;
  const config = `user default off\nuser app on ">${password}" ~* &* +@all\n`;

  it('a database, with a user and a password', async () => {
    const server = await during(Server.start({ tcp: true, user: 'app', password, config }));
    await reaches(`redis://${login}127.0.0.1:${server.port}/3`);
    expect(await server.admin.dbsize()).toBe(0);
    await reaches(`unix://${login}${server.socket}`);
  });

  /** Each refuses a server with TLS, and tells nobody the password. */
  const refuses = async (url: string, env: Record<string, string> = {}) => {
    for (const [name, command] of there) {
      const ended = await run(command, ['keep', 'q', 'a', '0', '1'], { DELAYQ_REDIS_URL: url, ...env });
      expect({ name, ...ended }).toMatchObject({ code: 1, stdout: '' });
      expect(ended.stderr).not.toContain('cret');
    }
  };

  it('a server with TLS, but none whose certificate is of another CA or another host', async () => {
    const start = async (name: string, san?: string) => {
      const { cert, key } = authority.issue(name, { san });
      const port = await freePort();
      const files = ['--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca];
      const args = ['--tls-port', String(port), ...files, '--tls-auth-clients', 'no'];
      const server = await during(Server.start({ args, user: 'app', password, config }));
      return { server, url: `rediss://${login}localhost:${port}` };
    };
    const good = await start('server');
    await reaches(`${good.url}/3`, { DELAYQ_TLS_CA: ca });
    await refuses(good.url);
    const other = await start('other', 'DNS:redis.example');
    await refuses(other.url, { DELAYQ_TLS_CA: ca });
    for (const { server } of [good, other]) expect(await server.admin.dbsize()).toBe(0);
  });

  it('the primary that Sentinels name, also if the first of them is down', async () => {
    const group = await during(Sentinels.start({ password: 's3cret' }));
    await group.sentinels[0]?.end('SIGKILL');
    await reaches(`${group.url}/3`);
  });

  it('a cluster', async () => {
    const cluster = await during(Cluster.start({ password: 's3cret' }));
    await reaches(cluster.url.replace('redis:', 'redis+cluster:'));
  });

  it('a cluster with TLS', async () => {
    const cluster = await during(Cluster.start({ tls: { ca, ...authority.issue('node') }, password: 's3cret' }));
    const url = cluster.url.replace('rediss:', 'rediss+cluster:');
    await reaches(url, { DELAYQ_TLS_CA: ca });
    await refuses(url);
  });
});
