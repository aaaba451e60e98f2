import { describe, expect, it } from 'vitest';
import { Operator, Queue } from '../../../src/index.js';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { placesOf } from '../../support/partitions.js';
import { admin, connection, freshName, hearing } from '../../support/redis.js';

const nextOf = (stderr: string) => linesOf(stderr).at(-1);

describe('a queue whose name begins with a dash', () => {
  const name = () => `-${freshName()}`;

  it('is named after --, and what to do next names it so, too', async () => {
    const queue = name();
    expect(await delayq(['enqueue', '--', queue, '1'])).toMatchObject({ code: 0 });
    expect((await delayq(['list', '--json', '--', queue])).stdout).toContain(`"queue":"${queue}"`);
    expect(nextOf((await delayq(['show', '--', queue, 'nobody'])).stderr)).toBe(
      `  next: list the jobs: delayq list -- ${queue}`,
    );
    expect(nextOf((await delayq(['move', '--', queue])).stderr)).toContain(`delayq move --into other … -- ${queue}`);
    const { stderr } = await delayq(['inspect', queue]);
    expect(nextOf(stderr)).toContain(`a queue of this name comes after --: delayq inspect -- ${queue}`);
  });

  it('is drained: into a handler after another --, to --pipe, and to stdout', async () => {
    const queue = name();
    const forms = [
      ['--', queue, '--', 'cat'],
      ['--pipe', 'cat', '--', queue],
      ['--', queue],
    ];
    for (const form of forms) {
      await delayq(['enqueue', '--', queue, '7']);
      expect(await delayq(['drain', '-q', ...form])).toMatchObject({ code: 0, stdout: '7\n', stderr: '' });
    }
    const { code, stderr } = await delayq(['drain', '--', queue, 'cat']);
    expect({ code, next: nextOf(stderr) }).toEqual({ code: 64, next: `  next: write delayq drain -- ${queue} -- cat` });
    expect(await delayq(['drain', '--', queue, '--'])).toMatchObject({ code: 64 });
  });

  it('is in a line for cron as drain takes it', async () => {
    const queue = name();
    expect((await delayq(['crontab', '--', queue, '--', 'cat'])).stdout).toMatch(
      new RegExp(` drain -q .*-- ${queue} -- /\\S*cat\n$`),
    );
  });
});

describe('a queue whose name has 511 characters', () => {
  const name = () => freshName().padEnd(511, 'x');

  it('has partitions, which all calls reach', async () => {
    const queue = new Queue(connection, name());
    const ids = Array.from({ length: 40 }, (_, i) => `o:${i}`);
    await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
    for await (const _ of new Operator(connection).partition(queue.name, 16));
    expect(new Set([...(await placesOf(admin, queue.name)).values()].flat()).size).toBeGreaterThan(8);
    const { stdout } = await delayq(['drain', queue.name]);
    expect(linesOf(stdout)).toHaveLength(40);
  });

  it('wakes its drains', async () => {
    const queue = new Queue(connection, name());
    const { messages } = await hearing(queue.wakeChannel);
    await queue.enqueue({ payload: 1 });
    await expect.poll(() => messages).toHaveLength(1);
  });

  it('gives its jobs to another one of such a name', async () => {
    const [from, to] = [new Queue(connection, name()), new Queue(connection, name())];
    await from.enqueue({ id: 'a', payload: 1 });
    expect(await delayq(['move', '--all', '--yes', '--into', to.name, from.name])).toMatchObject({ code: 0 });
    expect(await to.counts()).toMatchObject({ pending: 1 });
  });

  it('is cut in tables that are as wide as the terminal', async () => {
    const prefix = freshName();
    const queue = new Queue(connection, name(), { prefix });
    await queue.enqueue({ payload: 1 });
    const shown = linesOf(await onTerminal(`delayq inspect --prefix ${prefix}`, { columns: 80 }));
    expect(shown).toContainEqual(expect.stringMatching(/^q\w+…x+ +1 /));
    expect(Math.max(...shown.map((line) => line.length))).toBeLessThanOrEqual(80);
  });
});
