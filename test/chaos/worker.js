// A consumer made of the library: worker.js <queue> <concurrency> [--watch]
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Dead, Queue, Worker } from 'delayq';

const { CHAOS_LOG, CHAOS_GATE, CHAOS_RUN, DELAYQ_REDIS_URL } = process.env;
const [name, concurrency, ...flags] = process.argv.slice(2);
const note = (...words) => appendFileSync(CHAOS_LOG, `${words.join(' ')}\n`);

const redis = await connect(DELAYQ_REDIS_URL);
const worker = new Worker(
  new Queue(redis, name),
  async (job) => {
    const start = Date.now();
    const payload = job.json();
    if (payload.id !== job.id) note('corrupt', job.id);
    if (payload.do === 'refuse') throw new Dead('no such order');
    if (payload.do === 'fail' && job.attempt === 1) throw new Error('not yet');
    if (payload.do === 'slow') await sleep(3_000);
    if (payload.do === 'wait') {
      note('began', job.id, process.pid);
      while (!existsSync(CHAOS_GATE)) await sleep(20);
    }
    note(job.id, job.attempt, job.due, start, Date.now(), job.receipt, CHAOS_RUN);
  },
  { concurrency: Number(concurrency), watch: flags.includes('--watch') },
);
process.once('SIGTERM', () => worker.stop());
await worker.run();
redis.close();
