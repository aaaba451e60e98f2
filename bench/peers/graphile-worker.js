import { Logger, makeWorkerUtils, run } from 'graphile-worker';
import { overlapped } from './overlapped.js';

/** Five attempts, as in delayq. */
const OPTIONS = { maxAttempts: 5 };
/** What its manual names for throughput: jobs fetched ahead, and completed together. */
const AHEAD = { localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0 };
/** It polls for jobs that fall due; only jobs due at once wake it. As often as pg-boss may; default: 2 s. */
const POLL_MS = 500;

const optionsOf = (at) => (at === undefined ? OPTIONS : { ...OPTIONS, runAt: new Date(at) });

/** @param {import('./peer.js').Where} where */
export async function open({ postgres: connectionString }) {
  const logger = new Logger(() => () => {});
  const utils = await makeWorkerUtils({ connectionString, logger });
  await utils.migrate();
  const work = (handle, concurrency) => {
    const settings = { connectionString, maxPoolSize: 20, concurrentJobs: concurrency, pollInterval: POLL_MS, logger };
    const worker = concurrency > 1 ? { ...settings, ...AHEAD } : settings;
    return run({ preset: { worker }, taskList: { job: handle }, noHandleSignals: true });
  };
  return {
    add: (data, at) => utils.addJob('job', data, optionsOf(at)),
    addMany: (jobs) =>
      overlapped(jobs, 1_000, (some) =>
        utils.addJobs(some.map(({ data, at }) => ({ identifier: 'job', payload: data, ...optionsOf(at) }))),
      ),
    drain: async (n, handle, concurrency = 100) => {
      let handled = 0;
      let all;
      const last = new Promise((resolve) => {
        all = resolve;
      });
      const runner = await work(async (data) => {
        await handle(data);
        handled += 1;
        if (handled === n) all();
      }, concurrency);
      await last;
      // Waits until the jobs are completed.
      await runner.stop();
    },
    watch: (handle) => work(handle, 100),
    close: () => utils.release(),
  };
}
