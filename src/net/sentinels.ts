import { readFile } from 'node:fs/promises';
import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { type Address, addressAt } from './address.js';
import type { SettingNames } from './errors.js';
import type { HostPort } from './url.js';

/** Why a path cannot be read, and that it is one: what does not exist may be the password itself, and is not shown. */
const REASONS: Record<string, string> = {
  EACCES: 'no permission to read it (EACCES)',
  EISDIR: 'it is a directory (EISDIR)',
};

/**
 * The address of one of the Sentinels of `address`: with TLS as Redis, but with their own login. A file with their
 * password is read each time. Throws `config` if it cannot be used.
 */
export async function sentinelAt(address: Address, place: HostPort, names: SettingNames): Promise<Address> {
  const { username, password, passwordFile } = address.several?.sentinel ?? {};
  const read = passwordFile === undefined ? password : await passwordIn(passwordFile, names);
  // Of a user without a password, an empty one must be sent.
  const login = { username, password: read ?? (username === undefined ? undefined : '') };
  const { tls, shown } = addressAt(address, place);
  return { options: { ...place, ...login }, tls, shown };
}

/** What the file `path` holds, without its last line break. */
async function passwordIn(path: string, names: SettingNames): Promise<string> {
  const bad = (why: string, shown: string, cause?: unknown) =>
    new DelayqError('config', `cannot use the file with the password of the Sentinels${shown}`, {
      why,
      next: `give the path of a file that holds only this password, with ${names.sentinelPassword}`,
      cause,
    });
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    const reason = REASONS[error.code ?? ''];
    if (reason) throw bad(reason, ` ${printable(path, 300)}`, error);
    throw bad(error.code === 'ENOENT' ? 'there is no such file (ENOENT)' : `it cannot be read (${error.code})`, '');
  });
  const password = text.replace(/\r?\n$/, '');
  if (password === '') throw bad('it is empty', ` ${printable(path, 300)}`);
  return password;
}
