import { setTimeout as sleep } from 'node:timers/promises';
import PgBoss from 'pg-boss';
import { overlapped } from './overlapped.js';

/** Five attempts, as in delayq. */
const OPTIONS = { retryLimit: 4, retryDelay: 15, retryBackoff: true };
/** Jobs a call. Its own worker fetches at most twice a second, so drains call `fetch` and `complete` themselves. */
const BATCH = 1_000;
const LANES = 4;

const optionsOf = (at) => (at === undefined ? OPTIONS : { ...OPTIONS, startAfter: new Date(at) });

/** @param {import('./peer.js').Where} where */
export async function open({ postgres }) {
  const boss = new PgBoss({ connectionString: postgres, max: 20, supervise: false, schedule: false });
  boss.on('error', () => {});
  await boss.start();
  await boss.createQueue('bench');
  return {
    add: (data, at) => boss.send('bench', data, optionsOf(at)),
    addMany: (jobs) =>
      overlapped(jobs, BATCH, (some) =>
        boss.insert(some.map(({ data, at }) => ({ name: 'bench', data, ...optionsOf(at) }))),
      ),
    drain: async (n, handle) => {
      let done = 0;
      const lane = async () => {
        while (done < n) {
          const jobs = await boss.fetch('bench', { batchSize: BATCH });
          if (jobs.length === 0) await sleep(1);
          await Promise.all(jobs.map((job) => handle(job.data)));
          if (jobs.length > 0)
            await boss.complete(
              'bench',
              jobs.map(({ id }) => id),
            );
          done += jobs.length;
        }
      };
      await Promise.all(Array.from({ length: LANES }, lane));
    },
    takeEach: async (n, handle) => {
      for (let i = 0; i < n; i += 1) {
        const [job] = await boss.fetch('bench');
        await handle(job.data);
        await boss.complete('bench', job.id);
      }
    },
    watch: (handle) =>
      boss.work('bench', { batchSize: BATCH, pollingIntervalSeconds: 0.5 }, (jobs) =>
        Promise.all(jobs.map((job) => handle(job.data))),
      ),
    close: () => boss.stop({ graceful: false }),
  };
}
