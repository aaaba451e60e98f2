import { expect, it } from 'vitest';
import { Connection, Queue, type Task, Worker } from '../../src/index.js';
import { shaOf } from '../../src/store/script.js';
import { afterwards, during } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { FaultyProxy } from '../support/proxy.js';
import { freshName, freshQueue, redisTargets } from '../support/redis.js';

it('a run without watch handles all that was due, also if jobs wait for long while a fetch is under way', async () => {
  const proxy = await during(FaultyProxy.start(...redisTargets));
  const redis = new Connection(proxy.url);
  afterwards(() => redis.close());
  const queue = new Queue(redis, freshName());
  await queue.enqueue(upTo(10).map((n) => ({ payload: n, at: 1_000 + n })));
  // Redis knows the script from here on.
  await freshQueue().drain();
  let go = () => {};
  const gate = new Promise<void>((resolve) => {
    go = resolve;
  });
  const handled: number[] = [];
  // The first fetch brings eight jobs, the second one the last two. Its reply takes longer than jobs wait for a handler.
  const before = () => {
    proxy.delay(2_500);
    setTimeout(go, 3_000);
  };
  proxy.fault = {
    word: shaOf('jobs/drain'),
    kind: 'pass',
    times: 1,
    after: 1,
    before,
  };
  const handler = async ({ payload }: Task) => {
    const n = Number(payload);
    if (n > 1) await gate;
    handled.push(n);
  };
  expect(await new Worker(queue, handler, { watch: false, concurrency: 4 }).run()).toMatchObject({ acked: 10 });
  expect(proxy.struck).toBe(1);
  expect(handled.sort((a, b) => a - b)).toEqual(upTo(10));
});
