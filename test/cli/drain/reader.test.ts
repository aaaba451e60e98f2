import { existsSync, readdirSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Queue } from '../../../src/index.js';
import { begin, beginSh, delayq, linesOf, sh } from '../../support/cli.js';
import { admin, freshQueue, key } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** A queue with `n` due jobs and the given lease. */
async function queueOf(jobs: number, lease = '60000'): Promise<Queue> {
  const queue = freshQueue();
  await admin.hset(key(queue.name, 'config'), 'layout', '1 0/1 uses settings', 'lease', lease);
  await queue.enqueue(Array.from({ length: jobs }, (_, n) => ({ payload: n })));
  return queue;
}

/** Reads some input, logs it to $LOG, then waits until the file $GATE exists. */
const READS_AND_WAITS = `node -e '
const { appendFileSync, existsSync, readSync } = require("node:fs");
const bytes = Buffer.alloc(65536);
appendFileSync(process.env.LOG, bytes.subarray(0, readSync(0, bytes)));
setInterval(() => existsSync(process.env.GATE) && process.exit(), 10);'`;

/** Waits until the file $GATE exists. */
const WAITS = 'until [ -e "$GATE" ]; do sleep 0.01; done';

function scene() {
  const directory = temporaryDirectory();
  const env = { LOG: join(directory, 'log'), GATE: join(directory, 'gate') };
  return {
    env,
    log: () => (existsSync(env.LOG) ? readFileSync(env.LOG, 'utf8') : ''),
    openGate: () => writeFileSync(env.GATE, ''),
  };
}

const numbers = (n: number) => Array.from({ length: n }, (_, i) => i);
const all = async (queue: Queue) => linesOf((await delayq(['drain', queue.name])).stdout).map(Number);

