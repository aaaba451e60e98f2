// A queue without a library: a sorted set of due times, a hash of payloads, a loop that polls once a second. At most once, no
// retries.
import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Redis } from 'ioredis';
import { overlapped } from './overlapped.js';

const DUE = 'naive:due';
const DATA = 'naive:data';

/** @param {import('./peer.js').Where} where */
export async function open({ redis: address }) {
  const redis = new Redis(address);
  const put = (jobs) => {
    const named = jobs.map(({ data, at = Date.now() }) => ({ id: randomUUID(), at, text: JSON.stringify(data) }));
    const multi = redis.multi();
    multi.hset(DATA, ...named.flatMap(({ id, text }) => [id, text]));
    multi.zadd(DUE, ...named.flatMap(({ id, at }) => [at, id]));
    return multi.exec();
  };
  /** Handles due jobs, 500 at a time. The process that removes an id owns the job. */
  const sweep = async (handle) => {
    for (;;) {
      const ids = await redis.zrangebyscore(DUE, '-inf', Date.now(), 'LIMIT', 0, 500);
      if (ids.length === 0) return;
      const claim = redis.pipeline();
      for (const id of ids) claim.zrem(DUE, id);
      claim.hmget(DATA, ...ids);
      const replies = (await claim.exec()).map(([, reply]) => reply);
      const texts = replies.pop();
      await Promise.all(texts.filter((_, i) => replies[i] === 1).map((text) => handle(text)));
      await redis.hdel(DATA, ...ids.filter((_, i) => replies[i] === 1));
    }
  };
  return {
    add: (data, at) => put([{ data, at }]),
    addMany: (jobs) => overlapped(jobs, 500, put),
    drain: (_, handle) => sweep(handle),
    watch: async (handle) => {
      (async () => {
        for (;;) {
          await sweep((text) => handle(JSON.parse(text)));
          await sleep(1_000);
        }
      })();
    },
    close: async () => redis.disconnect(),
  };
}
