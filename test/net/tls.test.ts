import { once } from 'node:events';
import { chmodSync, copyFileSync, renameSync, writeFileSync } from 'node:fs';
import { type AddressInfo, connect as connectTo, createServer } from 'node:net';
import { describe, expect, it } from 'vitest';
import { type ConnectOptions, connect, isDelayqError } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { Authority } from '../support/certificates.js';
import { binary, delayq, sh } from '../support/cli.js';
import { freePort, Server } from '../support/server.js';
import { until } from '../support/until.js';

const authority = new Authority();
const { ca } = authority;
const good = authority.issue('good');
const client = authority.issue('client');
const stranger = authority.selfSign('stranger');

/** A server with TLS, which asks clients for a certificate if `asks`. */
async function serve({ cert, key }: { cert: string; key: string }, { asks = false } = {}) {
  const port = await freePort();
  const server = await during(
    Server.start({
      args: [
        ...['--tls-port', String(port), '--tls-cert-file', cert, '--tls-key-file', key, '--tls-ca-cert-file', ca],
        ...['--tls-auth-clients', asks ? 'yes' : 'no'],
      ],
    }),
  );
  return { server, port };
}

/** What the command line answers with these options and variables, without its words about a queue. */
const ask = (url: string, options: string[] = [], env: Record<string, string> = {}) =>
  delayq(['enqueue', ...options, 'q', '1'], { env: { DELAYQ_REDIS_URL: url, ...env } });

const works = { code: 0, stderr: '' };