describe.concurrent('drain | reader', () => {
  it('whose reader dies on a quiet queue gives back the written jobs at once, and ends', async () => {
    const queue = await queueOf(150);
    const { env, log } = scene();
    const running = beginSh(`delayq drain --watch ${queue.name} | ${READS_AND_WAITS}`, { env });
    await until(() => linesOf(log()).length === 150);
    // The reader, and the shell that waits for it.
    const drain = await pidOfDrain(queue);
    for (const pid of readersOf(drain)) process.kill(pid, 'SIGKILL');
    expect((await running.ended).stderr).not.toContain('delayq');
    expect(await queue.counts()).toMatchObject({ pending: 150, active: 0, lease: 0, meta: 0 });
  });

  it('confirms what a living reader has read a lease later, and goes on', async () => {
    const queue = await queueOf(3, '2000');
    const { env, log, openGate } = scene();
    const { now } = await queue.counts();
    const running = beginSh(`delayq drain --watch ${queue.name} | ${READS_AND_WAITS}`, { env });
    await until(() => linesOf(log()).length === 3);
    await until(async () => (await queue.counts()).stats.acked === 3);
    const after = await queue.counts();
    expect(after).toMatchObject({ pending: 0, active: 0, payload: 0 });
    expect(after.now - now).toBeGreaterThanOrEqual(2_000);
    await queue.enqueue({ payload: 4 });
    await until(async () => (await queue.counts()).active === 1);
    // It reads no more: when it dies, only what was not confirmed is given back.
    openGate();
    await running.ended;
    expect(await queue.counts()).toMatchObject({ pending: 1, active: 0, stats: { acked: 3 } });
  });

  it('renews the leases of unread jobs for as long as it takes', async () => {
    const queue = await queueOf(3, '2500');
    const { env, openGate } = scene();
    const running = beginSh(`delayq drain --watch ${queue.name} | { ${WAITS}; cat; }`, { env });
    await until(async () => (await queue.counts()).active === 3);
    const drain = await pidOfDrain(queue);
    // Longer than two leases.
    const { now } = await queue.counts();
    await until(async () => {
      const [, ends] = await admin.zrange(key(queue.name, 'active'), '0', '0', 'WITHSCORES');
      return Number(ends) > now + 6_000;
    });
    expect((await queue.counts()).stats.acked).toBe(undefined);
    openGate();
    await until(() => linesOf(running.stdout).length === 3);
    await until(async () => (await queue.counts()).stats.acked === 3);
    process.kill(drain, 'SIGTERM');
    await running.ended;
  });

  it('waits at its end for the end of the reader: only then are the jobs done', async () => {
    const queue = await queueOf(150);
    const { env, log, openGate } = scene();
    const running = beginSh(`{ delayq drain ${queue.name}; } | ${READS_AND_WAITS}`, { env });
    await until(() => linesOf(log()).length === 150);
    await until(async () => linkOf(await pidOfDrain(queue), 1) === '/dev/null');
    expect(await queue.counts()).toMatchObject({ active: 150, stats: { delivered: 150 } });
    openGate();
    expect((await running.ended).stderr).toBe('');
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, payload: 0, stats: { acked: 150 } });
  });

  it('delivers again what its reader left unread, or may have read ahead', async () => {
    const queue = await queueOf(150);
    const { env, openGate } = scene();
    const running = beginSh(`delayq drain ${queue.name} | { read -r line; echo "$line"; ${WAITS}; }`, { env });
    await until(async () => (await queue.counts()).active === 150);
    await until(async () => linkOf(await pidOfDrain(queue), 1) === '/dev/null');
    openGate();
    expect((await running.ended).stdout).toBe('0\n');
    await until(async () => (await queue.counts()).active === 0);
    expect(await all(queue)).toEqual(numbers(150));
  });

  it('that is stopped while it waits at its end gives back the written jobs', async () => {
    const queue = await queueOf(150);
    const { env, log, openGate } = scene();
    const running = beginSh(`delayq drain ${queue.name} | ${READS_AND_WAITS}`, { env });
    await until(() => linesOf(log()).length === 150);
    const drain = await pidOfDrain(queue);
    await until(() => linkOf(drain, 1) === '/dev/null');
    process.kill(drain, 'SIGTERM');
    await until(async () => (await queue.counts()).pending === 150);
    openGate();
    await running.ended;
  });

  it('whose stdout is closed takes no jobs and exits 74 (failures 36)', async () => {
    const queue = await queueOf(3);
    for (const form of ['', '--watch', '--at-most-once', '--lease 1m']) {
      const { code, stderr } = await sh(`delayq drain ${form} ${queue.name} >&-`);
      expect({ code, stderr }).toEqual({ code: 74, stderr: expect.stringContaining('cannot write jobs to stdout') });
    }
    expect(await queue.counts()).toMatchObject({ pending: 3, stats: { enqueued: 3 } });
    expect((await queue.counts()).stats.delivered).toBe(undefined);
    expect((await sh(`delayq drain ${queue.name} > /dev/null`)).code).toBe(0);
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: { acked: 3 } });
  });

  it('confirms the jobs of one queue although another is broken (failures 37)', async () => {
    const [broken, queue] = [freshQueue(), await queueOf(3)];
    await admin.set(key(broken.name, 'dead'), 'x');
    const { stdout, stderr } = await sh(`sh -c 'exec delayq drain ${broken.name},${queue.name}' | cat`);
    expect({ stdout, stderr }).toEqual({ stdout: '0\n1\n2\n', stderr: expect.stringMatching(/WRONGTYPE/) });
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, stats: { acked: 3 } });
  });

  it('into a file confirms what it has written, even if it is stopped', async () => {
    const queue = await queueOf(3);
    const { env, log } = scene();
    const running = beginSh(`exec delayq drain --watch ${queue.name} > "$LOG"`, { env });
    await until(async () => (await queue.counts()).stats.acked === 3);
    running.child.kill('SIGTERM');
    expect((await running.ended).code).toBe(0);
    expect(log()).toBe('0\n1\n2\n');
  });
});

