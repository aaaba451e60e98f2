import { describe, expect, it } from 'vitest';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { freshName } from '../../support/redis.js';

const QUEUE = freshName();
const NOWHERE = '--redis redis://127.0.0.1:1/0?unknown=1';
const narrow = { columns: 50 };

describe('what is said on stderr', () => {
  it('is broken between words on a terminal, below the words of its line', async () => {
    const lines = linesOf(await onTerminal(`delayq list ${NOWHERE} q`, narrow));
    expect(lines.filter((line) => line.length > 50 && /\S \S/.test(line.trim()))).toEqual([]);
    expect(lines[1]).toMatch(/^ {2}why: {2}it has a parameter/);
    expect(lines[2]).toMatch(/^ {8}\S/);
    const { stderr } = await delayq(['list', ...NOWHERE.split(' '), 'q']);
    expect(lines.join(' ').replaceAll(/ +/g, ' ')).toBe(stderr.trim().replaceAll(/\s+/g, ' '));
  });

  it('is not broken in a pipe or a file', async () => {
    const { stderr } = await delayq(['list', ...NOWHERE.split(' '), 'q'], { env: { COLUMNS: '50' } });
    expect(linesOf(stderr).map((line) => line.slice(0, 8))).toEqual(['delayq: ', '  why:  ', '  next: ']);
  });

  it('keeps what is to be copied whole: long ids, and commands', async () => {
    const id = 'x'.repeat(70);
    expect(await onTerminal(`delayq every --list ${QUEUE}${id}`, narrow)).toContain(`${QUEUE}${id}\n`);
    const next = await onTerminal(`delayq every --pause ${QUEUE}`, { columns: 40 });
    expect(next).toContain(
      '  next: write\n        delayq every --pause QUEUE ID;\n        they are in delayq every --list\n',
    );
  });
});