describe.concurrent('TLS', () => {
  it('takes its files from the URL, options, the environment, and the options of connect()', async () => {
    const { port, server } = await serve(good, { asks: true });
    const url = `rediss://localhost:${port}`;
    const { cert, key } = client;
    const params = new URLSearchParams({ ca, cert, key });
    expect(await ask(`${url}?${params}`)).toMatchObject(works);
    expect(await ask(url, ['--tls-ca', ca, `--tls-cert=${cert}`, '--tls-key', key])).toMatchObject(works);
    const env = { DELAYQ_TLS_CA: ca, DELAYQ_TLS_CERT: cert, DELAYQ_TLS_KEY: key };
    expect(await ask(url, [], env)).toMatchObject(works);
    // As one may give them in a container: not as files.
    const texts = { DELAYQ_TLS_CERT: authority.read('client.pem'), DELAYQ_TLS_KEY: authority.read('client.key') };
    expect(await ask(url, [], { ...env, ...texts })).toMatchObject(works);
    // Before the command, too.
    const words = ['--tls-ca', ca, `--tls-cert=${cert}`, '--tls-key', key, '--redis', url, 'inspect', '--json', 'q'];
    expect(JSON.parse((await delayq(words)).stdout).queues[0].pending).toBe(4);
    const pem = Buffer.from(authority.read('client.key'));
    for (const tls of [
      { ca, cert, key },
      { ca: authority.read('ca.pem'), cert, key: pem },
    ]) {
      const redis = await connect({ host: 'localhost', port, tls });
      afterwards(() => redis.close());
      expect(await redis.now()).toBeGreaterThan(0);
    }
    expect(await server.admin.zcard('delayq:{q}:pending')).toBe(4);
    const complete = ['completion', '--words', '--', 'drain', '--redis', url, ...words.slice(0, 5), ''];
    // Nobody waits long for a completion: on a busy machine it may come without the queues.
    await until(async () => (await delayq(complete)).stdout === 'words\nq\t\n');
  });

  it('takes options before the parameters of a URL, and those before variables', async () => {
    const { port } = await serve(good);
    const url = `rediss://localhost:${port}?ca=`;
    const wrong = stranger.cert;
    expect(await ask(url + ca, [], { DELAYQ_TLS_CA: wrong })).toMatchObject(works);
    expect(await ask(url + wrong, ['--tls-ca', ca])).toMatchObject(works);
    expect(await ask(url + wrong, [], { DELAYQ_TLS_CA: ca })).toMatchObject({ code: 69 });
  });

  it('verifies the address of a host without a name, and Node prints no warning', async () => {
    const { port } = await serve(good);
    expect(await ask(`rediss://127.0.0.1:${port}?ca=${ca}`)).toMatchObject(works);
    expect(await ask(`rediss://localhost:${port}?ca=${ca}&servername=127.0.0.1`)).toMatchObject(works);
    expect(await ask(`rediss://localhost:${port}?ca=${ca}&servername=127.0.0.2`)).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(/^delayq: cannot reach .*\n {2}why:.*"DNS:localhost, IP.*, not for 127\.0\.0\.2/),
    });
  });

  it('verifies the server whatever NODE_TLS_REJECT_UNAUTHORIZED says', async () => {
    const { port } = await serve(good);
    const ended = await binary(['enqueue', '--tls-ca', stranger.cert, 'q', '1'], {
      env: { DELAYQ_REDIS_URL: `rediss://localhost:${port}`, NODE_TLS_REJECT_UNAUTHORIZED: '0' },
    });
    expect(ended).toMatchObject({ code: 69, stdout: '', stderr: expect.stringContaining('signed by another CA') });
  });

  it('of which a record is damaged while jobs are sent ends in an error of delayq, never of Node', async () => {
    const { port } = await serve(good);
    const lines = Array.from({ length: 20_000 }, (_, i) => `{"n":${i}}\n`).join('');
    const damaging = async (after: number) => {
      let isDamaged = false;
      const proxy = createServer((near) => {
        const far = connectTo(port, '127.0.0.1');
        let passed = 0;
        far.on('data', (data) => {
          const at = after - passed;
          passed += data.length;
          if (at >= 0 && at < data.length) {
            data[at] = (data[at] as number) ^ 0xff;
            isDamaged = true;
          }
          near.write(data);
        });
        near.pipe(far);
        for (const side of [near, far])
          side.on('error', () => {}).on('close', () => [near, far].map((one) => one.destroy()));
      }).listen(0, '127.0.0.1');
      await once(proxy, 'listening');
      afterwards(() => proxy.close());
      const url = `rediss://localhost:${(proxy.address() as AddressInfo).port}`;
      const ended = await binary(['enqueue', '-q', '--tls-ca', ca, 'q', '-'], {
        env: { DELAYQ_REDIS_URL: url },
        input: lines,
      });
      expect(ended.stderr).not.toMatch(/throw er|node:events|\.c:\d/);
      expect([0, 69, 75]).toContain(ended.code);
      expect(isDamaged).toBe(true);
    };
    await Promise.all([3_000, 5_000, 9_000].map(damaging));
  });

  it('needs a rediss:// URL: an option without one is refused, a variable is for other servers', async () => {
    const server = await during(Server.start());
    expect(await ask(server.url, ['--tls-ca', ca])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('--tls-ca needs a URL that begins with rediss://'),
    });
    expect(await ask(server.url, [], { DELAYQ_TLS_CA: '/no/such' })).toMatchObject(works);
  });

  it('uses files that were renewed at the next connection, and the last good ones while they are replaced', async () => {
    const { port, server } = await serve(good, { asks: true });
    const cert = authority.file('renewed.pem');
    const own = authority.issue('own');
    copyFileSync(own.cert, cert);
    const redis = await connect({ host: 'localhost', port, tls: { ca, cert, key: own.key } });
    afterwards(() => redis.close());
    const again = async () => {
      await server.admin.call('CLIENT', 'KILL', 'TYPE', 'normal', 'SKIPME', 'yes');
      // The first call may meet the connection that was killed.
      await redis.now().catch(() => {});
      return redis.now();
    };
    writeFileSync(cert, 'half of it');
    expect(await again()).toBeGreaterThan(0);
    renameSync(authority.selfSign('wrong').cert, cert);
    // That certificate belongs to another key.
    expect(await again()).toBeGreaterThan(0);
    copyFileSync(authority.issue('own').cert, cert);
    expect(await again()).toBeGreaterThan(0);
  });

  it('is carried into the line that crontab makes, and into the environment of handlers', async () => {
    const { port } = await serve(good);
    const env = { DELAYQ_REDIS_URL: `rediss://localhost:${port}?ca=${ca}`, DELAYQ_TLS_CA: '/no/such', REDIS_URL: '' };
    expect(await ask(env.DELAYQ_REDIS_URL)).toMatchObject(works);
    const nested = await sh(`delayq drain q -- sh -c 'delayq inspect --json q'`, { env });
    expect(JSON.parse(nested.stdout).queues[0].active).toBe(1);
    const line = await sh(`delayq crontab --redis rediss://localhost:${port} --tls-ca ${ca} q -- cat | tail -n 1`);
    expect(line.stdout).toContain(` --tls-ca ${ca} q -- `);
    const command = line.stdout.replace(/^(\* ){5} */, '').replaceAll('\\%', '%');
    expect(await ask(env.DELAYQ_REDIS_URL)).toMatchObject(works);
    expect(await sh(command)).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
  });
});

