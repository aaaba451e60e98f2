import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from 'vitest';
import { binary, linesOf } from '../support/cli.js';
import { read } from '../support/handlers.js';
import { freshQueue, redisUrl } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { ALL_READERS, Consumer, READERS, type ReaderName } from './consumers.js';
import { readLog } from './ledger.js';
import { repeat, sampled, seed } from './options.js';
import { payloadOf } from './producers.js';
import { Random } from './random.js';

/** What happens to a pipeline. */
const STRIKES = {
  'its reader is killed': (pipeline: Consumer) => pipeline.signal('reader', 'SIGKILL'),
  'its reader is killed, and its drain stopped later': async (pipeline: Consumer, random: Random) => {
    pipeline.signal('reader', 'SIGKILL');
    await sleep(random.whole(0, 2_000));
    pipeline.signal('drain', 'SIGTERM');
  },
  'it is interrupted as a group': (pipeline: Consumer) => pipeline.signalAll('SIGINT'),
  'it is stopped as a group': (pipeline: Consumer) => pipeline.signalAll('SIGTERM'),
  'its members are stopped one after another': async (pipeline: Consumer, random: Random) => {
    const [first, second] = random.shuffled(['reader', 'drain']) as [string, string];
    pipeline.signal(first, 'SIGTERM');
    await sleep(random.whole(0, 50));
    pipeline.signal(second, 'SIGTERM');
  },
} as const;

/**
 * Two streams that fit into the pipe and its reader, and one that goes on. Pauses are seconds. A reader that starts
 * processes for each job, such as awk, does few a second on a busy machine.
 */
const STREAMS = {
  quiet: { flags: '--watch', jobs: 150, pad: 100, pause: '0.01', least: 5, most: 100 },
  // A reader that is killed after the end of its input counts as done.
  'quiet, for a while': { flags: '--for 4s', jobs: 150, pad: 100, pause: '0.01', least: 5, most: 40 },
  busy: { flags: '--watch', jobs: 3_000, pad: 600, pause: '', least: 100, most: 500 },
} as const;

const figures = new Map<ReaderName, { runs: number; lost: number; twice: number }>();

afterAll(() => {
  for (const [name, { runs, lost, twice }] of figures)
    console.log(`${name}: ${runs} runs, ${lost} jobs lost, ${twice} came twice`);
});

/** Lets a pipeline do some jobs, strikes it, and checks what happened to all jobs. */
async function play(name: ReaderName, stream: keyof typeof STREAMS, strike: keyof typeof STRIKES, random: Random) {
  const { flags, jobs, pad, pause, least, most } = STREAMS[stream];
  const queue = freshQueue();
  const ids = Array.from({ length: jobs }, (_, n) => `job-${n}`);
  const fill = () => queue.enqueue(ids.map((id) => ({ id, payload: 'x'.repeat(pad) })));
  // On a busy machine a call may take longer than its limit.
  await fill().catch(fill);
  const directory = temporaryDirectory();
  const log = join(directory, 'log');
  const errors = join(directory, 'errors');
  const how = { queue: queue.name, url: redisUrl, log, errors, label: 'struck', flags, reader: name, pause };
  const pipeline = new Consumer('stdout', how);
  const when = random.whole(least, most);
  try {
    await until(() => pipeline.over || read(log).split('\n').length > when, 120_000);
    await STRIKES[strike](pipeline, random);
    await pipeline.end();
    // What a drain gives back is pending at once; what it forgot is active until its lease expires.
    await until(async () => (await queue.counts().catch(() => undefined))?.active === 0, 60_000);
  } finally {
    await pipeline.kill();
  }
  const seen = readLog(read(log)).handlings.map(({ id }) => id);
  const { stdout } = await binary(['drain', '--envelope', queue.name]);
  const rest = linesOf(stdout).map((line) => JSON.parse(line).id as string);
  const all = new Set([...seen, ...rest]);
  const figure = figures.get(name) ?? { runs: 0, lost: 0, twice: 0 };
  figures.set(name, {
    runs: figure.runs + 1,
    lost: figure.lost + jobs - all.size,
    twice: figure.twice + seen.length + rest.length - all.size,
  });
  expect(readFileSync(errors, 'utf8')).not.toMatch(/^ +at /m);
  expect(all.size, `of ${jobs} jobs, struck after ${when}, ${seen.length} handled, ${rest.length} back`).toBe(jobs);
}

const cases = READERS.flatMap((name) =>
  (Object.keys(STREAMS) as (keyof typeof STREAMS)[]).flatMap((stream) =>
    (Object.keys(STRIKES) as (keyof typeof STRIKES)[]).map((strike) => [name, stream, strike] as const),
  ),
);

describe.concurrent(`drain | reader (seed ${seed})`, { timeout: repeat * 300_000 }, () => {
  for (const [name, stream, strike] of sampled(cases, 3)) {
    it(`${name}, ${stream}: ${strike}, and no job is lost (failures 35)`, async () => {
      for (let n = 0; n < repeat; n++) await play(name, stream, strike, new Random(seed + n));
    });
  }
});

it.runIf(READERS.includes('awk'))('awk takes no line without its end for a job, nor what mawk repeats after it', () => {
  const envelope = (id: string, payload: string) =>
    `{"queue":"q","id":"${id}","receipt":"r","attempt":1,"due":1795328621802,"payload":${payload}}\n`;
  const whole = envelope('long', payloadOf('long', 'ok', 20_000)) + envelope('text', '"x"');
  const cut = envelope('cut', payloadOf('cut', 'ok', 100));
  for (const length of [20, 60, 100, 150, cut.length - 3]) {
    const log = join(temporaryDirectory(), 'log');
    const env = { ...process.env, CHAOS_LOG: log, CHAOS_RUN: 'awk' };
    const { status } = spawnSync('sh', ['-c', ALL_READERS.awk[1]], { input: whole + cut.slice(0, length), env });
    expect(status).toBe(0);
    expect(readFileSync(log, 'utf8').match(/^\S*/gm)).toEqual(['long', 'text', '']);
  }
});
