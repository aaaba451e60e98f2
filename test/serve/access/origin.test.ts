import { describe, expect, it } from 'vitest';
import { isLoopback, Origin } from '../../../src/serve/access/origin.js';
import type { Exchange } from '../../../src/serve/http/exchange.js';

const from = (remoteAddress: string, headers: Record<string, string> = {}, url = '/') =>
  ({ request: { headers, url, socket: { remoteAddress } } }) as unknown as Exchange;

describe('the address of a client', () => {
  it.each([
    ['10.0.0.1', '10.0.0.1'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['2001:db8:1:2:3:4:5:6', '2001:db8:1:2::/64'],
    ['2001:db8::1', '2001:db8:0:0::/64'],
    ['::1', '0:0:0:0::/64'],
    ['fe80::1%eth0', 'fe80:0:0:0::/64'],
  ])('%s counts as %s', (address, counted) => {
    expect(new Origin([], false).addressOf(from(address))).toBe(counted);
  });

  it('is the last one that a proxy tells, if proxies are trusted', () => {
    const request = from('127.0.0.1', { 'x-forwarded-for': '1.1.1.1, 10.0.0.7' });
    expect(new Origin([], false).addressOf(request)).toBe('127.0.0.1');
    expect(new Origin([], true).addressOf(request)).toBe('10.0.0.7');
    expect(new Origin([], true).addressOf(from('127.0.0.1'))).toBe('127.0.0.1');
    expect(new Origin([], true).addressOf(from('127.0.0.1', { 'x-forwarded-for': '' }))).toBe('127.0.0.1');
  });

  it('has no more than an address needs: nobody can write to a terminal with it, or fill the memory', () => {
    const address = new Origin([], true).addressOf(
      from('127.0.0.1', { 'x-forwarded-for': `\x9b31m ${'x'.repeat(5_000)}` }),
    );
    expect(address).toMatch(/^[\w.:%?-]{1,64}$/);
  });
});

describe('a request', () => {
  it.each<[boolean, string, string, Record<string, string>]>([
    [true, 'by a name of this machine', '127.0.0.1', { host: 'localhost:7777' }],
    [true, 'by a name that is allowed', '::1', { host: 'Queues.internal' }],
    [true, 'without a Host, as no browser makes it', '127.0.0.1', {}],
    [false, 'by the name of another site', '127.0.0.1', { host: 'evil.example' }],
    [false, 'that a proxy passes on', '127.0.0.1', { host: 'localhost', forwarded: 'for=10.0.0.1' }],
    [false, 'that nginx passes on', '127.0.0.1', { host: 'localhost', 'x-real-ip': '10.0.0.1' }],
    [false, 'that another proxy passes on', '127.0.0.1', { host: 'localhost', via: '1.1 cache' }],
    [false, 'whose first host a proxy tells', '127.0.0.1', { host: 'localhost', 'x-forwarded-host': 'localhost' }],
    [false, 'from another machine', '10.0.0.1', { host: 'localhost' }],
  ])('is local: %s, %s', (isLocal, _, address, headers) => {
    expect(new Origin(['queues.internal'], false).isLocal(from(address, headers))).toBe(isLocal);
  });

  it.each<[boolean, string]>([
    [true, 'http://localhost:7777/api/shop/q'],
    [true, 'http://queues.internal/api/shop/q'],
    [false, 'http://evil.example/api/shop/q'],
    [false, 'HTTPS://evil.example?q'],
    [false, 'http://localhost@evil.example/'],
  ])('is local: %s, for the whole URL %s', (isLocal, url) => {
    const origin = new Origin(['queues.internal'], false);
    expect(origin.isLocal(from('127.0.0.1', { host: 'localhost' }, url))).toBe(isLocal);
  });
});

describe('isLoopback', () => {
  it('is true for addresses that only this machine can have', () => {
    for (const address of ['127.0.0.1', '127.1.2.3', '::1', '::ffff:127.0.0.1']) expect(isLoopback(address)).toBe(true);
    for (const address of ['0.0.0.0', '::', '10.0.0.1', '1127.0.0.1', '127.0.0.1.example', ''])
      expect(isLoopback(address)).toBe(false);
  });
});
