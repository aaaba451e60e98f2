// A consumer with the library's Worker: worker.js <queue> <concurrency> [--watch]
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Dead, Queue, Worker } from 'delayq';
import { note, resultOf, work } from './task.js';

const [name, concurrency, ...flags] = process.argv.slice(2);

async function handle(job) {
  const payload = job.json();
  if (payload.do === 'refuse' || (payload.do === 'fail' && job.attempt === 1)) {
    note('failed', job.id, job.attempt);
    throw payload.do === 'fail' ? new Error('not yet') : new Dead('no such order');
  }
  if (payload.do === 'slow') await sleep(3_000);
  await work(job, payload);
  return resultOf(job);
}

const settled = ({ job, outcome }) => note('settled', outcome, job.id, job.attempt, Date.now(), process.env.CHAOS_RUN);

try {
  const redis = await connect(process.env.DELAYQ_REDIS_URL);
  const options = { concurrency: Number(concurrency), watch: flags.includes('--watch'), onResult: settled };
  const worker = new Worker(new Queue(redis, name), handle, options);
  process.once('SIGTERM', () => worker.stop());
  await worker.run();
  redis.close();
} catch (error) {
  console.error(`worker: ${error.code}: ${error.message}`);
  process.exit(1);
}
