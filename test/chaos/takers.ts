import { setTimeout as sleep } from 'node:timers/promises';
import { BatchWorker, DelayqError, type Held, type Job, type Task, Worker } from '../../src/index.js';
import { Calls, versionOf } from './callers.js';
import { now } from './histories.js';

/** Takes jobs by hand, and settles each in one way or another, or lets its lease end. */
export class Taker extends Calls {
  readonly #settling = new Set<Promise<unknown>>();

  protected async run(): Promise<void> {
    const { random, ids, histories, pauseMs = 5 } = this.how;
    const known = new Set(ids);
    while (!this.over) {
      const leaseMs = random.whole(150, 800);
      const from = now();
      try {
        const { jobs } = await this.queue.drain({ limit: random.whole(1, 10), leaseMs });
        const to = now();
        this.seen.succeeded();
        for (const job of jobs) {
          const { id, receipt, payload } = job;
          if (!known.has(id)) throw new Error(`a drain took ${id}, which nobody enqueued`);
          histories.record(id, {
            act: 'take',
            from,
            to,
            answer: 'taken',
            receipt,
            leaseMs,
            version: versionOf(payload),
          });
        }
        const settling = this.#settle(jobs);
        this.#settling.add(settling);
        settling.finally(() => this.#settling.delete(settling));
      } catch (error) {
        this.seen.failed(error);
        if (error instanceof DelayqError && error.code === 'unknown') histories.unseen(from, leaseMs);
        await sleep(50);
      }
      await sleep(random.whole(0, 4 * pauseMs));
    }
    await Promise.all(this.#settling);
  }

  async #settle(jobs: readonly Job[]): Promise<void> {
    const { random } = this.how;
    const share = random.next();
    await sleep(random.chance(0.8) ? random.whole(0, 30) : random.whole(0, 1_000));
    if (share < 0.1) return;
    if (share < 0.25) await this.#answer('renew', jobs);
    const act = share < 0.7 ? 'ack' : share < 0.93 ? 'release' : 'refuse';
    await this.#answer(act, jobs);
  }

  async #answer(act: 'ack' | 'release' | 'refuse' | 'renew', jobs: readonly Held[]): Promise<void> {
    const { random } = this.how;
    const ids = jobs.map(({ id }) => id);
    const leaseMs = random.whole(150, 800);
    const delayMs = random.chance(0.5) ? random.whole(0, 50) : undefined;
    const mode = act === 'refuse' ? 'dead' : random.pick(['retry', 'release'] as const);
    const given = jobs.map((job) => ({
      id: job.id,
      receipt: job.receipt,
      delayMs: mode === 'dead' ? undefined : delayMs,
    }));
    const ask = async () => {
      if (act === 'ack') return this.queue.ack(jobs);
      if (act === 'renew') return this.queue.renew(jobs, leaseMs);
      return (await this.queue.nack(given, { mode })).map(({ answer }) => answer);
    };
    await this.call(act, ids, ask, (i) => ({
      receipt: jobs[i]?.receipt,
      leaseMs: act === 'renew' ? leaseMs : undefined,
    }));
  }
}

/** Consumes with the library's Worker or BatchWorker. What it fetches ahead nobody sees. */
export class Handler extends Calls {
  readonly #stop = new AbortController();

  protected async run(): Promise<void> {
    const { random } = this.how;
    const begun = now();
    this.how.histories.unseen(begun);
    const handle = async (tasks: readonly Task[]) => {
      const to = now();
      for (const { id, receipt, payload } of tasks) {
        const { histories } = this.how;
        histories.record(id, { act: 'take', from: begun, to, answer: 'taken', receipt, version: versionOf(payload) });
        histories.record(id, { act: 'ack', from: to, to: Number.POSITIVE_INFINITY, receipt });
      }
      this.seen.succeeded();
      await sleep(random.whole(0, 30));
    };
    const options = { concurrency: 4, watch: true, onResult: () => {}, onTrouble: () => {}, signal: this.#stop.signal };
    const worker = random.chance(0.5)
      ? new Worker(this.queue, (task) => handle([task]), options)
      : new BatchWorker(this.queue, handle, { ...options, batch: 5 });
    await worker.run();
  }

  override async stop(): Promise<void> {
    this.#stop.abort();
    await super.stop();
  }
}
