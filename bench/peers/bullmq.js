import { Queue, Worker } from 'bullmq';
import { overlapped } from './overlapped.js';

/** Five attempts, as in delayq; completed jobs are removed, as in the others. */
const OPTIONS = { attempts: 5, backoff: { type: 'exponential', delay: 15_000 }, removeOnComplete: true };

const optionsOf = (at) => (at === undefined ? OPTIONS : { ...OPTIONS, delay: Math.max(0, at - Date.now()) });

/** @param {import('./peer.js').Where} where */
export async function open({ redis: connection }) {
  const queue = new Queue('bench', { connection });
  let worker;
  const work = (handle, concurrency = 100) => {
    worker = new Worker('bench', (job) => handle(job.data), { connection, concurrency });
    worker.on('error', () => {});
    return worker;
  };
  await queue.waitUntilReady();
  return {
    add: (data, at) => queue.add('job', data, optionsOf(at)),
    addMany: (jobs) =>
      overlapped(jobs, 1_000, (some) =>
        queue.addBulk(some.map(({ data, at }) => ({ name: 'job', data, opts: optionsOf(at) }))),
      ),
    drain: (n, handle, concurrency) =>
      new Promise((resolve) => {
        let done = 0;
        work(handle, concurrency).on('completed', () => {
          done += 1;
          if (done === n) resolve();
        });
      }),
    takeEach: async (n, handle) => {
      // No lock may expire while others have their turn.
      worker = new Worker('bench', undefined, { connection, lockDuration: 600_000 });
      for (let i = 0; i < n; i += 1) {
        const job = await worker.getNextJob('token');
        await handle(job.data);
        // false: as when no other job is due, which it would fetch in the same call.
        await job.moveToCompleted(true, 'token', false);
      }
    },
    watch: (handle) => work(handle).waitUntilReady(),
    close: () => queue.close(),
  };
}
