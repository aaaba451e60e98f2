import { Cluster, Redis } from 'ioredis';
import { inject } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards } from './afterwards.js';

export const redisUrl = inject('redisUrl');

/** Whether the tests run on a cluster. */
export const onCluster = !redisUrl.startsWith('unix:');

/** A new plain client. On a cluster it finds the node of each key. */
export const newClient = () => (onCluster ? new Cluster(addressesOf(redisUrl)) : new Redis(inject('redisSocket')));

// These two are for all files that a worker runs, and end with it.
/** A plain client, to look at Redis without delayq. */
export const admin = newClient();
export const connection = new Connection(redisUrl);

/** What a FaultyProxy needs to stand before the shared Redis. */
export const redisTargets = onCluster ? addressesOf(redisUrl).map(({ port }) => port) : [inject('redisSocket')];

/** The shared Redis: each master of the cluster, or the one server. */
export async function masters(): Promise<Redis[]> {
  if (admin instanceof Redis) return [admin];
  // It knows no node before it has connected.
  await admin.ping();
  return admin.nodes('master');
}

/** The names of keys that match a pattern, on any master. */
export async function keysLike(pattern: string): Promise<string[]> {
  return (await Promise.all((await masters()).map((master) => master.keys(pattern)))).flat();
}

/** How many clients wait for messages of a wake channel. Scripts use SPUBLISH on a cluster. */
export async function listeners(channel: string): Promise<number> {
  const numsub = onCluster ? 'SHARDNUMSUB' : 'NUMSUB';
  const counts = (await masters()).map(async (master) => (await master.call('PUBSUB', numsub, channel)) as unknown[]);
  return (await Promise.all(counts)).reduce((sum, [, count]) => sum + Number(count), 0);
}

/** Listens to a wake channel without delayq, until after the test. */
export async function hearing(channel: string): Promise<{ messages: string[]; client: Redis }> {
  const messages: string[] = [];
  for (const master of await masters()) {
    const client = master.duplicate({ lazyConnect: true });
    afterwards(() => client.disconnect());
    client.on(onCluster ? 'smessage' : 'message', (_, message) => messages.push(message));
    // On a cluster, only the owner of the channel's slot agrees.
    const agreed = await (onCluster ? client.ssubscribe(channel) : client.subscribe(channel)).catch(() => 0);
    if (agreed) return { messages, client };
    client.disconnect();
  }
  throw new Error(`no node lets clients listen to ${channel}`);
}

function addressesOf(url: string): { host: string; port: number }[] {
  const list = url.replace(/^redis:\/\/(.*@)?/, '').split(',');
  return list.map((one) => one.split(':')).map(([host = '', port]) => ({ host, port: Number(port) }));
}

/** A queue name that no other test uses. */
export function freshName(): string {
  return `q${Math.random().toString(36).slice(2, 12)}`;
}

/** A queue that no other test uses. */
export function freshQueue(): Queue {
  return new Queue(connection, freshName());
}

/** The name of a key of a queue, as documented. */
export const key = (queue: string, name: string) => `delayq:{${queue}}:${name}`;

/**
 * Lets `ms` pass for a queue without waiting: moves all its times back by that. A negative time: the clock goes back.
 */
export async function timePasses(queue: string, ms: number, client: Redis | Cluster = admin): Promise<void> {
  await client.eval(
    `for i = 1, 3 do
       local all = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
       for j = 1, #all, 2 do redis.call('ZINCRBY', KEYS[i], -ARGV[1], all[j]) end
     end
     local leases = redis.call('HGETALL', KEYS[4])
     for j = 1, #leases, 2 do
       local receipt, due, since, by = string.match(leases[j + 1], '^(%S+) (%S+) (%d+)( .*)$')
       if receipt then
         local from = string.format('%.17g %.0f', due - ARGV[1], since - ARGV[1])
         redis.call('HSET', KEYS[4], leases[j], receipt .. ' ' .. from .. by)
       end
     end
     local metas = redis.call('HGETALL', KEYS[5])
     for j = 1, #metas, 2 do
       local good, rec = pcall(cjson.decode, metas[j + 1])
       if good and rec.first then rec.first = rec.first - ARGV[1] end
       if good and rec.failed then rec.failed = rec.failed - ARGV[1] end
       if good then redis.call('HSET', KEYS[5], metas[j], cjson.encode(rec)) end
     end
     local paused = tonumber(redis.call('HGET', KEYS[6], 'paused'))
     if paused and paused < math.huge then
       redis.call('HSET', KEYS[6], 'paused', string.format('%.0f', paused - ARGV[1]))
     end
     for i = 7, 8 do
       local all = redis.call('ZRANGE', KEYS[i], 0, -1, 'WITHSCORES')
       for j = 1, #all, 2 do redis.call('ZINCRBY', KEYS[i], -ARGV[1], all[j]) end
     end
     local tokens, at, ticket = string.match(redis.call('HGET', KEYS[9], 'bucket') or '', '^(%S+) (%S+) (%S+)$')
     if tokens then
       redis.call('HSET', KEYS[9], 'bucket', string.format('%s %.0f %.0f', tokens, at - ARGV[1], ticket - ARGV[1]))
     end
     local good, row = pcall(cjson.decode, redis.call('HGET', KEYS[9], 'failures') or '')
     if good then
       row.at, row.since = row.at - ARGV[1], row.since - ARGV[1]
       if row.again > 0 then row.again = row.again - ARGV[1] end
       redis.call('HSET', KEYS[9], 'failures', cjson.encode(row))
     end
     local drained = redis.call('HGET', KEYS[9], 'drained')
     if drained then redis.call('HSET', KEYS[9], 'drained', string.format('%.0f', drained - ARGV[1])) end
     local samples = {}
     for i = 0, 15 do
       samples[i] = redis.call('HGET', KEYS[9], 'at:' .. i)
       redis.call('HDEL', KEYS[9], 'at:' .. i)
     end
     for _, text in pairs(samples) do
       local at, counts, oldest, size = string.match(text or '', '^(%d+)( .* )(%S+)( %d+)$')
       if at then
         at = at - ARGV[1]
         if oldest ~= '-' then oldest = string.format('%.17g', oldest - ARGV[1]) end
         local minute = math.floor(at / 60000)
         redis.call('HSET', KEYS[9], 'at:' .. minute % 16, string.format('%.0f', at) .. counts .. oldest .. size)
       end
     end
     redis.call('HDEL', KEYS[9], 'sampled')
     local all = redis.call('ZRANGE', KEYS[10], 0, -1, 'WITHSCORES')
     for j = 1, #all, 2 do redis.call('ZINCRBY', KEYS[10], -ARGV[1], all[j]) end`,
    10,
    ...['pending', 'active', 'dead', 'lease', 'meta', 'config', 'done', 'occurs', 'stats', 'finished'].map((name) =>
      key(queue, name),
    ),
    ms,
  );
}
