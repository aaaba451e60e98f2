import { describe, expect, it } from 'vitest';
import { delayq } from '../../support/cli.js';
import { admin, freshQueue, key } from '../../support/redis.js';

describe('delayq config', () => {
  it('sets defaults that hold for jobs and commands that say nothing else', async () => {
    const queue = freshQueue();
    const set = ['tries=2', 'backoff=0s,1h', 'lease=5m', 'maxLost=3', 'ttl=2d'];
    expect(await delayq(['config', queue.name, ...set])).toMatchObject({ code: 0, stderr: '' });
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({
      tries: '2',
      backoff: '0 3600000',
      lease: '300000',
      maxLost: '3',
      ttl: '172800000',
    });
    await queue.enqueue({ payload: 1, id: 'a' });
    const handler = ['--', 'sh', '-c', 'echo $DELAYQ_TRIES; exit 1'];
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 0, stdout: '2\n' });
    expect((await queue.counts()).due).toBe(1);
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 1 });
    expect((await queue.counts()).dead).toBe(1);
  });

  it('shows them in words, also after a change, and with --json as a document; name= removes one', async () => {
    const queue = freshQueue();
    await delayq(['config', queue.name, 'backoff=30s,1m30s', 'ttl=1h']);
    const { stdout } = await delayq(['config', '--json', queue.name]);
    const defaults = { schema: 1, queue: queue.name, tries: 5, maxLost: 20, lease: 60_000 };
    expect(JSON.parse(stdout)).toEqual({
      ...defaults,
      backoff: [30_000, 90_000],
      ttl: 3_600_000,
      partitions: 1,
      growth: null,
      set: ['backoff', 'ttl'],
    });
    const text = (await delayq(['config', queue.name, 'ttl='])).stdout;
    expect(text).toMatch(/tries +5 +default/);
    expect(text).toMatch(/backoff +30s,1m30s +wait/);
    expect(text).toMatch(/ttl +none +default/);
    expect(text).toMatch(/partitions +1 +default/);
    expect((await delayq(['inspect', '--json', queue.name])).code).toBe(0);
  });

  it('changes nothing when one of the settings is wrong', async () => {
    const queue = freshQueue();
    for (const bad of ['tries=0', 'speed=9', 'tries', 'lease=90', '=5'])
      expect(await delayq(['config', queue.name, 'tries=3', bad])).toMatchObject({ code: 64, stdout: '' });
    expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
  });

  it('leaves other fields of the config alone', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'paused', 'inf', 'layout', '1');
    await delayq(['config', queue.name, 'tries=3']);
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({ paused: 'inf', layout: '1', tries: '3' });
  });
});
