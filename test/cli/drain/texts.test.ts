import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type Queue, Recurring } from '../../../src/index.js';
import { during } from '../../support/afterwards.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshName, freshQueue, key, onCluster, redisTargets } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** Texts that something on the way could take for something else. */
const TEXTS = [
  'any text',
  '42',
  '"abc"',
  '{"a":1}',
  ' {"a": 1} ',
  '[1,\n2]',
  'null',
  '{a:1}',
  '"half',
  '',
  ' ',
  '  leading and trailing  ',
  `it's "quoted" \\n \\ %s $(id) \``,
  'CR\r\nLF\n',
  '\n',
  'tab\tbell\x07\x1b[31m',
  'zażółć 💥 \u2028 \ufeff',
  '123456789012345678901234567890',
  '1e400',
];

async function freshTexts(...settings: string[]): Promise<Queue> {
  const queue = freshQueue();
  await delayq(['config', '--create', queue.name, 'text=on', ...settings]);
  return queue;
}
const stored = (queue: Queue, id: string) => admin.hget(key(queue.name, 'payload'), id);

/** Drains a queue into handlers that keep their stdin as it is. Returns what each got. */
async function handled(queue: Queue, ...options: string[]): Promise<Record<string, Buffer>> {
  const directory = temporaryDirectory();
  const keep = ['sh', '-c', 'cat > "$0/$DELAYQ_ID"; echo "$DELAYQ_ID"', directory];
  const { code, stdout, stderr } = await delayq(['drain', '-q', ...options, queue.name, '--', ...keep]);
  expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
  return Object.fromEntries(linesOf(stdout).map((id) => [id, readFileSync(join(directory, id))]));
}
const each = <T>(value: (text: string) => T) => Object.fromEntries(TEXTS.map((text, i) => [`t${i}`, value(text)]));

describe.concurrent('a queue of texts', () => {
  it.each([[['text=1']], [['partitions=4']], [['rate=1000/s']]])(
    'stores any text as a JSON string, and handlers get it byte for byte: %j',
    async (settings) => {
      const queue = await freshTexts(...settings);
      for (const [i, text] of TEXTS.entries())
        expect(await delayq(['enqueue', '--id', `t${i}`, queue.name, text]), text).toMatchObject({
          code: 0,
          stdout: `t${i}\n`,
          stderr: '',
        });
      const { stdout } = await delayq(['list', '--full', '--json', queue.name]);
      const listed = linesOf(stdout).map((line) => JSON.parse(line));
      expect(Object.fromEntries(listed.map(({ id, payload }) => [id, payload]))).toEqual(each((text) => text));
      expect(await handled(queue)).toEqual(each((text) => Buffer.from(text)));
    },
  );

  it('takes files, lines and recurring jobs as texts, whatever they look like', async () => {
    const queue = await freshTexts();
    const file = join(temporaryDirectory(), 'text');
    const nul = '{"a":1}\r\n\0\n';
    writeFileSync(file, nul);
    expect(await delayq(['enqueue', '--id', 'file', queue.name, `@${file}`])).toMatchObject({ code: 0 });
    const input = 'a line\r\n\n {"a": 1} \n"abc"\n@x\n\0\n';
    expect(await delayq(['enqueue', '-q', '--atomic', queue.name, '-'], { input })).toMatchObject({
      code: 0,
      stderr: '',
    });
    const every = ['every', '-q', '1d', '--id', 'r', queue.name];
    for (const text of ['no JSON', '"abc"', '{"a":1}']) {
      expect(await delayq([...every, text])).toMatchObject({ code: 0 });
      expect(await new Recurring(connection).list(queue.name)).toMatchObject([
        { payload: Buffer.from(JSON.stringify(text)) },
      ]);
    }
    expect(
      Object.values(await handled(queue))
        .map(String)
        .sort(),
    ).toEqual([nul, 'a line', ' {"a": 1} ', '"abc"', '@x', '\0'].sort());
  });

  it('stores texts with --if-exists replace, in place of active jobs too, --once-for and --text', async () => {
    const queue = await freshTexts();
    const enqueue = (...args: string[]) => delayq(['enqueue', '-q', '--id', 'a', ...args]);
    await enqueue(queue.name, '1');
    await enqueue('--if-exists', 'replace', queue.name, '2');
    expect(await stored(queue, 'a')).toBe('"2"');
    expect((await queue.drain()).jobs).toHaveLength(1);
    await enqueue('--if-exists', 'replace', '--once-for', '1d', queue.name, '3');
    expect(await stored(queue, 'a')).toBe('"3"');
    await enqueue('--if-exists', 'replace', '--text', queue.name, '4');
    expect(await stored(queue, 'a')).toBe('"4"');
  });

  it('prints a text as a line; with line breaks as a JSON string, and says so', async () => {
    for (const form of [[], ['--at-most-once'], ['--pipe', 'cat']]) {
      const queue = await freshTexts();
      for (const [i, text] of ['a "text"', '42', '"abc"', 'two\nlines', ' x '].entries())
        await delayq(['enqueue', '-q', '--id', `t${i}`, '--at', `@${i + 1}`, queue.name, text]);
      const { code, stdout, stderr } = await delayq(['drain', ...form, queue.name]);
      expect({ code, stdout }).toEqual({ code: 0, stdout: 'a "text"\n42\n"abc"\n"two\\nlines"\n x \n' });
      expect(stderr).toContain(`delayq: ${queue.name}: a text has line breaks: printed as a JSON string (t3)\n`);
    }
  });

  it('has JSON strings in envelopes and exports, which bring the same texts back', async () => {
    const [queue, other] = [await freshTexts(), freshQueue()];
    for (const [i, text] of TEXTS.entries()) await delayq(['enqueue', '-q', '--id', `t${i}`, queue.name, text]);
    const { stdout: lines } = await delayq(['export', '--config', queue.name]);
    await delayq(['import', '--config', other.name], { input: lines });
    const { stdout } = await delayq(['drain', '-q', '--envelope', queue.name]);
    const envelopes = linesOf(stdout).map((line) => JSON.parse(line));
    expect(Object.fromEntries(envelopes.map(({ id, payload }) => [id, payload]))).toEqual(each((text) => text));
    expect(await handled(other)).toEqual(each((text) => Buffer.from(text)));
  });

  it('delivers other payloads, of --jobs and of programs, as they are stored, with nothing added', async () => {
    const queue = await freshTexts();
    await queue.enqueue({ id: 'program', payload: { a: 1 } });
    const input = '{"payload":{"b": 2},"id":"json"}\n{"payload":"c\\n","id":"text"}\n';
    await delayq(['enqueue', '-q', '--jobs', queue.name, '-'], { input });
    expect(await handled(queue)).toEqual({
      program: Buffer.from('{"a":1}'),
      json: Buffer.from('{"b": 2}'),
      text: Buffer.from('c\n'),
    });
  });

  it('adds a line end with --text, as everywhere', async () => {
    const queue = await freshTexts();
    await delayq(['enqueue', '-q', '--id', 'a', queue.name, 'x']);
    expect(await handled(queue, '--text')).toEqual({ a: Buffer.from('x\n') });
  });

  it('is one beside others of the same drain, and a drain that watches follows a change', async () => {
    const [texts, plain] = [await freshTexts(), freshQueue()];
    const put = async () => {
      for (const queue of [texts, plain]) await queue.enqueue({ payload: 'x' });
    };
    const draining = begin([
      'drain',
      '-q',
      '-w',
      `${texts.name},${plain.name}`,
      '--',
      'sh',
      '-c',
      'cat; echo "|$DELAYQ_QUEUE"',
    ]);
    await put();
    await until(() => draining.stdout.includes(texts.name) && draining.stdout.includes(plain.name));
    expect(draining.stdout.split('\n')).toEqual(expect.arrayContaining([`x|${texts.name}`, '"x"', `|${plain.name}`]));
    await delayq(['config', texts.name, 'text=']);
    await delayq(['config', plain.name, 'text=yes']);
    await put();
    await until(() => draining.stdout.includes(`\n|${texts.name}`) && draining.stdout.includes(`x|${plain.name}`));
    draining.child.kill();
    expect(await draining.ended).toMatchObject({ code: 0, stderr: '' });
  });
});

