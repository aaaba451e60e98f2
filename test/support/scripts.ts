import { readdirSync, readFileSync } from 'node:fs';
import { SCRIPTS, shaOf } from '../../src/store/script.js';

/**
 * Returns the SHA-1 of the script whose path is, or ends in, `name`. Throws if there is none, or several.
 */
export function scriptHash(name: string): string {
  const [script, another] = SCRIPTS.filter((path) => `/${path}`.endsWith(`/${name}`));
  if (script === undefined || another !== undefined) throw new Error(`no script, or several: ${name}`);
  return shaOf(script);
}

/** The texts of all files in lua/. */
export function luaTexts(): string[] {
  const lua = new URL('../../lua/', import.meta.url);
  const files = readdirSync(lua, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.lua'));
  return files.map((file) => readFileSync(new URL(file, lua), 'utf8'));
}
