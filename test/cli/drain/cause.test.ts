import { writeFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { delayq } from '../../support/cli.js';
import { path, shell, show } from '../../support/handlers.js';
import { freshQueue } from '../../support/redis.js';

/** A program in a file, as a handler. */
function program(interpreter: string, text: string): string[] {
  const file = path();
  writeFileSync(file, text);
  return ['--', interpreter, file];
}

/** What a program reports that fails in a function of a function. */
const PROGRAMS: readonly (readonly [string, string, RegExp])[] = [
  ['python3', 'def f(n):\n  return int("x") if n == 0 else f(n - 1)\nf(20)\n', /^ValueError: invalid literal for int/],
  ['python3', 'raise ValueError("first\\nsecond")\n', /^ValueError: first$/],
  ['node', 'const f = (n) => { if (n === 0) throw new TypeError("boom"); f(n - 1); };\nf(20);\n', /^TypeError: boom$/],
  ['node', 'throw Object.assign(new Error("boom"), { code: "X", cause: new Error("inner") });\n', /^Error: boom$/],
  ['node', 'throw "text"\n', /^text$/],
  ['php', '<?php\nfunction f() { throw new Exception("boom"); }\nf();\n', /^PHP Fatal error: .*Exception: boom in /],
  ['perl', 'use Carp; sub f { confess("boom") } f(1);\n', /^boom at /],
  ['sh', 'echo before >&2\nmissing-command; exit 1\n', /missing-command.*not found$/],
];

describe.concurrent('the error of a failed job', () => {
  it.each(PROGRAMS)('of %s begins with the line that names it: %j', async (interpreter, text, line) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    const options = ['--backoff', '1h'];
    const { stderr } = await delayq(['drain', ...options, queue.name, ...program(interpreter, text)]);
    const [first = '', ...context] = (await show(queue, 'a'))?.error?.split('\n') ?? [];
    expect(first).toMatch(/^exit \d+: /);
    const told = first.replace(/^exit \d+: /, '');
    expect(told).toMatch(line);
    const [written = '', summary] = stderr.split('\ndelayq: ');
    expect(context.at(-1)).toBe(written.split('\n').at(-1));
    expect(summary).toContain(`why:  ${first} …`);
    expect((await delayq(['list', queue.name], { env: { COLUMNS: '300' } })).stdout).toContain(told);
  });

  it('is the line alone if there is no other', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a' });
    await delayq(['drain', '-q', '--backoff', '1h', queue.name, ...shell('echo only >&2; exit 1')]);
    expect((await show(queue, 'a'))?.error).toBe('exit 1: only');
  });

  it('is counted with equal ones, whatever was written before', async () => {
    const queue = freshQueue();
    await queue.enqueue([1, 2, 3].map((payload) => ({ payload })));
    const handler = shell('echo "attempt at $(cat)" >&2; echo "no route" >&2; exit 1');
    const { stderr } = await delayq(['drain', '--backoff', '1h', queue.name, ...handler]);
    expect(stderr).toMatch(/ {2}why: +exit 1: no route …\n/);
  });
});