describe.concurrent('an error of TLS says what is wrong and what to do', () => {
  /** Both the library and the command line must fail like this, and show no login. */
  async function expectFailure(
    given: ConnectOptions & { tls: object },
    expected: { code: string; exit: number; what?: string; why: RegExp; cli: RegExp; library: RegExp },
  ) {
    const { host = 'localhost', port, tls } = given;
    const error = await connect({ ...given, host, username: 'me', password: 's3cret' }).catch((error) => error);
    const { what = 'cannot reach Redis at rediss://' } = expected;
    expect(isDelayqError(error, expected.code as 'config')).toBe(true);
    expect(error.message).toContain(what);
    expect(error.why).toMatch(expected.why);
    expect(error.next).toMatch(expected.library);
    const options = Object.entries(tls).flatMap(([name, value]) => [`--tls-${name}`, String(value)]);
    const { code, stdout, stderr } = await ask(`rediss://me:s3cret@${host}:${port}`, options);
    expect({ code, stdout }).toEqual({ code: expected.exit, stdout: '' });
    const [, first, why, next] = /^delayq: (.*)\n {2}why: {2}(.*)\n {2}next: (.*)\n$/.exec(stderr) ?? [stderr];
    expect(first).toContain(what);
    expect(why).toMatch(expected.why);
    expect(next).toMatch(expected.cli);
    expect(stderr + error.message + error.why + error.next).not.toMatch(/s3cret|me:|PRIVATE KEY/);
  }
  const unreachable = { code: 'unreachable', exit: 69 };
  const config = { code: 'config', exit: 78 };

  it('an unknown CA, a self-signed certificate', async () => {
    const { port } = await serve(good);
    const trust = { cli: /with --tls-ca or DELAYQ_TLS_CA$/, library: /with tls\.ca$/ };
    await expectFailure(
      { port, tls: {} },
      { ...unreachable, ...trust, why: /signed by a CA that is not trusted here/ },
    );
    const other = { ca: stranger.cert };
    await expectFailure({ port, tls: other }, { ...unreachable, ...trust, why: /by another CA than the given one/ });
    const own = await serve(stranger);
    await expectFailure({ port: own.port, tls: {} }, { ...unreachable, ...trust, why: /a self-signed certificate/ });
    expect(await ask(`rediss://localhost:${own.port}`, ['--tls-ca', stranger.cert])).toMatchObject(works);
  });

  it('an expired certificate, one for another name', async () => {
    const { port } = await serve(authority.issue('expired', { days: -1 }));
    const renew = /^renew it on the server/;
    await expectFailure({ port, tls: { ca } }, { ...unreachable, why: /has expired/, cli: renew, library: renew });
    const other = await serve(authority.issue('other', { san: 'DNS:other.example' }));
    await expectFailure(
      { port: other.port, tls: { ca } },
      {
        ...unreachable,
        why: /is for "DNS:other\.example", not for localhost/,
        cli: /with --tls-servername or DELAYQ_TLS_SERVERNAME$/,
        library: /with tls\.servername$/,
      },
    );
    const named = ['--tls-ca', ca, '--tls-servername', 'other.example'];
    expect(await ask(`rediss://127.0.0.1:${other.port}`, named)).toMatchObject(works);
  });

  it('a client certificate that is missing, expired or from an unknown CA', async () => {
    const { port } = await serve(good, { asks: true });
    const give = { code: 'refused', exit: 77, cli: /--tls-cert .* --tls-key/, library: /tls\.cert and tls\.key$/ };
    await expectFailure({ port, tls: { ca } }, { ...give, why: /requires a client certificate/ });
    const late = authority.issue('late', { days: -1 });
    await expectFailure({ port, tls: { ca, ...late } }, { ...give, why: /does not accept .*expired/ });
    await expectFailure({ port, tls: { ca, ...stranger } }, { ...give, why: /does not accept .*unknown ca/ });
  });

  it('TLS spoken to a server without it, and none to a server with it', async () => {
    const plain = await during(Server.start({ tcp: true }));
    const without = /a URL that begins with redis:\/\//;
    await expectFailure(
      { port: plain.port, tls: { ca } },
      // Redis takes the handshake for the beginning of a command, and waits for its end.
      { ...unreachable, why: /TLS/, cli: without, library: without },
    );
    const { port } = await serve(good);
    expect(await ask(`redis://localhost:${port}`)).toMatchObject({
      code: 69,
      stderr: expect.stringMatching(/next: .*if Redis uses TLS there, set a URL that begins with rediss:\/\//),
    });
  });

  it('files that cannot be used', async () => {
    const { port } = await serve(good);
    const expectUnusable = (tls: object, what: string, why: RegExp, name: string, by = `with ${name}`) =>
      expectFailure(
        { port, tls: { ca, ...tls } },
        {
          ...config,
          what: `cannot use the ${what}`,
          why,
          cli: new RegExp(by.replace(name, `--tls-${name} or DELAYQ_TLS_${name.toUpperCase()}`)),
          library: new RegExp(by.replace(name, `tls.${name}`)),
        },
      );
    const { cert, key } = client;
    await expectUnusable({ ca: '/no/such.pem' }, 'CA certificate "/no/such.pem"', /ENOENT/, 'ca');
    await expectUnusable({ ca: authority.directory }, 'CA certificate', /is a directory/, 'ca');
    await expectUnusable({ ca: key }, 'CA certificate', /holds no certificate in PEM/, 'ca');
    await expectUnusable({ cert, key: cert }, 'client key', /holds no key in PEM/, 'key');
    await expectUnusable({ cert, key: good.key }, 'client certificate', /another certificate/, 'key');
    await expectUnusable({ cert, key: authority.encrypt(key) }, 'client key', /passphrase/, 'key');
    const damaged = authority.file('damaged.pem');
    writeFileSync(damaged, authority.read('ca.pem').replace(/.{9}\n-----END/, '\n-----END'));
    await expectUnusable({ ca: damaged }, 'CA certificate', /damaged/, 'ca');
    // A key in place of its path: a part of it must not be shown either.
    const body = authority.read('client.key').replace(/-----.*-----\n/g, '');
    await expectUnusable({ cert, key: body }, 'client key', /holds no key in PEM/, 'key');
    const { stderr } = await ask(`rediss://localhost:${port}`, ['--tls-cert', cert, '--tls-key', body]);
    expect(stderr).not.toContain(body.slice(0, 20));
    // As containers may have it: no path, and not to be shown.
    const encoded = Buffer.from(authority.read('client.key')).toString('base64');
    await expectUnusable({ cert, key: encoded }, 'client key', /neither a path nor PEM/, 'key');
    const answer = await ask(`rediss://localhost:${port}`, ['--tls-cert', cert, '--tls-key', encoded]);
    expect(answer.stderr).not.toContain(encoded.slice(0, 20));
    if (process.getuid?.() === 0) return;
    chmodSync(damaged, 0);
    await expectUnusable({ ca: damaged }, 'CA certificate', /no permission/, 'ca');
  });
});
