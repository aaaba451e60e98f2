// The disk space of `npm install delayq`: the published package and its dependencies. Uses npm's registry for what is not in
// npm's cache.
import { mkdirSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { printed } from '../processes.js';
import { costs } from '../table.js';

const ROOT = fileURLToPath(new URL('..', new URL('..', import.meta.url)));

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const directory = rig.file('installed');
  mkdirSync(directory);
  writeFileSync(`${directory}/package.json`, '{"private":true}');
  // dist is already built: prepack need not run.
  const flags = ['--ignore-scripts', '--silent', '--pack-destination', directory];
  const packed = await printed(['npm', 'pack', ...flags], { cwd: ROOT });
  const tarball = packed.split('\n').at(-1);
  const quiet = ['--omit=dev', '--prefer-offline', '--no-audit', '--no-fund', '--silent'];
  await printed(['npm', 'install', ...quiet, `./${tarball}`], { cwd: directory, timeout: 120_000 });
  const sizeOf = async (path) =>
    Number((await printed(['du', '-sk', `${directory}/node_modules/${path}`])).split('\t')[0]) / 1_000;
  return [
    costs('Installed: npm install delayq', 'MB of node_modules', [
      { name: 'all of it', alone: true, ours: [await sizeOf('')], target: { value: 6 } },
      { name: 'delayq itself', alone: true, ours: [await sizeOf('delayq')] },
    ]),
  ];
}
