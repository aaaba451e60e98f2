import { spawnSync } from 'node:child_process';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { metricsText, Queue, Recurring } from '../../../src/index.js';
import { delayq, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshName } from '../../support/redis.js';
import { luaTexts } from '../../support/scripts.js';
import { temporaryDirectory } from '../../support/temporary.js';

const hasPromtool = spawnSync('promtool', ['--version']).status === 0;

/** A namespace of the test's own, so that it sees its own queues alone. */
function own() {
  const prefix = freshName();
  const key = (queue: string, name: string) => `${prefix}:{${queue}}:${name}`;
  const queue = (name: string) => new Queue(connection, name, { prefix });
  const metrics = (...args: string[]) => delayq(['metrics', '--prefix', prefix, ...args]);
  return { prefix, key, queue, metrics };
}

/** The samples of an output, by name and labels (but for the prefix's). */
function samplesOf(text: string): Record<string, number> {
  const lines = linesOf(text).filter((line) => !line.startsWith('#'));
  return Object.fromEntries(
    lines.map((line) => {
      const [, name, value] = /^(.*\}) (\S+)$/.exec(line) as unknown as [string, string, string];
      return [name.replace(/,prefix="[^"]*"/, ''), Number(value)];
    }),
  );
}

describe('delayq metrics', () => {
  it('tells what stands in each queue', async () => {
    const { queue, key, metrics } = own();
    const now = await connection.now();
    await queue('a').enqueue([
      { payload: 1, at: now - 90_000 },
      { payload: 2, at: now - 1_000 },
      { payload: 3, in: '1h' },
    ]);
    await queue('b').enqueue([{ payload: 1 }, { payload: 2 }, { payload: 3 }]);
    const { jobs } = await queue('b').drain({ limit: 2 });
    const [first, second] = jobs;
    await queue('b').nack(first ? [first] : [], { mode: 'dead' });
    await admin.zadd(key('b', 'active'), 1, second?.id ?? '');
    await admin.hset(key('b', 'config'), 'layout', '1 0/1 uses settings', 'paused', 'inf');
    const { code, stdout, stderr } = await metrics();
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const samples = samplesOf(stdout);
    expect(samples).toMatchObject({
      'delayq_queue_up{queue="a"}': 1,
      'delayq_jobs{queue="a",state="pending"}': 3,
      'delayq_jobs{queue="a",state="active"}': 0,
      'delayq_jobs_due{queue="a"}': 2,
      'delayq_paused{queue="a"}': 0,
      'delayq_jobs{queue="b",state="pending"}': 1,
      'delayq_jobs{queue="b",state="active"}': 1,
      'delayq_jobs{queue="b",state="dead"}': 1,
      'delayq_leases_run_out{queue="b"}': 1,
      'delayq_paused{queue="b"}': 1,
      'delayq_jobs_enqueued_total{queue="b"}': 3,
      'delayq_jobs_delivered_total{queue="b"}': 2,
      'delayq_jobs_died_total{queue="b"}': 1,
      'delayq_jobs_acked_total{queue="b"}': 0,
    });
    expect(samples['delayq_lag_seconds{queue="a"}']).toBeGreaterThanOrEqual(90);
    expect(samples['delayq_lag_seconds{queue="a"}']).toBeLessThan(150);
    const drained = samples['delayq_last_drain_timestamp_seconds{queue="b"}'] ?? 0;
    expect(Math.abs(drained - now / 1_000)).toBeLessThan(60);
    expect(samples).not.toHaveProperty('delayq_last_drain_timestamp_seconds{queue="a"}');
  });

  it('tells how many recurring jobs and remembered ids there are', async () => {
    const { prefix, queue, metrics } = own();
    await queue('a').enqueue({ payload: 1 });
    await new Recurring(connection, { prefix }).put('b', { id: 'r', when: '1h', payload: 1 });
    await queue('b').enqueue({ payload: 1, onceFor: '1h' });
    await queue('b').ack((await queue('b').drain()).jobs);
    expect(samplesOf((await metrics()).stdout)).toMatchObject({
      'delayq_recurring_jobs{queue="a"}': 0,
      'delayq_remembered_ids{queue="a"}': 0,
      'delayq_recurring_jobs{queue="b"}': 1,
      'delayq_remembered_ids{queue="b"}': 1,
      'delayq_jobs{queue="b",state="pending"}': 0,
    });
  });

  it('prints every counter that a script keeps', async () => {
    const { queue, key, metrics } = own();
    await queue('q').enqueue({ payload: 1 });
    const names = new Set(
      luaTexts().flatMap((text) =>
        [...text.matchAll(/(?:count\(|'HINCRBY', stats, )'([a-z]+)'/g)].map(([, name]) => name),
      ),
    );
    expect(names.size).toBeGreaterThanOrEqual(13);
    const counters = [...names].map((name, i) => [name as string, 1_000 + i] as const);
    await admin.hset(key('q', 'stats'), Object.fromEntries(counters));
    const { stdout } = await metrics();
    const values = new Map(Object.entries(samplesOf(stdout)).map(([name, value]) => [value, name]));
    for (const [name, value] of counters) expect(values.get(value), name).toMatch(/^delayq_jobs_[a-z]+_total\{/);
  });

  it('tells how late deliveries were as a histogram', async () => {
    const { queue, key, metrics } = own();
    await queue('q').enqueue({ payload: 1 });
    const late = { 'late:5': 3, 'late:100': 2, 'late:3600000': 1, 'late:inf': 4, 'late:sum': 90_061_500 };
    await admin.hset(key('q', 'stats'), late);
    const ends = ['0.005', '0.01', '0.05', '0.1', '0.5', '1', '5', '10', '60', '600', '3600', '+Inf'];
    const below = [3, 3, 3, 5, 5, 5, 5, 5, 5, 5, 6, 10];
    const { stdout } = await metrics();
    const lines = linesOf(stdout).filter((line) => line.startsWith('delayq_lateness_seconds'));
    expect(lines.map((line) => line.replace(/,prefix="[^"]*"/, ''))).toEqual([
      ...ends.map((end, i) => `delayq_lateness_seconds_bucket{queue="q",le="${end}"} ${below[i]}`),
      'delayq_lateness_seconds_sum{queue="q"} 90061.5',
      'delayq_lateness_seconds_count{queue="q"} 10',
    ]);
  });

  it('has every delivery in the histogram', async () => {
    const { queue, metrics } = own();
    const now = await connection.now();
    await queue('q').enqueue([0, 20, 7_000, 7_200, 90_000_000].map((ms) => ({ payload: 1, at: now - ms * 1_000 })));
    await queue('q').drain();
    const samples = samplesOf((await metrics()).stdout);
    expect(samples).toMatchObject({
      'delayq_lateness_seconds_bucket{queue="q",le="10"}': 1,
      'delayq_lateness_seconds_bucket{queue="q",le="60"}': 2,
      'delayq_lateness_seconds_bucket{queue="q",le="3600"}': 2,
      'delayq_lateness_seconds_bucket{queue="q",le="+Inf"}': 5,
      'delayq_lateness_seconds_count{queue="q"}': 5,
    });
    expect(samples['delayq_lateness_seconds_sum{queue="q"}']).toBeGreaterThanOrEqual(90_014_220);
    expect(samples['delayq_lateness_seconds_sum{queue="q"}']).toBeLessThan(90_014_520);
  });

  it('names no prefix unless it is another than delayq', async () => {
    const { prefix, queue, metrics } = own();
    await queue('q').enqueue({ payload: 1 });
    expect((await metrics()).stdout).toContain(`delayq_jobs_due{queue="q",prefix="${prefix}"} 1\n`);
    const name = freshName();
    await new Queue(connection, name).enqueue({ payload: 1 });
    expect((await delayq(['metrics', name])).stdout).toContain(`delayq_jobs_due{queue="${name}"} 1\n`);
  });

  it('shows the queues that are named, once', async () => {
    const { queue, metrics } = own();
    for (const name of ['a', 'b', 'c']) await queue(name).enqueue({ payload: 1 });
    const samples = samplesOf((await metrics('c', 'a', 'c')).stdout);
    expect(Object.keys(samples).filter((name) => name.startsWith('delayq_queue_up'))).toEqual([
      'delayq_queue_up{queue="a"}',
      'delayq_queue_up{queue="c"}',
    ]);
  });

  it('shows the others when a queue cannot be read or is not there, says which, and exits 1', async () => {
    const { prefix, queue, key, metrics } = own();
    await queue('good').enqueue({ payload: 1 });
    await admin.set(key('bad', 'stats'), 'x');
    await admin.sadd(`${prefix}:queues`, 'bad', 'no "name\\ at\nall');
    const all = await metrics();
    expect(all.code).toBe(1);
    expect(samplesOf(all.stdout)).toMatchObject({
      'delayq_queue_up{queue="good"}': 1,
      'delayq_jobs_due{queue="good"}': 1,
      'delayq_queue_up{queue="bad"}': 0,
      'delayq_queue_up{queue="no \\"name\\\\ at\\nall"}': 0,
    });
    expect(all.stdout).not.toContain('delayq_jobs_due{queue="bad"');
    expect(linesOf(all.stderr)).toEqual([
      expect.stringContaining(`bad cannot be read: WRONGTYPE ${prefix}:{bad}:stats`),
      expect.stringContaining('no "name\\ at\\x0aall cannot be read'),
    ]);
    const some = await metrics('good', 'goos');
    expect(some).toMatchObject({ code: 1, stderr: expect.stringContaining('no queue goos; did you mean good?') });
    expect(samplesOf(some.stdout)).toMatchObject({ 'delayq_jobs_due{queue="good"}': 1 });
    expect(await metrics('goos')).toMatchObject({ code: 3, stdout: '' });
  });

  it('of an empty server tells the version alone', async () => {
    const { code, stdout, stderr } = await own().metrics();
    expect({ code, stderr, samples: Object.keys(samplesOf(stdout)).length }).toEqual({
      code: 0,
      stderr: '',
      samples: 1,
    });
    expect(stdout).toMatch(/^delayq_build_info\{version="\d+\.\d+\.\d+",prefix=/m);
  });

  it('of what other software wrote into the counters makes no sample that Prometheus would refuse', async () => {
    const { queue, key, metrics } = own();
    await queue('q').enqueue({ payload: 1 });
    await admin.hset(key('q', 'stats'), { acked: 'inf', lost: '-7', 'late:5': '-3', 'late:10': 'x', 'a b"': '1' });
    const samples = samplesOf((await metrics()).stdout);
    expect(samples).toMatchObject({
      'delayq_jobs_acked_total{queue="q"}': 0,
      'delayq_jobs_lost_total{queue="q"}': 0,
      'delayq_lateness_seconds_count{queue="q"}': 0,
    });
    expect(Object.values(samples).every(Number.isFinite)).toBe(true);
  });

  it.runIf(hasPromtool)('passes promtool check metrics', async () => {
    const { prefix, queue } = own();
    await queue('a:b.c').enqueue({ payload: 1 });
    await queue('a:b.c').drain();
    await admin.sadd(`${prefix}:queues`, 'no "name\\ at\nall');
    const { stdout, stderr } = await sh(
      `delayq metrics --prefix ${prefix} 2>/dev/null | promtool check metrics; echo "ended with $?"`,
    );
    expect({ stdout, stderr }).toEqual({ stdout: 'ended with 0\n', stderr: '' });
  });
});

describe('delayq metrics --out', () => {
  const filled = async () => {
    const mine = own();
    await mine.queue('q').enqueue({ payload: 1 });
    const directory = temporaryDirectory();
    return { ...mine, directory, file: join(directory, 'delayq.prom') };
  };

  it('replaces the file, readable by everybody whatever the umask', async () => {
    const { prefix, file, directory } = await filled();
    writeFileSync(file, 'old', { mode: 0o600 });
    const before = statSync(file).ino;
    const { stdout, stderr } = await sh(`umask 077; delayq metrics --prefix ${prefix} --out ${file}; echo $?`);
    expect({ stdout, stderr }).toEqual({ stdout: '0\n', stderr: '' });
    expect(readFileSync(file, 'utf8')).toContain('delayq_jobs_due{queue="q"');
    expect(statSync(file).mode & 0o7777).toBe(0o644);
    // Another file under the old name: whoever has opened the old one reads that to its end.
    expect(statSync(file).ino).not.toBe(before);
    expect(readdirSync(directory)).toEqual(['delayq.prom']);
  });

  it('writes through a symbolic link, also to where nothing is yet', async () => {
    const { metrics, file, directory } = await filled();
    mkdirSync(join(directory, 'there'));
    symlinkSync('there/real.prom', file);
    for (let i = 0; i < 2; i++) {
      expect(await metrics('--out', file)).toMatchObject({ code: 0, stderr: '' });
      expect(lstatSync(file).isSymbolicLink()).toBe(true);
      expect(readdirSync(join(directory, 'there'))).toEqual(['real.prom']);
    }
    expect(readFileSync(file, 'utf8')).toContain('delayq_build_info');
  });

  it.each([
    ['a directory', '.', 'it is a directory', 'choose a file in it'],
    ['a pipe', 'pipe', 'it is not a regular file', 'write to stdout instead: >'],
    ['a directory that is not there', 'none/x.prom', 'no such file or directory', 'create the directory'],
    ['a file as a directory', 'file/x.prom', 'not a directory', 'choose a path in a directory'],
  ])('to %s fails with 74 and leaves nothing behind', async (_, path, why, next) => {
    const { metrics, directory } = await filled();
    writeFileSync(join(directory, 'file'), '');
    await sh(`mkfifo ${directory}/pipe`);
    const { code, stderr } = await metrics('--out', join(directory, path));
    expect(code).toBe(74);
    expect(stderr).toMatch(/^delayq: cannot write ".*"\n {2}why: {2}.*\n {2}next: .*\n$/);
    expect(stderr).toContain(why);
    expect(stderr).toContain(next);
    expect(readdirSync(directory)).toEqual(['file', 'pipe']);
    expect(statSync(join(directory, 'pipe')).isFIFO()).toBe(true);
  });

  it.runIf(existsSync('/proc/self'))('where nothing can be made fails with 74', async () => {
    const { metrics } = await filled();
    expect(await metrics('--out', '/proc/delayq.prom')).toMatchObject({ code: 74, stdout: '' });
  });

  it('that does not fit keeps the old file and leaves nothing behind', async () => {
    const { prefix, file, directory } = await filled();
    writeFileSync(file, 'old');
    const line = `ulimit -f 2; exec delayq metrics --prefix ${prefix} --out ${file}`;
    expect(await sh(line)).toMatchObject({ code: 74, stderr: expect.stringContaining('EFBIG') });
    expect(readFileSync(file, 'utf8')).toBe('old');
    expect(readdirSync(directory)).toEqual(['delayq.prom']);
  });

  it('keeps the old file when Redis cannot be reached, exit 69', async () => {
    const { file, directory } = await filled();
    writeFileSync(file, 'old');
    const { code } = await delayq(['metrics', '--redis', `unix://${directory}/none.sock`, '--out', file]);
    expect(code).toBe(69);
    expect(readFileSync(file, 'utf8')).toBe('old');
    expect(readdirSync(directory)).toEqual(['delayq.prom']);
  });
});

describe('metricsText', () => {
  it('of nothing is nothing', () => expect(metricsText([])).toBe(''));
});
