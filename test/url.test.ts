import { describe, expect, it } from 'vitest';
import { parseUrl } from '../src/url.js';

describe('a Redis URL', () => {
  it.each([
    ['redis://localhost', { host: 'localhost', port: 6379 }, 'redis://localhost'],
    ['redis://10.0.0.1:7000/3', { host: '10.0.0.1', port: 7000, db: 3 }, 'redis://10.0.0.1:7000/3'],
    ['redis://[::1]:6380', { host: '::1', port: 6380 }, 'redis://[::1]:6380'],
    ['redis://user:p%40ss%2F@h', { host: 'h', port: 6379, username: 'user', password: 'p@ss/' }, 'redis://h'],
    ['redis://:a:b@h', { host: 'h', port: 6379, password: 'a:b' }, 'redis://h'],
    ['rediss://h:1/', { host: 'h', port: 1, tls: { servername: 'h' } }, 'rediss://h:1'],
    ['unix:///run/redis.sock', { path: '/run/redis.sock' }, 'unix:///run/redis.sock'],
    [
      'unix://:pw@/run/redis.sock?db=2',
      { path: '/run/redis.sock', db: 2, password: 'pw' },
      'unix:///run/redis.sock?db=2',
    ],
  ])('%s is read, and shown without its password', (url, options, shown) =>
    expect(parseUrl(url)).toEqual({ options, shown }),
  );

  it.each([
    '',
    'localhost',
    'http://h',
    'redis://h:0',
    'redis://h:99999',
    'redis://h/x',
    'redis://u:p@ss@h:1',
    'unix://relative',
    'redis://:100%@h',
    'redis://h?timeout=1',
  ])('%j is refused without being repeated', (url) => {
    const error = (() => {
      try {
        parseUrl(url);
      } catch (error) {
        return error as Error & { why: string; next: string };
      }
      throw new Error(`${url} was taken`);
    })();
    expect(error).toMatchObject({ code: 'usage', next: expect.stringContaining('redis://') });
    if (url !== '') expect(error.message + error.why).not.toContain(url);
  });
});
