import { execFileSync } from 'node:child_process';
import { mkdirSync, renameSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = fileURLToPath(new URL('../..', import.meta.url));

/** What keeps npm from the network, from building, and from talking. */
export const QUIET = [
  ...['--ignore-scripts', '--offline', '--no-audit', '--no-fund', '--no-update-notifier'],
  ...['--loglevel', 'error'],
];

/** Packs the package in `from` as npm publishes it. Returns the path of its tarball, which is in `to`. */
export function pack(from: string, to: string): string {
  const name = execFileSync('npm', ['pack', ...QUIET, '--pack-destination', to], { cwd: from, encoding: 'utf8' });
  return join(to, name.trim());
}

/** Unpacks what npm would publish of this project into `directory`/package. */
export function unpack(directory: string): void {
  execFileSync('tar', ['xzf', pack(root, directory), '-C', directory]);
}

/**
 * Makes `directory` a project that has delayq installed from its tarball. What delayq depends on, and the types of Node,
 * are those of this checkout: from the network they would be the same.
 */
export function installIn(directory: string): void {
  unpack(directory);
  const modules = join(directory, 'node_modules');
  mkdirSync(join(modules, '@types'), { recursive: true });
  renameSync(join(directory, 'package'), join(modules, 'delayq'));
  for (const name of ['ioredis', 'croner', '@types/node'])
    symlinkSync(join(root, 'node_modules', name), join(modules, name));
}
