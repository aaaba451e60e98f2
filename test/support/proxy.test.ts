import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { expect, it } from 'vitest';
import { during } from './afterwards.js';
import { FaultyProxy } from './proxy.js';
import { until } from './until.js';

it('a connection that has swallowed replies passes none that follow, whatever strikes it next', async () => {
  let arrived = '';
  let other: Socket | undefined;
  const server = createServer((socket) => {
    other = socket;
    socket.on('data', (data: Buffer) => {
      arrived += data;
      socket.write(`reply to ${data}`);
    });
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const proxy = await during(FaultyProxy.start((server.address() as { port: number }).port));
  const client = connect(proxy.port, proxy.host);
  let replies = '';
  client.on('data', (data: Buffer) => {
    replies += data;
  });
  client.write('1');
  await until(() => replies === 'reply to 1');
  proxy.strike('silent');
  client.write('2');
  await until(() => arrived === '12');
  proxy.strike('deaf');
  // Read by the proxy before the connection ends.
  other?.end('reply to 3');
  await once(client, 'close');
  expect(replies).toBe('reply to 1');
  server.close();
});
