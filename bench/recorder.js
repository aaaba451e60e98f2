// Stands between a client and Redis and keeps every byte the client sends: what a fast client could have had ready.
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { connect, createServer } from 'node:net';

/**
 * Runs `client` with the port of a stand-in for the server at `port`, and writes what it sends into `file`. Throws when it
 * makes more than one connection.
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
    // Whoever cuts the line has said what it wanted to say.
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
  if (connections !== 1) throw new Error(`${connections} connections were made where one was to be recorded`);
}