describe.concurrent('what a drain has written', () => {
  it('to a full disk stays as whole lines, and everything else is delivered again', async () => {
    const queue = await queueOf(5_000);
    const { env, log } = scene();
    // The limit is in units of 512 bytes, so the last line does not fit whole.
    const { code, stderr } = await sh(`ulimit -f 20; delayq drain ${queue.name} > "$LOG"`, { env });
    expect({ code, stderr }).toEqual({ code: 74, stderr: expect.stringContaining('EFBIG') });
    expect(log()).toMatch(/\n$/);
    const written = linesOf(log()).map(Number);
    expect(written.length).toBeGreaterThan(1_000);
    const { acked = 0 } = (await queue.counts()).stats;
    expect(acked).toBeLessThanOrEqual(written.length);
    expect(new Set([...written, ...(await all(queue))])).toEqual(new Set(numbers(5_000)));
  });

  it('to a pipe of any size is delivered again if nobody has read it', async () => {
    const queue = freshQueue();
    await queue.enqueue(Array.from({ length: 3_000 }, (_, n) => ({ payload: `${n} ${'x'.repeat(400)}` })));
    const { env, openGate } = scene();
    const line = `python3 -c '
import fcntl, os, time
fcntl.fcntl(0, 1031, 1 << 20)
while not os.path.exists(os.environ["GATE"]): time.sleep(0.01)'`;
    const running = beginSh(`delayq drain --watch ${queue.name} | ${line}`, { env });
    // More than 1 MiB: the largest pipe, and a chunk that does not fit into it.
    await until(async () => (await queue.counts()).active > 2_500);
    openGate();
    await running.ended;
    expect(await queue.counts()).toMatchObject({ pending: 3_000, active: 0 });
  });

  it('is delivered again when its reader dies, even if a child of the reader keeps the pipe open', async () => {
    const queue = await queueOf(3);
    const { env, log, openGate } = scene();
    // It has read something when it writes its log: by then the drain knows it.
    const reader = `node -e '
const { readSync, writeFileSync } = require("node:fs");
require("node:child_process").spawn("sh", ["-c", process.env.WAITS], { stdio: ["inherit", "ignore", "ignore"] });
readSync(0, Buffer.alloc(1));
writeFileSync(process.env.LOG, String(process.pid) + "\\n");
setInterval(() => {}, 1000);'`;
    const running = beginSh(`delayq drain --watch ${queue.name} | ${reader}`, {
      env: { ...env, WAITS: `${WAITS}; rm "$GATE"` },
    });
    await until(async () => (await queue.counts()).active === 3 && log().endsWith('\n'));
    await until(async () => readersOf(await pidOfDrain(queue)).length === 2);
    process.kill(Number(log()), 'SIGKILL');
    await running.ended;
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
    openGate();
    await until(() => !existsSync(env.GATE));
  });
});

describe.concurrent('a socket as stdout', () => {
  it('whose peer goes away: everything is given back at once', async () => {
    const queue = await queueOf(3);
    const running = begin(['drain', '--watch', queue.name]);
    await until(() => linesOf(running.stdout).length === 3);
    running.child.stdout?.destroy();
    await until(() => running.child.exitCode !== null);
    expect(await queue.counts()).toMatchObject({ pending: 3, active: 0 });
  });

  it('that others write to as well is not closed for them', async () => {
    const queue = await queueOf(3);
    const { stdout, stderr } = await sh(`delayq drain ${queue.name}; echo after`);
    expect({ stdout, stderr }).toEqual({ stdout: '0\n1\n2\nafter\n', stderr: '' });
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: { acked: 3 } });
  });

  it('whose peer reads to the end: all jobs are done', async () => {
    const queue = await queueOf(3);
    expect(await delayq(['drain', queue.name])).toMatchObject({ code: 0, stdout: '0\n1\n2\n', stderr: '' });
    expect(await queue.counts()).toMatchObject({ pending: 0, stats: { acked: 3 } });
  });
});

/** The process id of the drain that holds jobs of this queue. */
async function pidOfDrain(queue: Queue): Promise<number> {
  const [held] = await admin.hvals(key(queue.name, 'lease'));
  return Number(/:(\d+)$/.exec(held as string)?.[1]);
}

/** What a descriptor of a process refers to; empty if there is none, or if it is not ours to know. */
function linkOf(pid: string | number, fd: number): string {
  try {
    return readlinkSync(`/proc/${pid}/fd/${fd}`);
  } catch {
    return '';
  }
}

/** The processes that have its stdout open for reading. */
function readersOf(pid: number): number[] {
  const pipe = linkOf(pid, 1);
  const processes = readdirSync('/proc').filter((name) => /^\d+$/.test(name));
  return processes.filter((other) => linkOf(other, 0) === pipe).map(Number);
}
