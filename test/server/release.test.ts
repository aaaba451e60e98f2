import { execFileSync } from 'node:child_process';
import { describe, expect, it } from 'vitest';
import { parseInfo, persistence } from '../../src/server/info.js';
import { confirmsEarly, version } from '../../src/server/release.js';
import { doctor, serverWith } from '../support/doctor.js';

/** What INFO of a Redis, or of a Valkey, says about its version. */
const redis = (number: string) => parseInfo(`redis_version:${number}\r\n`);
const valkey = (number: string) =>
  parseInfo(`redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:${number}\r\n`);

describe('the version', () => {
  it.each([
    [redis('6.2.0'), 'Redis 6.2.0; enqueue --durable needs Redis 7.2'],
    [redis('7.0.15'), 'Redis 7.0.15; enqueue --durable needs Redis 7.2'],
    [redis('7.2.4'), 'Redis 7.2.4'],
    [redis('8.0.2'), 'Redis 8.0.2'],
    [redis('10.0.0'), 'Redis 10.0.0'],
    [valkey('7.2.5'), 'Valkey 7.2.5'],
    [valkey('8.0.1'), 'Valkey 8.0.1'],
    [valkey('8.1.1'), 'Valkey 8.1.1'],
  ])('%j is fine', (info, what) => expect(version(info)).toMatchObject({ level: 'ok', what }));

  it('before 6.2 is a failure', () =>
    expect(version(redis('6.0.16'))).toMatchObject({ level: 'fail', what: 'Redis 6.0.16', next: expect.any(String) }));

  it('is not known without INFO', () => expect(version({})).toMatchObject({ level: 'skip' }));

  it('is told of the server under test', async () => {
    const said = execFileSync('redis-server', ['--version'], { encoding: 'utf8' });
    const [, name, number] = /^(Redis|Valkey) server v=(\S+)/.exec(said) ?? [];
    const { told } = await doctor((await serverWith()).url);
    expect(told.version).toMatchObject({ what: expect.stringMatching(`^${name} ${number}`) });
  });
});

it.each([
  [redis('7.2.4'), 'everysec', false],
  [redis('7.4.2'), 'everysec', true],
  [redis('7.4.3'), 'everysec', false],
  [redis('8.0.2'), 'everysec', false],
  [valkey('8.1.1'), 'everysec', true],
  [valkey('8.1.1'), 'always', false],
])('%j with appendfsync %s may lose jobs of --durable: %s', (info, fsync, may) => {
  const aof = { ...info, aof_enabled: '1', aof_last_write_status: 'ok' };
  const [found] = persistence(aof, { save: '', fsync, early: confirmsEarly(info), address: 'redis://x' });
  expect(found).toMatchObject({ level: 'ok', check: 'aof' });
  expect(/--durable/.test(found?.what ?? '')).toBe(may);
});
