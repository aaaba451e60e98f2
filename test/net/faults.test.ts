import { once } from 'node:events';
import { createServer as createHttp } from 'node:http';
import { createServer, type Server as NetServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { connect } from '../../src/index.js';
import { afterwards } from '../support/afterwards.js';
import { delayq } from '../support/cli.js';

/** Starts `server` on a free port, until the end of the test. */
async function listening(server: NetServer): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket.on('error', () => {}));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  afterwards(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return (server.address() as { port: number }).port;
}

const greets = (text: string) => createServer((socket) => void socket.write(text));

describe('a server that is not Redis is named as such', () => {
  it.each<[string, () => NetServer, string]>([
    ['an HTTP server', () => createHttp((_, response) => response.end('hello')), 'it speaks HTTP'],
    ['an SSH server', () => greets('SSH-2.0-OpenSSH_9.2\r\n'), 'it speaks SSH'],
    ['a mail server', () => greets('220 mail.example ESMTP\r\n'), 'it speaks SMTP or FTP'],
    ['one that sends back what it receives', () => createServer((socket) => socket.pipe(socket)), 'it sends back'],
    ['another', () => greets('ERROR\r\n'), 'its first reply is none of Redis'],
  ])('%s: exit 78', async (_, make, what) => {
    const port = await listening(make());
    const url = `redis://127.0.0.1:${port}`;
    const { code, stdout, stderr } = await delayq(['enqueue', 'q', '1', '--redis', url]);
    expect({ code, stdout, stderr }).toEqual({
      code: 78,
      stdout: '',
      stderr: expect.stringMatching(
        new RegExp(
          `^delayq: cannot reach Redis at ${url}\n  why:  the server there is not Redis: ${what}.*\n  next: set the host and port of Redis with --redis or DELAYQ_REDIS_URL\n$`,
        ),
      ),
    });
    await expect(connect(url)).rejects.toMatchObject({
      code: 'config',
      next: 'set the host and port of Redis with connect()',
    });
  });

  it('also when a password is sent to it, which is not shown', async () => {
    for (const server of [createServer((socket) => socket.pipe(socket)), createHttp()]) {
      const port = await listening(server);
      const { code, stderr } = await delayq(['inspect', '--redis', `redis://:s3cret@127.0.0.1:${port}/2`]);
      expect({ code, stderr }).toMatchObject({ code: 78, stderr: expect.stringContaining('not Redis') });
      expect(stderr).not.toContain('s3cret');
    }
  });

  it('and one that does not speak TLS, where the URL asks for it: exit 78', async () => {
    const port = await listening(createHttp());
    expect(await delayq(['inspect', '--redis', `rediss://localhost:${port}`])).toMatchObject({
      code: 78,
      stderr: expect.stringMatching(/does not speak TLS \(ERR_SSL_\w+\)\n {2}next: .*begins with redis:\/\//),
    });
  });

  it('and one that only closes may be something else, or use TLS', async () => {
    const port = await listening(createServer((socket) => socket.end()));
    await expect(connect({ port })).rejects.toMatchObject({
      code: 'unreachable',
      next: expect.stringMatching(/host and port.*rediss:\/\//),
    });
  });
});

it('the library speaks of connect() where the command line speaks of its options and variables', async () => {
  const url = 'redis://127.0.0.1:1';
  const { next } = await connect(url).catch((error) => error);
  expect(next).toBe('start Redis there (redis-server), or set another URL with connect()');
  const { stderr } = await delayq(['inspect'], { env: { DELAYQ_REDIS_URL: url } });
  expect(stderr).toContain(
    'next: start Redis there (redis-server), or set another URL with --redis or DELAYQ_REDIS_URL\n',
  );
});
