import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { addressOf } from '../../src/net/address.js';
import { LIBRARY_NAMES } from '../../src/net/errors.js';
import { sentinelAt } from '../../src/net/sentinels.js';
import { temporaryDirectory } from '../support/temporary.js';

const place = { host: 's1', port: 26379 };
const ask = (parameters: string) =>
  sentinelAt(addressOf(`rediss+sentinel://me:pw@s1/m/3?${parameters}`, LIBRARY_NAMES), place, LIBRARY_NAMES);

describe('the address of a Sentinel', () => {
  it('has the TLS settings of Redis, but neither its login nor its database', async () => {
    const { options, tls, shown } = await ask('ca=/ca.pem');
    expect({ tls, shown }).toEqual({ tls: { ca: '/ca.pem' }, shown: 'rediss://s1:26379' });
    expect(options).toEqual({ ...place, username: undefined, password: undefined });
  });

  it('has the password that the file holds now, without its last line break', async () => {
    const file = join(temporaryDirectory(), 'password');
    for (const [held, password] of [
      ['a b\n', 'a b'],
      ['c\n\r\n', 'c\n'],
      ['é', 'é'],
    ] as const) {
      writeFileSync(file, held);
      const { options } = await ask(`sentinel-user=watch&sentinel-password-file=${file}`);
      expect(options).toMatchObject({ username: 'watch', password });
    }
    expect((await ask('sentinel-user=watch')).options).toMatchObject({ username: 'watch', password: '' });
  });

  it('is refused with a reason if the file cannot be used, and a password in place of a path is not shown', async () => {
    const directory = temporaryDirectory();
    const empty = join(directory, 'empty');
    writeFileSync(empty, '\n');
    for (const [file, why, shown] of [
      [empty, 'it is empty', empty],
      [directory, 'it is a directory (EISDIR)', directory],
      ['s3cret', 'there is no such file (ENOENT)', 'Sentinels'],
      ['s3cret'.repeat(100), 'it cannot be read (ENAMETOOLONG)', 'Sentinels'],
    ] as const) {
      const error = await ask(`sentinel-password-file=${file}`).catch((error) => error);
      expect(error).toMatchObject({
        code: 'config',
        why,
        next: expect.stringContaining('with sentinel.password or passwordFile'),
      });
      expect(error.message).toContain(shown);
      expect(`${error.message} ${error.why} ${error.next} ${error.cause}`).not.toContain('s3cret');
    }
  });
});
