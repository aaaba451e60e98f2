import { describe, expect, it } from 'vitest';
import { delayq, sh } from '../support/cli.js';
import { doctor, serverWith } from '../support/doctor.js';
import { VERSION } from '../support/limited-user.js';

describe.concurrent('the permissions of the user', () => {
  /** A server with a user who has these permissions; returns the URL for that user. */
  async function withUser(...rules: string[]): Promise<string> {
    const server = await serverWith();
    await server.admin.call('ACL', 'SETUSER', 'app', 'on', '>secret', ...rules);
    return server.url.replace('unix://', 'unix://app:secret@');
  }

  it.each([
    ['may ask', ['+acl']],
    ['may not ask, by trying commands that change nothing', ['-acl', '+acl|whoami']],
  ])('that are missing are named, when the user %s', async (_, acl) => {
    const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-zadd', '-hdel', ...acl);
    const { code, told } = await doctor(url);
    expect({ code, rights: told.rights }).toMatchObject({
      code: 2,
      rights: {
        level: 'fail',
        what: 'user app may not zadd, hdel',
        next: expect.stringMatching(/acl setuser app \+zadd \+hdel$/),
      },
    });
    expect(await sh(String(told.rights?.next))).toMatchObject({ stdout: 'OK\n' });
    expect((await doctor(url)).told.rights?.level).toBe('ok');
  });

  it.skipIf(VERSION < '7')(
    'for events are checked where a queue keeps them, as without them events are lost',
    async () => {
      const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-xadd', '+acl');
      expect(await delayq(['config', '--create', '--redis', url, 'q', 'tries=3'])).toMatchObject({ code: 0 });
      await delayq(['enqueue', '--redis', url, 'q', '1']);
      expect((await doctor(url)).told.rights?.level).toBe('ok');
      expect(await delayq(['config', '--redis', url, 'q', 'events=10'])).toMatchObject({ code: 0 });
      expect((await doctor(url)).told.rights).toMatchObject({ level: 'fail', what: 'user app may not xadd' });
    },
  );

  it('to publish are only a warning', async () => {
    const url = await withUser('~delayq:*', '+@all', 'resetchannels');
    expect((await doctor(url)).told.rights).toMatchObject({
      level: 'warn',
      next: expect.stringMatching(/acl setuser app '&delayq:\*'$/),
    });
  });

  it('for the partitions of a queue are checked too; those of --acl are sufficient', async () => {
    const server = await serverWith();
    const { url, admin } = server;
    expect(await delayq(['config', '--create', '--redis', url, 'q', 'partitions=2'])).toMatchObject({ code: 0 });
    const rules = (await delayq(['doctor', '--acl', '--redis-version', VERSION, 'q'])).stdout.trim();
    await admin.call('ACL', ...rules.replace(/#\S+/, '>secret').split(' ').slice(1));
    const own = url.replace('unix://', 'unix://app:secret@');
    expect(await delayq(['config', '--redis', own, 'q', 'partitions=4', 'tries=3'])).toMatchObject({
      code: 0,
      stderr: '',
    });
    expect((await doctor(own)).told.rights).toMatchObject({ level: 'ok' });
    await admin.call('ACL', 'SETUSER', 'app', 'resetkeys', '~delayq:{q}:*', '~delayq:queues');
    expect((await doctor(own)).told.rights).toMatchObject({
      level: 'fail',
      what: expect.stringContaining('~delayq:*'),
    });
  });

  it('are sufficient, or the checks that they prevent are named', async () => {
    const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-scan', '-zscan');
    await delayq(['enqueue', '-q', '--redis', url, 'q', '1', '--in', '1h']);
    const { stdout } = await delayq(['doctor', '--redis', url]);
    expect(stdout).toMatch(/^fail {2}redis +user app may not zscan$/m);
    expect(stdout).toMatch(/^skip {2}redis +cannot tell: whether there are other queues: NOPERM/m);
    expect(stdout).toMatch(/^skip {2}q +cannot tell: /m);
  });

  it('for the list of queues or the clock are missing, and the rest is still checked', async () => {
    const keys = '~delayq:{*';
    const url = await withUser(keys, '&delayq:*', '+@all', '-time');
    const { code, told } = await doctor(url);
    expect({ code, told }).toMatchObject({
      code: 2,
      told: { rights: { level: 'fail' }, clock: { level: 'skip' }, names: { level: 'skip' } },
    });
  });

  it('for one check are missing, and the others still find and repair faults', async () => {
    const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-pttl', '-sismember');
    await delayq(['enqueue', '-q', '--redis', url, 'q', '1', '--in', '1h']);
    const lose = () => sh(`redis-cli -s ${/\/tmp.*/.exec(url)?.[0]} hset 'delayq:{q}:payload' lost 1`);
    await lose();
    const { code, stdout } = await delayq(['doctor', '--redis', url, '--fix', '--yes']);
    expect({ code, stdout }).toMatchObject({ code: 2, stdout: expect.stringContaining('moved to dead (found)') });
    expect(stdout).toMatch(/^skip {2}q +cannot tell: NOPERM.*pttl/m);
    expect(stdout).toMatch(/^skip {2}q +cannot tell: NOPERM.*sismember/m);
  });

  it('to write are missing: faults are reported, although they cannot be repaired', async () => {
    const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-zrem', '-hset');
    await sh(`redis-cli -s ${/\/tmp.*/.exec(url)?.[0]} zadd 'delayq:{q}:pending' 9e12 ghost`);
    const { code, stdout, stderr } = await delayq(['doctor', '--redis', url, '--fix', '--yes']);
    expect({ code, stderr }).toEqual({ code: 2, stderr: '' });
    expect(stdout).toMatch(/^fail {2}q +1 job without a payload$/m);
    expect(stdout).toMatch(/^warn {2}q +cannot be repaired: /m);
  });

  it('are tried without changing anything', async () => {
    const url = await withUser('~delayq:*', '&delayq:*', '+@all', '-acl');
    await delayq(['enqueue', '--redis', url, 'q', '1', '--in', '1h']);
    const seen = async () => {
      const [queue] = JSON.parse((await delayq(['inspect', '--json', '--redis', url, 'q'])).stdout).queues;
      return { structures: queue.structures, upcoming: queue.upcoming, stats: queue.stats, config: queue.config };
    };
    const before = await seen();
    await doctor(url);
    expect(await seen()).toEqual(before);
  });
});
