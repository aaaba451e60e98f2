import BeeQueue from 'bee-queue';
import { overlapped } from './overlapped.js';

/** Its fastest settings: no events, no finished jobs kept. Delayed jobs use the default `delayedDebounce` of 1 s. */
const SETTINGS = { getEvents: false, sendEvents: false, storeJobs: false, removeOnSuccess: true };

/** @param {import('./peer.js').Where} where */
export async function open({ redis }) {
  const producer = new BeeQueue('bench', { ...SETTINGS, redis, isWorker: false });
  await producer.ready();
  const jobOf = (data, at) => {
    const job = producer.createJob(data).retries(4).backoff('exponential', 15_000);
    return at === undefined ? job : job.delayUntil(at);
  };
  const worker = () => new BeeQueue('bench', { ...SETTINGS, redis, activateDelayedJobs: true });
  return {
    add: (data, at) => jobOf(data, at).save(),
    addMany: (jobs) => overlapped(jobs, 1_000, (some) => producer.saveAll(some.map(({ data, at }) => jobOf(data, at)))),
    drain: (n, handle, concurrency = 100) =>
      new Promise((resolve) => {
        let done = 0;
        const queue = worker();
        queue.on('succeeded', () => {
          done += 1;
          if (done === n) resolve();
        });
        queue.process(concurrency, (job) => handle(job.data));
      }),
    watch: async (handle) => {
      const queue = worker();
      await queue.ready();
      queue.process(100, (job) => handle(job.data));
    },
    close: () => producer.close(),
  };
}
