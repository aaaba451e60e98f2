import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { type NewJob, Operator, RawPayload } from '../../../src/index.js';
import { delayq, linesOf, sh } from '../../support/cli.js';
import { admin, connection, freshQueue, key } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';

const raw = (bytes: string | Buffer) => new RawPayload(Buffer.from(bytes));
const binary = Buffer.from(Array.from({ length: 256 }, (_, i) => i));
const NOT_A_LINE = 'not a line: the payload is not JSON, and has line breaks or is not text';

/** Payloads that would break or forge lines. */
const NO_LINES: readonly [string, Buffer][] = [
  ['lf', Buffer.from('{"forged":1}\n{"forged":2}')],
  ['cr', Buffer.from('a\rb')],
  ['binary', binary],
  ['latin1', Buffer.from([0x61, 0xe9])],
  ['nul', Buffer.from('a\0b')],
];
const noLines = (): NewJob[] => NO_LINES.map(([id, bytes], i) => ({ id, payload: new RawPayload(bytes), at: 10 + i }));

/** Each job of a queue that is dead, and why. */
async function deadOf(queue: string): Promise<Record<string, unknown>> {
  const { stdout } = await delayq(['list', '--dead', '--json', queue]);
  return Object.fromEntries(linesOf(stdout).map((line) => [JSON.parse(line).id, JSON.parse(line).error]));
}

describe.concurrent('a payload that is not JSON', () => {
  it.each([
    ['binary', binary],
    ['empty', Buffer.alloc(0)],
    ['lines', Buffer.from('a\r\nb\n')],
    ['text', Buffer.from('no end')],
  ])('reaches a handler after -- byte for byte: %s', async (_, bytes) => {
    for (const form of [[], ['--text']]) {
      const queue = freshQueue();
      await queue.enqueue({ payload: new RawPayload(bytes) });
      const { code, stdout } = await sh(
        `delayq drain ${form.join(' ')} ${queue.name} -- od -An -v -tx1 | tr -d ' \\n'`,
      );
      expect({ code, stdout }).toEqual({ code: 0, stdout: bytes.toString('hex') });
      expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: 0 });
    }
  });

  it.each([[[]], [['--text']], [['--at-most-once']], [['--pipe', 'cat']]])(
    'is a line as it is if it is text without line breaks: %j',
    async (form) => {
      const queue = freshQueue();
      const texts = ['plain text', 'zażółć', '', '{\n"a":\r\n1}'];
      await queue.enqueue(texts.map((text, i) => ({ payload: raw(text), at: 1 + i })));
      const { code, stdout, stderr } = await delayq(['drain', '-q', ...form, queue.name]);
      expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'plain text\nzażółć\n\n{ "a":  1}\n', stderr: '' });
    },
  );

  it.each([[[]], [['--text']], [['--at-most-once']]])(
    'that cannot be a line is buried by a drain to stdout, and the others are printed: %j',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue([{ id: 'first', payload: 1, at: 1 }, ...noLines(), { id: 'last', payload: 2, at: 100 }]);
      const { code, stdout, stderr } = await delayq(['drain', '-q', ...form, queue.name]);
      expect({ code, stdout }).toEqual({ code: 1, stdout: '1\n2\n' });
      expect(linesOf(stderr)).toEqual(NO_LINES.map(([id]) => `delayq: ${queue.name} ${id}: dead: ${NOT_A_LINE}`));
      expect(await deadOf(queue.name)).toEqual(Object.fromEntries(NO_LINES.map(([id]) => [id, NOT_A_LINE])));
      expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: NO_LINES.length });
      // Each has kept its bytes, for a form that can deliver them.
      for (const [id, bytes] of NO_LINES) expect(await admin.hgetBuffer(key(queue.name, 'payload'), id)).toEqual(bytes);
      expect(await delayq(['drain', queue.name])).toMatchObject({ code: 0, stdout: '' });
    },
  );

  it('that cannot be a line is buried by --pipe, and the rest of its batch goes on', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ id: 'first', payload: 1, at: 1 }, ...noLines(), { id: 'last', payload: 2, at: 100 }]);
    const { code, stdout, stderr } = await delayq(['drain', '-q', '--pipe', 'cat', queue.name]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: '1\n2\n' });
    expect(linesOf(stderr)).toEqual(
      NO_LINES.map(([id]) => `delayq: ${queue.name} ${id}: attempt 1, 0ms: dead: ${NOT_A_LINE}`),
    );
    expect(await deadOf(queue.name)).toEqual(Object.fromEntries(NO_LINES.map(([id]) => [id, NOT_A_LINE])));
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0 });
  });

  it('that is all a queue has ends the drain', async () => {
    for (const form of [[], ['--pipe', 'cat'], ['--at-most-once']]) {
      const queue = freshQueue();
      await queue.enqueue(noLines());
      expect(await delayq(['drain', ...form, queue.name])).toMatchObject({ code: 1, stdout: '' });
      expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: NO_LINES.length });
    }
  });

  it('is buried in its partition, too', async () => {
    const queue = freshQueue();
    for await (const _ of new Operator(connection).partition(queue.name, 4));
    await queue.enqueue(noLines());
    expect(await delayq(['drain', '--at-most-once', queue.name])).toMatchObject({ code: 1, stdout: '' });
    expect(await queue.counts()).toMatchObject({ pending: 0, active: 0, dead: NO_LINES.length });
  });

  it.each([[['--envelope']], [['--lease', '1m']], [['--pipe', 'cat', '--envelope']]])(
    'is base64 in an envelope: %j',
    async (form) => {
      const queue = freshQueue();
      await queue.enqueue([...noLines(), { id: 'json', payload: raw('[1,\n2]'), at: 50 }]);
      const { code, stdout, stderr } = await delayq(['drain', '-q', ...form, queue.name]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
      const lines = linesOf(stdout).map((line) => JSON.parse(line));
      expect(
        lines.map(({ id, payload, payloadBase64 }) => [id, payload ?? Buffer.from(payloadBase64, 'base64')]),
      ).toEqual([...NO_LINES, ['json', [1, 2]]]);
    },
  );

  it('is base64 in what list and show print as JSON, and an export brings it back', async () => {
    const queue = freshQueue();
    await queue.enqueue(noLines());
    const listed = linesOf((await delayq(['list', '--json', queue.name])).stdout).map((line) => JSON.parse(line));
    expect(listed.map(({ id, payloadBase64 }) => [id, Buffer.from(payloadBase64, 'base64')])).toEqual(NO_LINES);
    const shown = JSON.parse((await delayq(['show', '--json', queue.name, 'binary'])).stdout);
    expect(shown).toMatchObject({ payloadBase64: binary.toString('base64') });
    expect(shown).not.toHaveProperty('payload');
    const file = join(temporaryDirectory(), 'jobs');
    writeFileSync(file, (await delayq(['export', queue.name])).stdout);
    const other = freshQueue();
    expect(await sh(`delayq import ${other.name} < ${file}`)).toMatchObject({ code: 0 });
    for (const [id, bytes] of NO_LINES) expect(await admin.hgetBuffer(key(other.name, 'payload'), id)).toEqual(bytes);
  });
});
