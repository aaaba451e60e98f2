import { describe, expect, it } from 'vitest';
import { Operator, SETTING_NAMES, settingWord } from '../../../src/internal.js';
import { shaOf } from '../../../src/store/script.js';
import { Store } from '../../../src/store/store.js';
import { hold } from '../../../src/store/transfer.js';
import { during } from '../../support/afterwards.js';
import { begin, beginSh, delayq } from '../../support/cli.js';
import { upTo } from '../../support/jobs.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshQueue, key, redisTargets } from '../../support/redis.js';
import { Terminal, tmux } from '../../support/terminal.js';
import { until } from '../../support/until.js';

describe('delayq config', () => {
  it('sets defaults that hold for jobs and commands that say nothing else', async () => {
    const queue = freshQueue();
    const set = ['tries=2', 'backoff=0s,1h', 'lease=5m', 'maxLost=3', 'ttl=2d'];
    expect(await delayq(['config', '--create', queue.name, ...set])).toMatchObject({ code: 0, stderr: '' });
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({
      layout: '1 0/1 uses settings',
      tries: '2',
      backoff: '0 3600000',
      lease: '300000',
      maxLost: '3',
      ttl: '172800000',
    });
    await queue.enqueue({ payload: 1, id: 'a' });
    const handler = ['--', 'sh', '-c', 'echo $DELAYQ_TRIES; exit 1'];
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 1, stdout: '2\n' });
    expect((await queue.counts()).due).toBe(1);
    expect(await delayq(['drain', '-q', queue.name, ...handler])).toMatchObject({ code: 1 });
    expect((await queue.counts()).dead).toBe(1);
  });

  it('shows them in words, also after a change, and with --json as a document; name= removes one', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'backoff=30s,1m30s', 'ttl=1h']);
    const { stdout } = await delayq(['config', '--json', queue.name]);
    const defaults = { schema: 1, queue: queue.name, tries: 5, maxLost: 20, lease: 60_000 };
    expect(JSON.parse(stdout)).toEqual({
      ...defaults,
      backoff: [30_000, 90_000],
      ttl: 3_600_000,
      rate: null,
      burst: null,
      maxActive: null,
      onceFor: null,
      text: false,
      events: null,
      eventTypes: null,
      keepDone: null,
      maxDone: 10_000,
      partitions: 1,
      growth: null,
      set: ['backoff', 'ttl'],
      unreadable: [],
    });
    const text = (await delayq(['config', queue.name, 'ttl='])).stdout;
    expect(text).toMatch(/tries +- +5 +failures/);
    expect(text).toMatch(/backoff +30s,1m30s +exponential +wait/);
    expect(text).toMatch(/ttl +- +none +drop/);
    expect(text).toMatch(/partitions +- +1 +slots/);
    expect((await delayq(['inspect', '--json', queue.name])).code).toBe(0);
  });

  it('turns text on and off by any word for it, and shows it as on or off', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'text=off', 'tries=5']);
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({ layout: '1 0/1 uses settings', tries: '5' });
    for (const [on, off] of [
      ['on', 'off'],
      ['1', '0'],
      ['yes', 'no'],
      ['TRUE', 'false'],
      ['on', ''],
    ]) {
      expect((await delayq(['config', queue.name, `text=${on}`])).stdout).toMatch(
        /^text +on +off +payloads are any text/m,
      );
      expect(await admin.hmget(key(queue.name, 'config'), 'layout', 'text')).toEqual([
        '1 0/1 uses settings texts',
        '1',
      ]);
      expect((await delayq(['config', queue.name, `text=${off}`])).stdout).toMatch(/^text +- +off +payloads/m);
    }
    await delayq(['config', queue.name, 'text=on']);
    expect(JSON.parse((await delayq(['config', '--json', queue.name])).stdout)).toMatchObject({
      text: true,
      set: ['tries', 'text'],
    });
    expect((await delayq(['inspect', queue.name])).stdout).toMatch(/config .*text on/);
    expect(await delayq(['config', queue.name, 'text=maybe'])).toMatchObject({
      code: 64,
      stderr: expect.stringMatching(/text cannot be "?maybe"?\n {2}next: write text=on or text=off\n/),
    });
  });

  it('marks what other software has written and nobody can read: the default applies', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'tries=3']);
    await admin.hset(key(queue.name, 'config'), { lease: '-5', text: '7', maxActive: '-1', ttl: '' });
    const { stdout } = await delayq(['config', queue.name]);
    for (const [name, text, standard] of [
      ['lease', '-5', '1m'],
      ['max-active', '-1', 'none'],
      ['text', '7', 'off'],
    ])
      expect(stdout).toMatch(new RegExp(`^${name} +"${text}" +${standard} +cannot be read: the default applies$`, 'm'));
    expect(stdout).toMatch(/^ttl +- +none +drop/m);
    expect(JSON.parse((await delayq(['config', '--json', queue.name])).stdout)).toMatchObject({
      ...{ lease: 60_000, text: false, maxActive: null },
      ...{ set: ['tries'], unreadable: ['lease', 'maxActive', 'text'] },
    });
    expect((await delayq(['config', queue.name, 'lease=', 'text=', 'max-active='])).stdout).not.toContain(
      'cannot be read',
    );
  });

  it.runIf(tmux)('fits a terminal of 80 columns, a line for each setting', async () => {
    const queue = freshQueue();
    const set = 'tries=4 backoff=30s,1m,10m,1h lease=1m30s rate=100/s burst=20 once-for=2d';
    const terminal = new Terminal(`delayq config --create ${queue.name} ${set}`);
    await until(() => terminal.text.includes('ended 0'));
    const lines = terminal.text.split('\n');
    const names = lines.slice(
      lines.findIndex((line) => line.startsWith('setting ')),
      lines.indexOf('ended 0'),
    );
    expect(names.map((line) => line.split(' ')[0])).toEqual([
      'setting',
      ...SETTING_NAMES.map(settingWord),
      'partitions',
    ]);
  });

  it('changes nothing when one of the settings is wrong', async () => {
    const queue = freshQueue();
    for (const bad of ['tries=0', 'speed=9', 'tries', 'lease=90', '=5'])
      expect(await delayq(['config', queue.name, 'tries=3', bad])).toMatchObject({ code: 64, stdout: '' });
    expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
  });

  it('makes no queue under a mistyped name, exit 3, unless it is told to', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const typo = `${queue.name}x`;
    for (const words of [['tries=3'], ['partitions=4'], []]) {
      const { code, stdout, stderr } = await delayq(['config', typo, ...words]);
      expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
      expect(stderr).toContain(`there is no queue ${typo}`);
      expect(stderr).toContain(`next: did you mean ${queue.name}? to make it, add --create\n`);
    }
    expect(await admin.exists(key(typo, 'config'))).toBe(0);
    expect(await delayq(['config', '--create', typo, 'tries=3'])).toMatchObject({ code: 0 });
    expect(await delayq(['config', typo, 'tries=4'])).toMatchObject({ code: 0 });
    expect(await admin.hgetall(key(typo, 'config'))).toEqual({ layout: '1 0/1 uses settings', tries: '4' });
  });

  it('leaves other fields of the config alone', async () => {
    const queue = freshQueue();
    await admin.hset(key(queue.name, 'config'), 'paused', 'inf', 'mine', '1');
    await delayq(['config', queue.name, 'tries=3']);
    expect(await admin.hgetall(key(queue.name, 'config'))).toEqual({
      layout: '1 0/1 uses settings',
      paused: 'inf',
      mine: '1',
      tries: '3',
    });
  });
});

