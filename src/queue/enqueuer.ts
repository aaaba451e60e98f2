import { DelayqError, isDelayqError, unknownOutcome } from '../model/errors.js';
import { newId } from '../model/id.js';
import { type Enqueued, GIVEN, type NewJob, type ReadyJob, readyJob } from '../model/job.js';
import { fitted, type Schema } from '../model/schema.js';
import { checkMs, checkWord, keysOf } from '../model/validate.js';
import { requiredBy } from '../store/durability.js';
import { type EnqueueOptions, enqueue } from '../store/enqueue.js';
import { MAX_CALL } from '../store/script.js';
import type { Store } from '../store/store.js';
import { Coalescer } from './coalesce.js';

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

/** Checks jobs, makes their ids, and lets jobs that are enqueued together share a call. */
export class Enqueuer {
  readonly #store: Store;
  readonly #schema: Schema | undefined;
  /** The partition of the next generated ids: changes after a full batch of jobs, or a failure. */
  #turn = Math.floor(Math.random() * 1024);
  #putInTurn = 0;
  /** Single jobs that are enqueued together share a call; one for each partition, so that each fails on its own. */
  readonly #singles: Coalescer<ReadyJob, Enqueued>[] = [];

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
      return this.#singlesOf(ready).add(ready, ready.json.length + ready.record.length);
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

  #singlesOf({ id }: ReadyJob): Coalescer<ReadyJob, Enqueued> {
    const i = this.#store.map.ownerOf(id);
    this.#singles[i] ??= new Coalescer<ReadyJob, Enqueued>(
      (items) => this.#put(items, {}),
      (error, { id }) => (isDelayqError(error, 'unknown') ? unknownOutcome([id], error.why ?? error.what) : error),
    );
    return this.#singles[i];
  }

  #flushSingles(): void {
    for (const singles of this.#singles) singles?.flush();
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
