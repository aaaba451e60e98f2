import { expect, it } from 'vitest';
import { addressAt, addressOf } from '../../src/net/address.js';
import { LIBRARY_NAMES } from '../../src/net/errors.js';
import { RedisNode } from '../../src/net/node.js';
import { afterwards, during } from '../support/afterwards.js';
import { freePort, Server } from '../support/server.js';

it('a connection to one of several servers stays where it is once that is known as a node of a cluster', async () => {
  const other = await during(Server.start({ tcp: true }));
  const gone = await freePort();
  const all = addressOf('redis://127.0.0.1', LIBRARY_NAMES);
  const [first, second] = [gone, other.port].map((port) => addressAt(all, { host: '127.0.0.1', port }));
  const node: RedisNode = new RedisNode(all, LIBRARY_NAMES, {
    locate: async () => {
      setImmediate(() => node.becomeNode({}));
      return [first, second] as (typeof all)[];
    },
  });
  afterwards(() => node.close());
  await expect(node.connect()).rejects.toMatchObject({ code: 'unreachable' });
  expect(node.at.options.port).toBe(gone);
});
