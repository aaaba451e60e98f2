import { describe, expect, it } from 'vitest';
import { delayq, linesOf } from '../../support/cli.js';
import { freshQueue } from '../../support/redis.js';

const MANY = 2_000;

describe.concurrent('of many bad lines on stdin the first twenty are told, and how many more there are', () => {
  it.each([
    ['enqueue', ['enqueue', '--json'], 1],
    ['enqueue --atomic', ['enqueue', '--atomic'], 65],
    ['import', ['import', '--json'], 1],
    ['ack', ['ack', '--json'], 1],
    ['cancel', ['cancel', '--json'], 1],
  ])('by %s', async (name, words, status) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const places = { ack: [], import: [queue.name] }[name] ?? [queue.name, '-'];
    const input = Buffer.from('\xff{\n'.repeat(MANY), 'latin1');
    const { code, stdout, stderr } = await delayq([...words, ...places], { input });
    const lines = linesOf(stderr);
    expect(code).toBe(status);
    expect(lines.slice(0, 20).map((line) => /^delayq: line (\d+): ./.exec(line)?.[1])).toEqual(
      Array.from({ length: 20 }, (_, i) => String(i + 1)),
    );
    expect(lines[20]).toBe('delayq: … and 1,980 more bad lines');
    expect(lines.slice(21).join()).toMatch(status === 65 ? /nothing was enqueued: 2,000 bad lines/ : /^$/);
    if (status !== 65 && name !== 'cancel') expect(JSON.parse(stdout)).toMatchObject({ refused: MANY });
  });
});
