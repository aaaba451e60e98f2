import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'esbuild';
import { describe, expect, it } from 'vitest';
import { temporaryDirectory } from '../support/temporary.js';

const BIN = fileURLToPath(new URL('../../bin/delayq', import.meta.url));
const { engines } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'));
const [, major, minor] = (/^>=(\d+)\.(\d+)$/.exec(engines.node) ?? []).map(Number) as [number, number, number];

/** Runs the binary on a Node that says it is this version. */
function onNode(version: string) {
  const preload = join(temporaryDirectory(), 'version.cjs');
  writeFileSync(preload, `Object.defineProperty(process.versions, 'node', { value: '${version}' });`);
  const { status, stdout, stderr } = spawnSync(process.execPath, ['-r', preload, BIN, '--version'], {
    encoding: 'utf8',
  });
  return { status, stdout, stderr };
}

describe('on a Node', () => {
  it.each(['0.10.48', '9.11.2', '18.20.8', `${major - 1}.99.0`, `${major}.${minor - 1}.9`])(
    '%s, older than engines, delayq says so in one line and exits 78',
    (version) =>
      expect(onNode(version)).toEqual({
        status: 78,
        stdout: '',
        stderr: `delayq: Node ${version} at ${process.execPath} is too old: install Node ${major}.${minor} or newer\n`,
      }),
  );

  it.each([`${major}.${minor}.0`, `${major}.${minor + 16}.0`, `${major + 2}.0.0`, '100.0.0'])('%s it runs', (version) =>
    expect(onNode(version)).toMatchObject({ status: 0, stderr: '' }),
  );

  it('of any age its first file can be parsed', () => {
    const source = readFileSync(BIN, 'utf8');
    const syntaxOf = (target: string) => transformSync(source, { target, loader: 'js' }).code;
    expect(syntaxOf('es5')).toBe(syntaxOf('esnext'));
  });
});
