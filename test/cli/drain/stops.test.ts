import { existsSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { Queue } from '../../../src/index.js';
import { beginSh, delayq, GAVE_BACK, linesOf, type Running } from '../../support/cli.js';
import { upTo } from '../../support/jobs.js';
import { admin, freshQueue, key } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** Programs that write down each line that they have handled: the first when the gate is open. */
const READERS = {
  sh: 'while read -r line; do : > "$LOG.read"; until [ -e "$GATE" ]; do sleep 0.01; done; echo "$line" >> "$LOG"; done',
  awk: `awk '{ while (system("[ -e $GATE ]")) system("sleep 0.01"); print >> ENVIRON["LOG"]; fflush() }'`,
  perl: `perl -ne 'select undef, undef, undef, 0.01 until -e $ENV{GATE}; open L, ">>$ENV{LOG}"; print L; close L'`,
  xargs: `xargs -r -n 1 sh -c 'until [ -e "$GATE" ]; do sleep 0.01; done; echo "$1" >> "$LOG"' handler`,
  jq: 'jq --unbuffered . >> "$LOG"',
  python: `python3 -c '
import os, sys, time
for line in sys.stdin:
  while not os.path.exists(os.environ["GATE"]): time.sleep(0.01)
  print(line, end="", file=open(os.environ["LOG"], "a"))'`,
  php: `php -r '
while (($line = fgets(STDIN)) !== false) {
  echo "read";
  while (!file_exists(getenv("GATE"))) { clearstatcache(); usleep(10000); }
  file_put_contents(getenv("LOG"), $line, FILE_APPEND);
}'`,
  node: `node -e '
const { appendFileSync, existsSync } = require("node:fs");
process.stdin.on("data", (text) => {
  console.log("read");
  const wait = () => existsSync(process.env.GATE) ? appendFileSync(process.env.LOG, text) : setTimeout(wait, 10);
  wait();
});'`,
};

const JOBS = upTo(5).map(String);

/** A drain that has written all jobs, and its reader, which holds some of them. */
async function scene(reader: string, wrapper = '', watch = '--watch') {
  const directory = temporaryDirectory();
  const env = { LOG: join(directory, 'log'), GATE: join(directory, 'gate') };
  const queue = freshQueue();
  await queue.enqueue(JOBS.map((payload) => ({ payload: Number(payload) })));
  const running = beginSh(`${wrapper} delayq drain ${watch} ${queue.name} | ${reader}`, { env, detached: true });
  await until(async () => (await queue.counts()).active === JOBS.length);
  return {
    queue,
    running,
    log: () => (existsSync(env.LOG) ? linesOf(readFileSync(env.LOG, 'utf8')) : []),
    openGate: () => writeFileSync(env.GATE, ''),
    /** Whether the reader in sh has read a line. */
    hasRead: () => existsSync(`${env.LOG}.read`),
    /** What a drain has said whose stderr is redirected to `$LOG.said`. */
    said: () => readFileSync(`${env.LOG}.said`, 'utf8'),
  };
}

async function pidOfDrain(queue: Queue): Promise<number> {
  const [held] = await admin.hvals(key(queue.name, 'lease'));
  return Number(/:(\d+)$/.exec(held as string)?.[1]);
}

/** What is delivered again, once nobody holds a job. */
async function rest({ queue, running }: { queue: Queue; running: Running }): Promise<string[]> {
  await running.ended;
  await until(async () => (await queue.counts()).active === 0);
  return linesOf((await delayq(['drain', queue.name])).stdout);
}

describe.concurrent('a signal that reaches the drain alone', () => {
  it.each([
    ...(['sh', 'awk', 'perl', 'xargs', 'jq', 'python'] as const).map((name) => [name, 'SIGTERM'] as const),
    ['python', 'SIGHUP'],
    ['perl', 'SIGINT'],
  ] as const)('%s reads on: what it has got is done, and the rest comes once (%s)', async (name, signal) => {
    const stage = await scene(READERS[name]);
    process.kill(await pidOfDrain(stage.queue), signal);
    stage.openGate();
    const again = await rest(stage);
    expect([...stage.log(), ...again].sort()).toEqual(JOBS);
    expect((await stage.running.ended).stderr).not.toContain('gave back');
  });

  it.each([['php'], ['node']] as const)(
    '%s may be ending by it: what it has read comes again, and is told',
    async (name) => {
      const stage = await scene(READERS[name]);
      await until(() => stage.running.stdout.startsWith('read'));
      process.kill(await pidOfDrain(stage.queue), 'SIGTERM');
      await until(() => stage.running.stderr.includes('gave back'));
      stage.openGate();
      const again = await rest(stage);
      expect([...new Set([...stage.log(), ...again])].sort()).toEqual(JOBS);
      expect((await stage.running.ended).stderr).toMatch(
        /^delayq: gave back \d jobs? that the reader may have read: .*--for 55s.*timeout 55\n$/,
      );
    },
  );

  it('after all was written: what a reader that goes on has got is done, and the rest comes once', async () => {
    const stage = await scene(READERS.sh, '', '');
    const drain = await pidOfDrain(stage.queue);
    await until(() => readlinkSync(`/proc/${drain}/fd/1`) === '/dev/null');
    process.kill(drain, 'SIGTERM');
    // What nobody has read is taken back. The reader ends soon after, and not because of the signal.
    await until(async () => (await stage.queue.counts()).pending > 0);
    stage.openGate();
    const again = await rest(stage);
    expect([...stage.log(), ...again].sort()).toEqual(JOBS);
  });

  it('and its wrapper: the reader reads all, and all is done', async () => {
    const stage = await scene(READERS.sh, 'timeout --foreground 1000');
    process.kill(await pidOfDrain(stage.queue), 'SIGTERM');
    await until(async () => (await admin.hlen(key(stage.queue.name, 'lease'))) === JOBS.length);
    stage.openGate();
    expect(await rest(stage)).toEqual([]);
    expect(stage.log()).toEqual(JOBS);
  });

  it('that waits for its reader, is over after --grace', async () => {
    const stage = await scene(READERS.sh, 'sh -c \'exec "$0" "$@" --grace 1s\'');
    process.kill(await pidOfDrain(stage.queue), 'SIGTERM');
    await until(async () => (await stage.queue.counts()).pending === JOBS.length);
    stage.openGate();
    await stage.running.ended;
  });
});

describe.concurrent('a signal that reaches drain and reader', () => {
  it.each([
    ['sh', 'SIGTERM'],
    ['python', 'SIGTERM'],
    ['python', 'SIGINT'],
    ['node', 'SIGTERM'],
    ['xargs', 'SIGINT'],
    ['sh', 'SIGHUP'],
  ] as const)('%s loses nothing (%s)', async (name, signal) => {
    const stage = await scene(READERS[name]);
    process.kill(-(stage.running.child.pid as number), signal);
    const again = await rest(stage);
    expect([...new Set([...stage.log(), ...again])].sort()).toEqual(JOBS);
  });

  it('and comes to drain twice, as from systemd and from timeout, stops it once: all is given back', async () => {
    const stage = await scene(READERS.sh, '2> "$LOG.said"');
    const drain = await pidOfDrain(stage.queue);
    await until(stage.hasRead);
    process.kill(-(stage.running.child.pid as number), 'SIGTERM');
    process.kill(drain, 'SIGHUP');
    expect(await rest(stage)).toEqual(JOBS);
    // The shell has gone before it.
    await until(() => GAVE_BACK.test(stage.said()));
  });

  it('and their wrapper loses nothing', async () => {
    const stage = await scene(READERS.sh, 'timeout --foreground 1000');
    process.kill(-(stage.running.child.pid as number), 'SIGTERM');
    expect(await rest(stage)).toEqual(JOBS);
  });
});
