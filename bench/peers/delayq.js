import { connect, Queue, Worker } from '../../dist/lib/index.js';

/** @param {import('./peer.js').Where} where */
export async function open({ redis: { host, port }, tries }) {
  const redis = await connect(`redis://${host}:${port}`);
  const queue = new Queue(redis, tries ? 'bench-tries' : 'bench');
  return {
    add: tries
      ? (data, at) => queue.enqueue({ payload: data, at, tries })
      : (data, at) => queue.enqueue({ payload: data, at }),
    addMany: (jobs) => queue.enqueue(jobs.map(({ data, at }) => ({ payload: data, at }))),
    drain: (_, handle) => new Worker(queue, handle, { watch: false, concurrency: 100 }).run(),
    takeEach: async (n, handle) => {
      for (let i = 0; i < n; i += 1) {
        const { jobs } = await queue.drain({ limit: 1 });
        await handle(jobs[0]);
        const [answer] = await queue.ack(jobs);
        if (answer !== 'held') throw new Error(`the lease was ${answer}`);
      }
    },
    watch: async (handle) => {
      new Worker(queue, (job) => handle(job.json()), { concurrency: 100 }).run();
    },
    close: async () => redis.close(),
  };
}
