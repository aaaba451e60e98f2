import { readdirSync, readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const text = (name: string) => readFileSync(new URL(name, import.meta.url), 'utf8');

it('every line of what delayq survives has the tests that the table names, but for what is said to be open', () => {
  const rows = [...text('chaos/README.md').matchAll(/^\| (\d+) \| .* \| (.*) \|$/gm)];
  expect(rows.map(([, number]) => Number(number))).toEqual(Array.from({ length: 42 }, (_, i) => i + 1));
  for (const [, number, where = ''] of rows) {
    const files = [...where.matchAll(/`([^`]+)`/g)].map(([, file]) => file as string);
    expect(files.length > 0, `line ${number} is tested or open`).toBe(!where.startsWith('open: '));
    for (const file of files) {
      expect(text(file), `line ${number} in ${file}`).toMatch(new RegExp(`failures (\\d+, )*${number}[,)]`));
    }
  }
});

it('each mutation of the chaos suite fits the file that it changes', () => {
  const root = new URL('../', import.meta.url);
  const mutations = new URL('test/chaos/mutations/', root);
  for (const name of readdirSync(mutations)) {
    const patch = readFileSync(new URL(name, mutations), 'utf8');
    for (const part of patch.split(/^diff .*\n/m).slice(1)) {
      const file = readFileSync(new URL(/^--- a\/(.*)$/m.exec(part)?.[1] ?? '', root), 'utf8');
      for (const hunk of part.split(/^@@.*\n/m).slice(1)) {
        const before = hunk.split('\n').filter((line) => /^[ -]/.test(line));
        expect(`\n${file}`, name).toContain(`\n${before.map((line) => line.slice(1)).join('\n')}\n`);
      }
    }
  }
});