describe('a queue without text=on', () => {
  it('refuses what is not JSON, exit 65, says how to store it, and adds a line end to all others', async () => {
    const queue = freshQueue();
    expect(await delayq(['enqueue', queue.name, 'word'])).toMatchObject({
      code: 65,
      stdout: '',
      stderr: expect.stringContaining('next: to store any text: --text, or delayq config QUEUE text=on'),
    });
    await delayq(['enqueue', '-q', '--id', 'a', '--text', queue.name, 'word']);
    await delayq(['enqueue', '-q', '--id', 'b', queue.name, ' "abc"\n']);
    expect(await handled(queue)).toEqual({ a: Buffer.from('"word"\n'), b: Buffer.from('"abc"\n') });
  });

  it.skipIf(onCluster)('costs no further call: one script enqueues, and nothing is read before it', async () => {
    const proxy = await FaultyProxy.start(...redisTargets);
    during(proxy);
    const calls = async (word: string, ...args: string[]) => {
      proxy.struck = 0;
      proxy.fault = { word, kind: 'pass', times: 1_000 };
      expect(await delayq(args, { env: { DELAYQ_REDIS_URL: proxy.url } })).toMatchObject({ code: 0 });
      return proxy.struck;
    };
    const [name, texts] = [freshName(), (await freshTexts()).name];
    // Once, for the text of the scripts.
    await delayq(['enqueue', name, '1']);
    await delayq(['enqueue', texts, '1']);
    expect(await calls('EVALSHA', 'enqueue', name, '{"a":1}')).toBe(1);
    expect(await calls('HMGET', 'enqueue', name, '{"a":1}')).toBe(0);
    // The call that is refused, because its layout is another, has told of the texts.
    expect(await calls('EVALSHA', 'enqueue', texts, '{"a":1}')).toBe(2);
    expect(await calls('HMGET', 'enqueue', texts, '{"a":1}')).toBe(0);
  });
});
