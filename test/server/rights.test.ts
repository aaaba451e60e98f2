import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { Connection, Operator, Queue } from '../../src/index.js';
import { formsFor } from '../../src/store/rights.js';
import { delayq, sh } from '../support/cli.js';
import { serverWith } from '../support/doctor.js';
import { limitedUrl, refusals, VERSION } from '../support/limited-user.js';
import { luaTexts } from '../support/scripts.js';

const source = new URL('../../src/', import.meta.url);
const files = readdirSync(source, { recursive: true, encoding: 'utf8' }).filter(
  (file) => file.endsWith('.ts') && file !== 'store/rights.ts',
);
const textsOf = (some: string[]) => some.map((file) => readFileSync(new URL(file, source), 'utf8'));
const sources = textsOf(files);

/** The commands, as ACL rules name them, that `texts` send. */
const sent = (texts: string[]) =>
  new Set(
    texts
      .flatMap((text) => [...text.matchAll(/\b(?:call|try|ask|send)\(\s*'([A-Z]+)'(?:, '([A-Z-]+)')?/g)])
      .map(([, name = '', second]) =>
        /^(ACL|CLUSTER|CONFIG|MEMORY|SLOWLOG|XGROUP|XINFO)$/.test(name) ? `${name}|${second}` : name,
      )
      .map((name) => name.toLowerCase()),
  );

const forms = Object.values(formsFor('delayq', 'q')).flat();

describe('the commands that are granted', () => {
  it('are all that delayq and its scripts send, but for what shows too much', () => {
    // Sentinels have users of their own.
    const used = sent([...luaTexts(), ...textsOf(files.filter((file) => !file.endsWith('sentinel.ts')))]);
    const granted = forms.map(([command]) => command);
    expect(used.size).toBeGreaterThan(40);
    expect([...used].filter((name) => !granted.includes(name)).sort()).toEqual([
      ...['config|get', 'config|rewrite', 'config|set'],
      'slowlog|get',
    ]);
  });

  it('are only those', () => {
    const all = [...luaTexts(), ...sources].join('\n');
    // ioredis sends these.
    const others = ['select', 'client|setname', 'subscribe', 'ssubscribe'];
    const idle = forms
      .map(([command]) => command)
      .filter((command) => !others.includes(command))
      .filter((command) => !new RegExp(`'${command.toUpperCase().replace('|', `', \\[?'`)}'`).test(all));
    expect(idle).toEqual([]);
  });

  it('are named by Redis as we name them', async () => {
    const { admin } = await serverWith();
    const { queues, changing, events, stream, cluster, sentinel } = formsFor('delayq', 'q');
    for (const [command, ...args] of [...queues, ...changing, ...events, ...stream, ...cluster, ...sentinel]) {
      const said = await admin.call('ACL', 'DRYRUN', 'default', ...command.split('|'), ...(args as string[]));
      expect(said, command).toBe('OK');
    }
  });
});

describe.concurrent('delayq doctor --acl', () => {
  const acl = async (...args: string[]) => (await delayq(['doctor', '--acl', ...args])).stdout;

  it('prints one line, without connecting', async () => {
    const { code, stdout, stderr } = await delayq(['doctor', '--acl', '--redis', 'redis://127.0.0.1:1']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^ACL SETUSER app on #\S+ resetkeys ~delayq:\* resetchannels &delayq:\* -@all( \+\S+)+\n$/);
  });

  it('takes the keys of the prefix, or of some queues and the list of queues', async () => {
    expect(await acl('--prefix', 'shop')).toContain(' ~shop:* resetchannels &shop:* ');
    const both = (sign: string) => ['a', 'a/*', 'b', 'b/*'].map((tag) => `${sign}delayq:{${tag}}:*`).join(' ');
    expect(await acl('a', 'b')).toContain(` ${both('~')} ~delayq:queues resetchannels ${both('&')} `);
  });

  it('leaves out what an older Redis does not know', async () => {
    const words = async (...args: string[]) => (await acl(...args)).trim().split(' ');
    const newest = await words();
    const lacking = async (version: string) => {
      const older = await words('--redis-version', version);
      return newest.filter((word) => !older.includes(word));
    };
    expect(await lacking('7.2')).toEqual([]);
    expect(await lacking('7.0')).toEqual(['+waitaof']);
    expect(await lacking('6.2')).toEqual(['+acl|dryrun', '+spublish', '+ssubscribe', '+waitaof']);
  });

  it('makes no user before the password is filled in', async () => {
    const { socket, admin } = await serverWith();
    const pasted = await sh(`redis-cli -s ${socket}`, { input: await acl('--redis-version', VERSION) });
    expect(pasted.stdout).toMatch(/ERR .*password hash/);
    expect(await admin.call('ACL', 'USERS')).toEqual(['default']);
  });

  it.each([
    ['--fix', 'cannot be used with'],
    ['--json', 'cannot be used with'],
    ['--redis-version=5.0', 'no ACL for Redis'],
    ['--redis-version=new', 'no ACL for Redis'],
    ['two words', 'cannot name a queue'],
  ])('refuses %s', async (word, why) => {
    const { code, stdout, stderr } = await delayq(['doctor', '--acl', word]);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    expect(stderr).toContain(why);
  });

  it('gives a user who can do everything with one queue, and nothing with another', async () => {
    const server = await serverWith();
    const line = (await acl('--redis-version', VERSION, 'mine')).replace(/#\S+/, '>secret');
    await sh(`redis-cli -s ${server.socket}`, { input: line });
    const redis = new Connection(server.url.replace('://', '://app:secret@'));
    try {
      const mine = new Queue(redis, 'mine');
      await mine.enqueue({ payload: 1 });
      expect((await mine.drain()).jobs).toHaveLength(1);
      expect(await refusals([server])).toEqual([]);
      await expect(new Queue(redis, 'others').enqueue({ payload: 1 })).rejects.toMatchObject({ code: 'refused' });
      await expect(new Operator(redis).pause('others')).rejects.toMatchObject({ code: 'refused' });
    } finally {
      redis.close();
    }
  });

  it('gives a user for whom every command works', async () => {
    const server = await serverWith();
    const url = await limitedUrl(server.url, [server]);
    const run = async (line: string, input = '') => {
      const options = { input, env: { DELAYQ_REDIS_URL: url } };
      const [first, ...words] = line.split(' ');
      const isPlain = first === 'delayq' && !/[|>;']/.test(line);
      const { code, stderr } = await (isPlain ? delayq(words, options) : sh(line, options));
      expect([line, code, stderr]).toEqual([line, expect.toBeOneOf([0, 1]), expect.anything()]);
      expect(stderr, line).not.toMatch(/NOPERM|may not|permission/);
    };
    const lines = [
      ...['delayq enqueue -q q 1', 'delayq enqueue -q q -', 'delayq enqueue -q --id x --if-exists replace --in 1h q 2'],
      'delayq drain -n 1 q -- true',
      'delayq drain -n 1 --lease 5m q | delayq ack',
      'delayq drain -n 1 --lease 5m q | delayq nack',
      'delayq drain -n 1 --lease 5m q | delayq renew',
      ...[
        'delayq drain -n 1 q --to-stream',
        'delayq drain --for 300ms q',
        'delayq inspect',
        'delayq list q',
        'delayq show q x',
        'delayq check q',
      ],
      ...['delayq metrics', 'delayq config q tries=4', 'delayq pause q', 'delayq wait --timeout 100ms q'],
      ...['delayq resume q', 'delayq reschedule --in 2h q x', 'delayq bury --reason y q x', 'delayq requeue q x'],
      'EDITOR="sed -i s/2/3/" delayq edit q x',
      ...['delayq export q > /dev/null', 'delayq move q --into r x', 'delayq cancel r x'],
      `redis-cli -s ${server.socket} zadd qqqqqqqqqqq:due 1900000000 job`,
      `redis-cli -s ${server.socket} hset qqqqqqqqqqq:job job 1`,
      'delayq adopt --zset qqqqqqqqqqq:due --hash qqqqqqqqqqq:job q',
      'delayq export --config q | delayq import --config r',
      `[ ${VERSION} = 7.0 ] || delayq enqueue -q --durable q 1`,
      'delayq enqueue -q --replicas 1 q 1; [ $? = 75 ]',
      ...['delayq doctor', 'delayq doctor --fix --yes q', 'delayq purge --yes --forget q'],
    ];
    for (const line of lines) await run(line, '1\n2\n3\n4\n');
    expect(await refusals([server])).toEqual([]);
  });
});
