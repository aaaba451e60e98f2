import { expect, it } from 'vitest';
import { Operator, Queue } from '../../src/internal.js';
import { Partitions } from '../../src/partitions/partitions.js';
import { tagFor } from '../../src/partitions/tags.js';
import { Connection } from '../../src/redis/connection.js';
import { afterwards } from '../support/afterwards.js';
import { Cluster } from '../support/cluster.js';

it('leaves no job in two partitions when the replicas of the new one do not follow', async () => {
  const cluster = await Cluster.start({ masters: 2, replicas: 1 });
  afterwards(() => cluster.stop());
  const redis = new Connection(cluster.url);
  afterwards(() => redis.close());
  const ids = Array.from({ length: 20 }, (_, i) => `o:${i}`);
  await new Queue(redis, 'q').enqueue(ids.map((id) => ({ id, payload: id })));
  const grow = async () => {
    for await (const _ of new Operator(redis).partition('q', 2));
  };
  const places = async (id: string) => {
    const { map } = Partitions.of(redis, 'delayq', 'q');
    const scores = [0, 1].map((i) =>
      redis.call('ZSCORE', Partitions.of(redis, 'delayq', 'q').keys(i, map).pending, id),
    );
    return (await Promise.all(scores)).filter((score) => score !== null).length;
  };

  const owner = await cluster.ownerOf(`delayq:{${tagFor('q', 1)}}:pending`);
  expect(owner).not.toBe(await cluster.ownerOf('delayq:{q}:pending'));
  const [replica] = await cluster.replicasOf(owner);
  replica?.signal('SIGSTOP');
  await expect(grow()).rejects.toThrow('too few replicas');
  expect(await Promise.all(ids.map(places))).not.toContain(2);

  replica?.signal('SIGCONT');
  await grow();
  expect(await Promise.all(ids.map(places))).toEqual(ids.map(() => 1));
}, 90_000);
