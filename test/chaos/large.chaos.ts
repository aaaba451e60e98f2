import { createHash } from 'node:crypto';
import { truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { sh } from '../support/cli.js';
import { key, timePasses } from '../support/redis.js';
import { Server } from '../support/server.js';
import { temporaryDirectory } from '../support/temporary.js';
import { within } from '../support/until.js';

/** Together more than a process may use, and than one string of V8 can hold. */
const JOBS = 64;
const PAYLOAD = 8 * 1024 * 1024;
const WIDE = JOBS / 8;
const MAX_RSS = 400 * 1024 * 1024;

let server: Server;

/** Writes jobs with the largest payloads. One in eight needs two bytes per character in V8. */
const FILL = `
  local plain = '"' .. string.rep('x', tonumber(ARGV[2]) - 2) .. '"'
  local wide = '"' .. string.rep('x', tonumber(ARGV[2]) - 5) .. '\\226\\130\\172"'
  for i = 1, ARGV[1] do
    redis.call('HSET', KEYS[1], 'job:' .. i, i % 8 == 0 and wide or plain)
    redis.call('ZADD', KEYS[2], 1700000000000 + i, 'job:' .. i)
  end`;

beforeAll(async () => {
  // Otherwise Redis returns the memory of each payload to the system and requests it again for the next: slow.
  process.env.MALLOC_CONF = 'dirty_decay_ms:-1,muzzy_decay_ms:-1';
  server = await Server.start().finally(() => delete process.env.MALLOC_CONF);
  await server.admin.eval(FILL, 2, key('a', 'payload'), key('a', 'pending'), JOBS, PAYLOAD);
  await server.admin.sadd('delayq:queues', 'a');
}, 120_000);

afterAll(() => server.stop());

/** Runs a shell line, and checks the peak memory of each delayq in it. */
async function lean(line: string): Promise<{ stdout: string; stderr: string }> {
  const atExit = "process.on('exit',()=>console.error('rss '+process.resourceUsage().maxRSS))";
  const env = {
    DELAYQ_REDIS_URL: server.url,
    NODE_OPTIONS: `--import data:text/javascript,${encodeURIComponent(atExit)}`,
  };
  const { stdout, stderr } = await within(300_000, line, sh(line, { env }));
  const peaks = [...`${stdout}${stderr}`.matchAll(/^rss (\d+)\r?\n/gm)].map(([, kib]) => Number(kib) * 1024);
  expect(peaks.length).toBe(line.split('delayq ').length - 1);
  for (const peak of peaks) expect(peak, line).toBeLessThan(MAX_RSS);
  const plain = (text: string) => text.replace(/^rss \d+\r?\n/gm, '');
  return { stdout: plain(stdout), stderr: plain(stderr) };
}

/** How many jobs a queue holds, and the bytes of their payloads. */
async function held(queue: string): Promise<{ jobs: number; bytes: number }> {
  const lengths = (await server.admin.eval(
    `local n = 0 for _, id in ipairs(redis.call('HKEYS', KEYS[1])) do n = n + redis.call('HSTRLEN', KEYS[1], id) end return n`,
    1,
    key(queue, 'payload'),
  )) as number;
  return { jobs: await server.admin.zcard(key(queue, 'pending')), bytes: lengths };
}

const all = { jobs: JOBS, bytes: JOBS * PAYLOAD };
const none = { jobs: 0, bytes: 0 };

// In this order: what one test leaves the next one takes.
describe(`${JOBS} payloads of 8 MiB in under 400 MiB, all of them whole (failures 39)`, () => {
  it('are listed: in a pipe, on a terminal, by a text', async () => {
    const [lines, bytes] = (await lean(`delayq list --json a | tr -cd 'x\\n' | wc -lc`)).stdout
      .trim()
      .split(/ +/)
      .map(Number);
    expect(lines).toBe(JOBS);
    // The newline and the x of "maxLost" instead of the quotes; and the x of "expires".
    expect(bytes).toBe(JOBS * (PAYLOAD + 1) - 3 * WIDE);
    expect((await lean('delayq list --json --grep nowhere a | wc -c')).stdout.trim()).toBe('0');
    const { stdout } = await lean(`script -qec 'stty cols 100; delayq list -n ${JOBS} a' /dev/null`);
    expect(stdout.match(/^job:\d+ .*…\r$/gm)).toHaveLength(JOBS);
    const full = (await lean(`script -qec 'delayq list --full -n 3 a' /dev/null`)).stdout;
    expect(full.match(/x{2,}/g)?.map(({ length }) => length)).toEqual([PAYLOAD - 2, PAYLOAD - 2, PAYLOAD - 2]);
  });

  it('are looked through before an act, and shown in its samples', async () => {
    const { stderr } = await lean('delayq bury --grep xxx --dry-run a');
    expect(stderr).toContain(`${JOBS} jobs would be buried in a`);
    expect(stderr.length).toBeLessThan(10_000);
    const ids = Array.from({ length: JOBS }, (_, i) => `job:${i + 1}`).join('\\n');
    expect((await lean(`printf '${ids}\\n' | delayq cancel --dry-run a -`)).stderr).toContain(`${JOBS} jobs would be`);
    expect(await held('a')).toEqual(all);
  });

  it('are exported and imported, byte for byte', async () => {
    await lean('delayq export -q a | delayq import -q b');
    expect(await held('b')).toEqual(all);
    const [digest, again] = await Promise.all(
      ['a', 'b'].map(async (queue) =>
        createHash('sha1')
          .update((await server.admin.hgetBuffer(key(queue, 'payload'), 'job:8')) as Buffer)
          .digest('hex'),
      ),
    );
    expect(again).toBe(digest);
  });

  it('are moved', async () => {
    await server.admin.unlink(key('a', 'payload'), key('a', 'pending'));
    await lean('delayq move --grep xxx --yes --into c b');
    expect([await held('b'), await held('c')]).toEqual([none, all]);
  });

  it('are drained into a pipe, and enqueued from it: as they are, as text, as envelopes', async () => {
    await lean('delayq drain -q c | delayq enqueue -q d -');
    expect([await held('c'), await held('d')]).toEqual([none, all]);
    await lean('delayq drain -q --text --at-most-once d | delayq enqueue --text -q e -');
    expect([await held('d'), await held('e')]).toEqual([none, all]);
    await lean(
      `delayq drain -q --envelope e | sed 's/^{"queue.*"payload":/{"payload":/' | delayq enqueue --jobs -q f -`,
    );
    expect([await held('e'), await held('f')]).toEqual([none, all]);
  });

  it('are given back, and acked, by their lines', async () => {
    await lean('delayq drain -q --lease 1h f | delayq nack --in 1h');
    expect(await held('f')).toEqual(all);
    await timePasses('f', 7_200_000, server.admin);
    expect((await lean('delayq drain -q --lease 1h -n 20 f | delayq ack --json')).stdout).toContain('"settled":20');
  });

  it('are handed to handlers, several at once, and many to one', async () => {
    const left = JOBS - 20 - 20;
    const { stdout } = await lean(`delayq drain -q -n 20 -P 4 f -- cat | tr -cd '\\n' | wc -c`);
    expect(stdout.trim()).toBe('20');
    const batches = (await lean(`delayq drain -q --pipe 'wc -lc' --batch 100 f`)).stdout.trim().split('\n');
    const counts = batches.map((line) => line.trim().split(/ +/).map(Number) as [number, number]);
    expect(counts.reduce((sum, [n]) => sum + n, 0)).toBe(left);
    expect(counts.reduce((sum, [, bytes]) => sum + bytes, 0)).toBe(left * (PAYLOAD + 1));
    expect(await held('f')).toEqual(none);
  });

  it('are adopted from other software, and audited', async () => {
    await server.admin.eval(FILL, 2, 'data', 'due', JOBS, PAYLOAD);
    const adopt = 'delayq adopt --zset due --hash data --unit ms';
    expect((await lean(`${adopt} --dry-run g`)).stderr).toContain(`${JOBS} jobs would be adopted into g`);
    await lean(`${adopt} g`);
    expect(await held('g')).toEqual(all);
    await lean('delayq doctor g >&2; delayq inspect g >&2; true');
  });

  it('of 1 GiB is too large, said without reading it into memory', async () => {
    const file = join(temporaryDirectory(), 'large');
    writeFileSync(file, '"');
    truncateSync(file, 1024 ** 3);
    expect((await lean(`delayq enqueue h @${file}; echo $?`)).stdout).toBe('65\n');
    expect((await lean(`delayq enqueue h - < ${file}; echo $?`)).stdout).toBe('1\n');
    expect((await lean(`delayq import h ${file}; echo $?`)).stdout).toBe('1\n');
    expect(await held('h')).toEqual(none);
  });
});
