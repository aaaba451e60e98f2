// A proxy that records every byte a client sends to Redis, so that another client can send the same calls.
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { connect, createServer } from 'node:net';

/**
 * Runs `client` with the port of a proxy for the server at `port` and writes what the client sends to `file`. Throws unless
 * it makes exactly one connection.
 *
 * @param {number} port
 * @param {string} file
 * @param {(port: number) => Promise<unknown>} client
 */
export async function record(port, file, client) {
  let connections = 0;
  let written = Promise.resolve();
  const server = createServer((socket) => {
    connections += 1;
    const copy = createWriteStream(file);
    written = new Promise((resolve) => copy.once('finish', resolve));
    const target = connect(port, '127.0.0.1');
    // A client may reset the connection when it is done.
    for (const side of [socket, target]) side.on('error', () => {});
    socket.pipe(target).pipe(socket);
    socket.pipe(copy, { end: false });
    socket.once('close', () => copy.end());
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    await client(/** @type {import('node:net').AddressInfo} */ (server.address()).port);
    await written;
  } finally {
    server.close();
  }
  if (connections !== 1) throw new Error(`expected 1 connection to record, got ${connections}`);
}
