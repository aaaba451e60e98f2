import { expect, it } from 'vitest';
import { Connection, poll, Queue } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';
import { freshName, key } from '../support/redis.js';
import type { Server } from '../support/server.js';
import { stopClock } from '../support/stopped-clock.js';

/** A few steps of the clock: as good as at once. */
const SOON_MS = 50;

it('a loop hears each queue of a cluster on its node, also after its slot has moved, and keeps no other connection', async () => {
  const cluster = await during(Cluster.start());
  const redis = new Connection(cluster.url);
  afterwards(() => redis.close());
  const names: string[] = [];
  for (const node of cluster.nodes) {
    let name = freshName();
    while ((await cluster.ownerOf(key(name, 'pending'))) !== node) name = freshName();
    names.push(name);
  }
  const queues = names.map((name) => new Queue(redis, name));
  const { clockUntil } = stopClock(...queues);
  const stop = new AbortController();
  const seen: string[] = [];
  const running = (async () => {
    for await (const { queue, jobs } of poll(queues, { watch: true, signal: stop.signal })) {
      await queue.ack(jobs);
      seen.push(queue.name);
    }
  })();
  /** The connections that listen, by node. */
  const listening = async () => {
    const lists = await Promise.all(cluster.nodes.map((node) => node.admin.call('CLIENT', 'LIST')));
    return lists.map((list) => String(list).split('name=delayq-wake ').length - 1);
  };
  /** How long a job of a queue waits by the clock that stands still, ms. */
  const waits = async (queue: Queue) => {
    const owner = await cluster.ownerOf(queue.wakeChannel);
    const heard = () => owner.admin.call('PUBSUB', 'SHARDNUMSUB', queue.wakeChannel) as Promise<[string, number]>;
    await clockUntil(async () => (await heard())[1] === 1);
    let ms = 0;
    // The first of two: from then on, the next poll is a second away.
    for (const _ of [1, 2]) {
      const before = seen.length;
      await queue.enqueue({ payload: 1, at: 1 });
      ms = await clockUntil(() => seen.length > before);
    }
    return ms;
  };
  await clockUntil(async () => String(await listening()) === '1,1,1');
  for (const queue of queues) expect(await waits(queue)).toBeLessThanOrEqual(SOON_MS);
  const [, second] = cluster.nodes;
  await cluster.migrate(await cluster.slotOf(key(names[0] as string, 'pending')), second as Server);
  await clockUntil(async () => String(await listening()) === '0,1,1');
  for (const queue of queues) expect(await waits(queue)).toBeLessThanOrEqual(SOON_MS);
  expect(await listening()).toEqual([0, 1, 1]);
  stop.abort();
  await running;
});
