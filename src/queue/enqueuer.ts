import { DelayqError, isDelayqError, unknownOutcome } from '../model/errors.js';
import { newId } from '../model/id.js';
import { type Enqueued, GIVEN, type NewJob, type ReadyJob, readyJob } from '../model/job.js';
import { fitted, type Schema } from '../model/schema.js';
import { checkMs, checkWord, keysOf } from '../model/validate.js';
import { requiredBy } from '../store/durability.js';
import { type EnqueueOptions, enqueue } from '../store/enqueue.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';
import { Batches } from './batches.js';

const checkKeys = keysOf<EnqueueOptions>('enqueue', {
  ifExists: 'onConflict replace overwrite',
  durable: 'fsync sync',
  replicas: 'wait',
  repeatMs: 'retryMs repeat retry',
});

/** Returns the options if they are valid. Throws `usage` otherwise. */
export function checkOptions(options: EnqueueOptions): EnqueueOptions {
  const { ifExists = 'keep', repeatMs } = checkKeys(options);
  if (repeatMs !== undefined) checkMs(repeatMs, 'repeatMs');
  checkWord(ifExists, ['keep', 'replace'], 'ifExists');
  return options;
}

/** A single job, and who waits for it: each gets the result or the error of its own job. */
interface Single {
  readonly job: ReadyJob;
  readonly resolve: (enqueued: Enqueued) => void;
  readonly reject: (error: unknown) => void;
}

/** Checks jobs, makes their ids, and lets jobs that are enqueued together share a call. */
export class Enqueuer {
  readonly #store: Store;
  readonly #schema: Schema | undefined;
  /** The partition of the next generated ids: changes after a full batch of jobs, or a failure. */
  #turn = Math.floor(Math.random() * 1024);
  #putInTurn = 0;
  /** Single jobs that are enqueued together share a call; one for each partition, so that each fails on its own. */
  readonly #singles: Batches<Single>[] = [];

  /** Payloads must fit `schema`, if there is one. */
  constructor(store: Store, schema?: Schema) {
    this.#store = store;
    this.#schema = schema;
  }

  /** Checks a job, and fills in defaults. Throws `usage` or `data` if a part of it is invalid. */
  ready(job: NewJob, makeId?: () => string): ReadyJob {
    const ready = readyJob(job, makeId);
    // As its handler will read it: JSON has no Date, for example.
    if (this.#schema) fitted(this.#schema, parsed(ready.json), this.#store.queue);
    return ready;
  }

  async one(job: NewJob & Pick<ReadyJob, typeof GIVEN>, options: EnqueueOptions): Promise<Enqueued> {
    checkOptions(options);
    const made = this.ready(job, this.#makeId);
    const ready = job[GIVEN] === undefined ? made : { ...made, [GIVEN]: job[GIVEN] };
    // A shared call that fails would leave open which of its jobs was replaced or confirmed.
    if (!requiredBy(options) && options.ifExists !== 'replace' && options.repeatMs === undefined)
      return this.#enqueueSingle(ready);
    this.#flushSingles();
    const [enqueued] = await this.#put([ready], options);
    return enqueued as Enqueued;
  }

  async all(jobs: readonly NewJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    this.#flushSingles();
    return this.#put(
      jobs.map((job) => this.ready(job, this.#makeId)),
      options,
    );
  }

  #enqueueSingle(job: ReadyJob): Promise<Enqueued> {
    const i = this.#store.map.ownerOf(job.id);
    return new Promise((resolve, reject) => {
      // A microtask runs after all code that can run now, and before any I/O. So a single call is not delayed.
      if (this.#singles.length === 0) queueMicrotask(() => this.#flushSingles());
      this.#singles[i] ??= new Batches();
      this.#singles[i].add({ job, resolve, reject }, job.json.length + job.record.length);
    });
  }

  /** Sends single jobs now: the next call must come after them. */
  #flushSingles(): void {
    for (const singles of this.#singles.splice(0))
      for (let batch = singles?.take(true); batch; batch = singles?.take(true)) this.#putSingles(batch.items);
  }

  async #putSingles(some: readonly Single[]): Promise<void> {
    const jobs = some.map(({ job }) => job);
    try {
      const enqueued = await this.#put(jobs, {});
      for (const [i, { resolve }] of some.entries()) resolve(enqueued[i] as Enqueued);
    } catch (error) {
      const isShared = some.length > 1 && isDelayqError(error, 'unknown');
      for (const { job, reject } of some) reject(isShared ? unknownOutcome([job.id], error.why ?? error.what) : error);
    }
  }

  #takeTurns(): void {
    this.#turn++;
    this.#putInTurn = 0;
  }

  /** Makes all ids of a batch for one partition: so the batch is one call, stored whole or not at all. */
  readonly #makeId = (): string => {
    const { map } = this.#store;
    return map.count === 1 ? newId() : map.newIdOf(this.#turn % map.count);
  };

  async #put(jobs: readonly ReadyJob[], options: EnqueueOptions): Promise<Enqueued[]> {
    if (jobs.length === 0) return [];
    this.#putInTurn += jobs.length;
    if (this.#putInTurn >= MAX_CALL) this.#takeTurns();
    try {
      return await enqueue(this.#store, jobs, options, this.#makeId);
    } catch (error) {
      this.#takeTurns();
      throw error;
    }
  }
}

/** The value of a payload. Throws `data` if it need not be JSON. */
function parsed(json: string | Buffer): unknown {
  if (typeof json === 'string') return JSON.parse(json);
  throw new DelayqError('data', 'a RawPayload fits no schema', {
    why: 'it is not JSON',
    next: 'enqueue it to a queue without a schema',
  });
}
