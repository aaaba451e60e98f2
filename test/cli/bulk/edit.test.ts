import { describe, expect, it } from 'vitest';
import { Connection, Inspector, pausedUntil, Queue } from '../../../src/internal.js';
import { afterwards, during } from '../../support/afterwards.js';
import { delayq } from '../../support/cli.js';
import { listed } from '../../support/jobs.js';
import { admin, connection, freshName, key } from '../../support/redis.js';
import { Server } from '../../support/server.js';

const inspector = new Inspector(connection);

describe('commands that edit jobs', () => {
  it('work on a server that is full (failures 4)', async () => {
    const server = await during(Server.start());
    const redis = new Connection(server.url);
    afterwards(() => redis.close());
    const queue = new Queue(redis, 'q');
    await queue.enqueue(['a', 'b', 'c', 'd', 'e'].map((id) => ({ payload: id, id, in: id === 'a' ? 0 : '1h' })));
    await queue.drain();
    await server.admin.config('SET', 'maxmemory', '1mb');
    const env = { DELAYQ_REDIS_URL: server.url };
    await expect(queue.enqueue({ payload: 1 })).rejects.toMatchObject({ code: 'temporary' });
    for (const args of [
      ['pause', '--for', '1h', 'q'],
      ['reschedule', '--in', '2h', 'q', 'b', 'c'],
      ['bury', '--reason', 'x'.repeat(1_000), 'q', 'd', 'e'],
      ['requeue', '--rate', '1/s', 'q', 'd'],
      ['cancel', 'q', 'a', 'b'],
      ['resume', 'q'],
      ['purge', '--yes', 'q'],
      ['purge', '--forget', '--yes', 'q'],
    ])
      expect({ args, ...(await delayq(args, { env })) }).toMatchObject({ args, code: 0 });
    // Whoever holds a has still to be told.
    expect(await server.admin.keys('*')).toEqual(['delayq:{q}:lease']);
  });

  it('on a queue that other software has spoilt go through', async () => {
    const name = freshName();
    await admin
      .multi()
      .hset(key(name, 'payload'), 'a', 'no json', 'b', '2', 'c', '3')
      .zadd(key(name, 'pending'), 'inf', 'a', '-inf', 'b', 1.5, 'ghost')
      .zadd(key(name, 'active'), 5, 'c')
      .hset(key(name, 'meta'), 'a', 'no json', 'b', '{"first":"x","tries":[]}')
      .hset(key(name, 'lease'), 'c', '')
      .hset(key(name, 'stats'), 'buried', 'many', 'rescheduled', 'x')
      .hset(key(name, 'config'), 'layout', '1 0/1 uses settings', 'paused', 'perhaps')
      .exec();
    expect(pausedUntil(await inspector.inspect(name))).toBeUndefined();
    expect(await delayq(['reschedule', '--all', '--yes', '--in', '1h', name])).toMatchObject({ code: 0 });
    expect(await listed('--pending', name)).toEqual(['b', 'ghost', 'a']);
    expect(await delayq(['bury', '--all', '--yes', name])).toMatchObject({ code: 0 });
    expect(await delayq(['pause', name])).toMatchObject({ code: 0 });
    expect(await delayq(['resume', name])).toMatchObject({ code: 0 });
    expect(await delayq(['requeue', '--all', '--yes', name])).toMatchObject({ code: 1 });
    expect(await delayq(['cancel', name, 'c'])).toMatchObject({ code: 0 });
    expect(await delayq(['purge', '--yes', name])).toMatchObject({ code: 0 });
  });

  it.each(['reschedule', 'bury', 'purge', 'pause', 'resume', 'cancel', 'wait'])(
    '(%s) of an unknown queue exits 3',
    async (command) => {
      const more = { reschedule: ['--in', '1s', '--all'], bury: ['--all'], cancel: ['--all'] };
      const args = more[command as keyof typeof more] ?? [];
      expect(await delayq([command, ...args, freshName()])).toMatchObject({ code: 3, stdout: '' });
    },
  );
});
