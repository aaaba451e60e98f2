import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { printable, shellWord } from '../../src/model/text.js';
import { addressOf } from '../../src/net/address.js';
import { LIBRARY_NAMES } from '../../src/net/errors.js';
import { hasLogin, loginHider, parseUrl, withoutLogin } from '../../src/net/url.js';
import { codePoint, runs } from '../support/property.js';

/** Any characters, also those with a meaning in URLs; only % is escaped. */
const password = fc
  .string({
    unit: fc.oneof(fc.constantFrom(...'/?#@:%,=\'" \\\n'), codePoint),
  })
  .map((text) => text.replaceAll('%', '%25'));

const at = (host: string, port: number) => ({ host, port });

describe('a Redis URL', () => {
  it.each([
    ['redis://localhost', { host: 'localhost', port: 6379 }, 'redis://localhost:6379'],
    ['redis://10.0.0.1:7000/3', { host: '10.0.0.1', port: 7000, db: 3 }, 'redis://10.0.0.1:7000/3'],
    ['redis://[::1]:6380', { host: '::1', port: 6380 }, 'redis://[::1]:6380'],
    ['redis://user:p%40ss%2F@h', { host: 'h', port: 6379, username: 'user', password: 'p@ss/' }, 'redis://h:6379'],
    ['redis://:a:b@h', { host: 'h', port: 6379, password: 'a:b' }, 'redis://h:6379'],
    ['redis://:a/b?c#d@e@h:1/2', { host: 'h', port: 1, password: 'a/b?c#d@e', db: 2 }, 'redis://h:1/2'],
    ['redis://:1/2@h', { host: 'h', port: 6379, password: '1/2' }, 'redis://h:6379'],
    ['unix:///run/a@b/@/c', { path: '/run/a@b/@/c' }, 'unix:///run/a@b/@/c'],
    ['unix://:a@b@/run/c@d', { path: '/run/c@d', password: 'a@b' }, 'unix:///run/c@d'],
    ['rediss://h:1/', { host: 'h', port: 1, tls: {} }, 'rediss://h:1'],
    [
      'REDISS://me:pw@[::1]/3?ca=/a+b%40c.pem&cert=c&key=k&servername=n',
      {
        ...{ host: '::1', port: 6379, username: 'me', password: 'pw', db: 3 },
        tls: { ca: '/a+b@c.pem', cert: 'c', key: 'k', servername: 'n' },
      },
      'rediss://[::1]:6379/3',
    ],
    ['unix:///run/redis.sock', { path: '/run/redis.sock' }, 'unix:///run/redis.sock'],
    [
      'unix://:pw@/run/redis.sock?db=2',
      { path: '/run/redis.sock', db: 2, password: 'pw' },
      'unix:///run/redis.sock?db=2',
    ],
    [
      'redis://me:p,w@h1:7000,[::1]:7001,h3/2',
      {
        nodes: [
          { host: 'h1', port: 7000 },
          { host: '::1', port: 7001 },
          { host: 'h3', port: 6379 },
        ],
        ...{ username: 'me', password: 'p,w', db: 2 },
      },
      'redis://h1:7000,[::1]:7001,h3:6379/2',
    ],
    ['redis+cluster://h:7000/0', { host: 'h', port: 7000, db: 0, cluster: true }, 'redis+cluster://h:7000'],
    [
      'rediss+cluster://h1,h2?ca=c',
      { nodes: [at('h1', 6379), at('h2', 6379)], cluster: true, tls: { ca: 'c' } },
      'rediss+cluster://h1:6379,h2:6379',
    ],
    [
      'redis+sentinel://:a@b,c/d#e@s1,[::1]:1/my:master/3?sentinel-user=u&sentinel-password-file=/run/p+w',
      {
        sentinel: {
          ...{ name: 'my:master', username: 'u', passwordFile: '/run/p+w' },
          nodes: [at('s1', 26379), at('::1', 1)],
        },
        ...{ password: 'a@b,c/d#e', db: 3 },
      },
      'redis+sentinel://s1:26379,[::1]:1/my%3Amaster/3',
    ],
    [
      'rediss+sentinel:///a%2Fb',
      { sentinel: { name: 'a/b', nodes: [at('127.0.0.1', 26379)] }, tls: {} },
      'rediss+sentinel://127.0.0.1:26379/a%2Fb',
    ],
    [
      'redis-sentinel://s1:26379,s2:26380/2?sentinelMasterId=m',
      { sentinel: { name: 'm', nodes: [at('s1', 26379), at('s2', 26380)] }, db: 2 },
      'redis+sentinel://s1:26379,s2:26380/m/2',
    ],
    [
      'rediss-sentinel://u:p#1@s1/2#m',
      { sentinel: { name: 'm', nodes: [at('s1', 26379)] }, username: 'u', password: 'p#1', db: 2, tls: {} },
      'rediss+sentinel://s1:26379/m/2',
    ],
  ])('%s is parsed, and shown without its password', (url, options, shown) =>
    expect({ options: parseUrl(url), shown: addressOf(url, LIBRARY_NAMES).shown }).toEqual({ options, shown }),
  );

  it.each([
    '',
    'localhost',
    'http://h',
    'redis://h:0',
    'redis://h:99999',
    'redis://h/x',
    'redis://u:p@ss@h:none',
    'unix://u:p@relative',
    'unix:///run/100%',
    'redis://h?s3cret',
    'unix://relative',
    'redis://:100%@h',
    'redis://h?timeout=1',
    'redis://h?ca=/a.pem',
    'unix:///run/r?ca=/a.pem',
    'rediss://h?ca=',
    'rediss://h?ca=100%',
    'rediss://h?s3cret',
    'redis://h1,,h2',
    'redis://h1,h2:x',
    'redis://h1, h2',
    'redis://[::1],[::2',
    'redis://u:s3cret@h1,u:s3cret@h2',
    'redis://u:s3cret@h1,redis://u:s3cret@h2:1/3',
    'redis://u:s3cret@h1,u:s3cret@h2,u:s3cret@h3',
    'redis+cluster://h/x',
    'redis+cluster://h?sentinelMasterId=m',
    'redis+proxy://h',
    'redis://h?sentinel-user=u',
    'redis://h?sentinelMasterId=m',
    'redis+sentinel://s1:26379',
    'redis+sentinel://s1:26379/',
    'redis-sentinel://s1/m/n',
    'redis-sentinel://s1?sentinelMasterId=',
    'redis+sentinel://s1/100%',
    'redis+sentinel://s1/m?ca=/a.pem',
    'redis+sentinel://s1/m?sentinel-user=',
    'redis+sentinel://s1/m?password=s3cret',
    'rediss+sentinel://s1/m?s3cret',
  ])('%j is rejected without being repeated', (url) => {
    const error = (() => {
      try {
        parseUrl(url);
      } catch (error) {
        return error as Error & { why: string; next: string };
      }
      throw new Error(`${url} was taken`);
    })();
    expect(error).toMatchObject({ code: 'usage', next: expect.stringMatching(/write it as redis(\+sentinel)?:\/\//) });
    if (url !== '') expect(error.message + error.why).not.toContain(url);
    expect(error.message + error.why + error.next).not.toContain('s3cret');
  });

  it('accepts any characters in a password, and shows none of them (failures 38)', () => {
    fc.assert(
      fc.property(password, fc.constantFrom('me', ''), (typed, user) => {
        const expected = { password: decodeURIComponent(typed), ...(user && { username: user }), db: 1 };
        for (const [login, place, options] of [
          ['redis', 'h:2/1', { host: 'h', port: 2 }],
          ['unix', '/run/r?db=1', { path: '/run/r' }],
          ['redis', 'h:2,[::1]:3/1', { host: 'h', port: 2 }],
          ['rediss+sentinel', 's:2,[::1]:3/m/1', { host: 's', port: 2 }],
        ]) {
          const url = `${login}://${user}:${typed}@${place}`;
          expect(addressOf(url, LIBRARY_NAMES)).toMatchObject({ options: { ...expected, ...(options as object) } });
          for (const shown of [addressOf(url, LIBRARY_NAMES).shown, withoutLogin(url)]) {
            expect(shown).toBe(`${login}://${place}`);
          }
        }
      }),
      runs(),
    );
  });
});

const SCHEMES = ['redis', 'REDISS', 'redis+cluster', 'rediss+Sentinel', 'redis-sentinel', 'unix', 'https'];

describe('a text that contains a URL (failures 38)', () => {
  it('is shown without user and password, however it is quoted or cut', () => {
    fc.assert(
      fc.property(password, fc.constantFrom(...SCHEMES), fc.nat(), (typed, scheme, at) => {
        const place = scheme === 'unix' ? '/run/r' : 'h1:1,[::1],h3/2';
        const url = `${scheme}://me:${typed}@${place}`;
        const shown = `${scheme}://…@${place}`;
        for (const word of [url, `--redsi=${url}`]) {
          const hide = loginHider(['drain', word]);
          const [before] = word.split(url);
          expect(hide(`what: '${word}'`)).toBe(`what: '${before}${shown}'`);
          expect(hide(`what: ${JSON.stringify(word)}`)).toBe(`what: "${before}${shown}"`);
          expect(hide(`what: ${printable(word, 10_000)}`)).toBe(`what: "${before}${shown}"`);
          expect(hide(`run: ${shellWord(`${word} `)}`)).toBe(`run: '${before}${shown} '`);
          const least = word.indexOf('me:') + 4;
          const cut = word.slice(0, least + (at % (word.length - least)));
          if (typed !== '' && cut.length < word.lastIndexOf('@'))
            for (const text of [cut, printable(cut)]) expect(hide(text)).toMatch(/:\/\/…(\.\.\.)?"?$/);
        }
        expect(hasLogin(url)).toBe(scheme !== 'https');
      }),
      runs(),
    );
  });

  it.each([
    ['redis://user:pw', 'redis://…'],
    ['"redis://user:12pw" cannot name a queue', '"redis://…" cannot name a queue'],
    ['line 1: "redis://me:a b@h:1/2" is not a time', 'line 1: "redis://…@h:1/2" is not a time'],
    ['unix://me:pw', 'unix://…'],
    ['redis+sentinel://me:pw', 'redis+sentinel://…'],
    ['rediss+cluster:/me:p@w@h', 'rediss+cluster:/…@h'],
    ['redis://me:pw@h1:7000,me:pw@h2:7001/0', 'redis://…@h2:7001/0'],
    ['redis://a:pw@h1,redis://b:pw@h2', 'redis://…@h2'],
  ])('%j is shown without a login that no @ ends, or that has a blank', (text, shown) =>
    expect(loginHider([])(text)).toBe(shown),
  );

  it('is shown without the login of an unknown URL, and otherwise unchanged', () => {
    const hide = loginHider(['unix:///run/a@b', 'redis://redis:pw@redis.example.com']);
    expect(hide('line 3: {"url":"redis://me:p@ss@h:1/2"} and x@y')).toBe('line 3: {"url":"redis://…@h:1/2"} and x@y');
    for (const text of [
      'cannot reach Redis at redis://redis.example.com:6379',
      'cannot reach Redis at redis://127.0.0.1:6379: see redis://h:1/2, (redis://h:1) and redis://h:63...',
      'redis://[::1]:6379 and unix:///run/a:b',
      'redis://h1:7000,h2:7001/2, redis+cluster://h1,h2:7001 and rediss+sentinel://s1:26379,[::1]:26379/mymaster/2',
      'unix:///run/a@b: no such socket',
      'a://b, mail to me@example.com',
      '',
    ]) {
      expect(hide(text)).toBe(text);
    }
  });
});