describe('delayq config partitions=N', () => {
  it('grows the queue, shows its partitions, and does nothing if it has so many already', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(50).map((i) => ({ id: `o:${i}`, payload: i, in: '1h' })));
    const grown = await delayq(['config', queue.name, 'partitions=4', 'tries=3']);
    expect(grown).toMatchObject({ code: 0, stderr: '' });
    expect(grown.stdout).toMatch(/partitions +4 +1 +slots/);
    expect(await admin.sismember('delayq:queues', queue.name)).toBe(1);
    const before = await everything(queue.name);
    expect(await delayq(['config', queue.name, 'partitions=4'])).toMatchObject({ code: 0, stdout: grown.stdout });
    expect(await everything(queue.name)).toEqual(before);
    const { stdout } = await delayq(['config', '--json', queue.name]);
    expect(JSON.parse(stdout)).toMatchObject({ partitions: 4, growth: null, tries: 3, set: ['tries'] });
  });

  it('refuses fewer, too many, and what is no number, and changes nothing then', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'partitions=2']);
    const before = await everything(queue.name);
    for (const bad of ['1', '0', '', 'x', '-3', '2.5', '1e1', '1025', '99999999999999999999']) {
      const ended = await delayq(['config', queue.name, 'tries=3', `partitions=${bad}`]);
      expect(ended, bad).toMatchObject({ code: 64, stdout: '' });
      expect(ended.stderr).toMatch(/^delayq: .*\n {2}why: {2}.*\n {2}next: .*\n$/);
    }
    expect(await everything(queue.name)).toEqual(before);
  });

  it('says on a terminal how far it is and for what it waits; a signal stops it, and a repeat goes on', async () => {
    const queue = freshQueue();
    const ids = upTo(20).map((i) => `o:${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    const { jobs } = await queue.drain({ limit: 20 });
    for (const signal of ['SIGINT', 'SIGTERM']) {
      const line = `stty cols 80; echo pid=$$; exec delayq config ${queue.name} partitions=4`;
      const growing = beginSh(`script -qec '${line}' /dev/null`, { env: { TERM: 'xterm', NO_COLOR: '1' } });
      await until(() => /growing from 1 to 4 partitions, 0 moved, waits for \d+ active jobs/.test(growing.stdout));
      process.kill(Number(/pid=(\d+)/.exec(growing.stdout)?.[1]), signal);
      const { code, stdout: screen } = await growing.ended;
      expect(screen).toContain('stopped: ');
      expect(screen).toMatch(/repeat\s+the\s+command\s+to\s+go\s+on/);
      expect(screen).toMatch(/partitions +4 +1 +growing from 1: 0% moved/);
      expect(code).toBe(130);
    }
    expect(JSON.parse((await delayq(['config', '--json', queue.name])).stdout)).toMatchObject({
      partitions: 4,
      growth: { from: 1, moved: 0 },
    });
    const stopped = begin(['config', queue.name, 'partitions=4']);
    await queue.ack(jobs.slice(0, 10));
    await queue.nack(jobs.slice(10), { backoff: [3_600_000] });
    expect(await stopped.ended).toMatchObject({ code: 0, stderr: '' });
    const left = await Promise.all(
      (await tagsOf(queue.name)).map((tag) => admin.zrange(key(tag, 'pending'), '0', '-1')),
    );
    expect(left.flat().sort()).toEqual(
      jobs
        .slice(10)
        .map(({ id }) => id)
        .sort(),
    );
  });

  it('is interrupted with status 130', async () => {
    const queue = freshQueue();
    await queue.enqueue(upTo(20).map((i) => ({ id: `o:${i}`, payload: 1 })));
    await queue.drain({ limit: 20 });
    const run = begin(['config', '--create', queue.name, 'partitions=2']);
    await until(async () => (await admin.hget(key(queue.name, 'config'), 'layout')) === '1 0/2 from 1');
    run.child.kill('SIGINT');
    expect(await run.ended).toMatchObject({ code: 130 });
  });
});

describe('settings of a queue with partitions', () => {
  it('hold in all of them, as a pause does, and the later of two commands holds everywhere', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'partitions=5']);
    const both = ['tries=3', 'tries=8'].map((word) => delayq(['config', queue.name, word]));
    await new Operator(connection).pause(queue.name);
    expect((await Promise.all(both)).map(({ code }) => code)).toEqual([0, 0]);
    const configs = await Promise.all((await tagsOf(queue.name)).map((tag) => admin.hgetall(key(tag, 'config'))));
    const seen = configs.map(({ tries, paused }) => ({ tries, paused }));
    expect(seen).toEqual(configs.map(() => ({ tries: configs[0]?.tries, paused: 'inf' })));
    await new Operator(connection).resume(queue.name);
    for (const tag of await tagsOf(queue.name)) expect(await admin.hexists(key(tag, 'config'), 'paused')).toBe(0);
  });

  it('are temporary (75) until all have confirmed; a repeat finishes', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'partitions=3']);
    const proxy = await during(FaultyProxy.start(...redisTargets));
    // What the first of the others is sent: in the tag of no other queue.
    proxy.fault = { word: shaOf('edit/settings'), kind: 'deaf', times: 1 };
    const ended = await delayq(['config', '--redis', proxy.url, queue.name, 'tries=3']);
    expect(ended).toMatchObject({ code: 75, stdout: '' });
    expect(ended.stderr).toMatch(
      /partitions? of \S+ did not confirm the change\n {2}why: {2}partitions? [\d, ]+: .*\n {2}next: repeat/,
    );
    expect(await admin.hget(key(queue.name, 'config'), 'tries')).toBe('3');
    expect(await delayq(['config', queue.name, 'tries=3'])).toMatchObject({ code: 0 });
    for (const tag of await tagsOf(queue.name)) expect(await admin.hget(key(tag, 'config'), 'tries')).toBe('3');
  });

  it('are forgotten only if no partition has jobs', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'partitions=4', 'tries=3']);
    const operator = new Operator(connection);
    await queue.enqueue([{ id: 'one', payload: 1 }]);
    expect(await operator.forget(queue.name)).toBe(false);
    for (const tag of await tagsOf(queue.name)) expect(await admin.hget(key(tag, 'config'), 'tries')).toBe('3');
    await queue.ack((await queue.drain()).jobs);
    expect(await operator.forget(queue.name)).toBe(true);
    // Others go on with the layout.
    for (const tag of await tagsOf(queue.name)) {
      expect(Object.keys(await admin.hgetall(key(tag, 'config'))).sort()).toEqual(['layout', 'partitions']);
      expect(await admin.exists(key(tag, 'stats'))).toBe(0);
    }
    expect(await admin.sismember('delayq:queues', queue.name)).toBe(0);
  });
});

/** What stands for the name of a queue in the keys of its partitions. */
async function tagsOf(name: string): Promise<string[]> {
  return [name, ...((await admin.hget(key(name, 'config'), 'partitions')) ?? '').split(' ')];
}

/** All hashes and sets of a queue. */
async function everything(name: string): Promise<unknown> {
  const all = (await tagsOf(name)).flatMap((tag) => [
    admin.hgetall(key(tag, 'config')),
    admin.hgetall(key(tag, 'stats')),
    admin.zrange(key(tag, 'pending'), '0', '-1', 'WITHSCORES'),
  ]);
  return Promise.all(all);
}

it('delayq config partitions=N says what it waits for, and how to finish a move that holds jobs', async () => {
  const queue = freshQueue();
  const ids = upTo(20).map((i) => `o:${i}`);
  await queue.enqueue(ids.map((id) => ({ id, payload: id })));
  const keys = Store.of(connection, 'delayq', queue.name).keys();
  await hold(connection, keys, ids, { states: ['pending'], receipt: 'r', by: 'move:elsewhere' });
  const running = begin(['config', queue.name, 'partitions=4']);
  await until(() => running.stderr.includes('unfinished move'));
  expect(running.stderr).toMatch(
    /waits for \d+ active jobs, to be moved when they are done or their leases expire; an unfinished/,
  );
  const [, command = ''] = /holds some: delayq (.*)$/m.exec(running.stderr) ?? [];
  expect(await delayq([...command.split(' '), '--yes'])).toMatchObject({ code: 0 });
  expect(await running.ended).toMatchObject({ code: 0 });
});
