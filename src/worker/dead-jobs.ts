import { Flood } from '../consume/flood.js';
import { UnderWay } from '../consume/under-way.js';
import { type Id, idWord } from '../model/id.js';
import type { Job } from '../model/job.js';
import { many } from '../model/text.js';
import { LONGEST_TIMER_MS, within } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { messageOf } from './settler.js';
import type { DeadJob } from './task.js';

/** How many calls are under way at once. */
const AT_ONCE = 4;

/** How many jobs wait for their calls, and how many bytes of payloads. */
const MAX_WAITING = 1_000;
const MAX_BYTES = 64 * 1024 * 1024;

/** How many failures are told one by one in a minute. */
const MAX_TOLD = 3;

interface Waiting {
  readonly queue: string;
  readonly id: Id;
  /** The size of the payload that is kept for it. */
  readonly bytes: number;
  readonly read: () => DeadJob | Promise<DeadJob>;
}

/** Calls `onDead` for each job that dies. Nobody waits for that, and no failure of it matters to the run. */
export class DeadJobs {
  readonly #onDead: (job: DeadJob) => unknown;
  readonly #name: string;
  readonly #tell: (text: string) => void;
  readonly #failures: Flood;
  readonly #leftOut: Flood;
  readonly #waiting: Waiting[] = [];
  #bytes = 0;
  #running = 0;
  readonly #underWay = new UnderWay();

  /** `name`: what users call `onDead`; `tell` tells them of failures. */
  constructor(onDead: (job: DeadJob) => unknown, name: string, tell: (text: string) => void) {
    this.#onDead = onDead;
    this.#name = name;
    this.#tell = tell;
    this.#failures = new Flood(tell, MAX_TOLD, (n) => `${name}: ${many(n, 'more failure')} in this minute`);
    this.#leftOut = new Flood(tell, 0, (n, why) => `${name} was not called for ${many(n, 'dead job')}: ${why}`);
  }

  /** How many calls are under way or wait. */
  get size(): number {
    return this.#running + this.#waiting.length;
  }

  /** A job has died that a drain held. */
  died(
    { name: queue }: Queue,
    { id, attempt: attempts, attributes, payload }: Job,
    reason: DeadJob['reason'],
    error: string | undefined,
  ): void {
    const job: DeadJob = { queue, id, reason, error, attempts, attributes, payload };
    this.#add({ queue, id, bytes: payload.length, read: () => job });
  }

  /** A call for jobs has made some dead: the rest about them is stored. */
  drained(queue: Queue, { died }: Drained): void {
    for (const { id, reason } of died)
      this.#add({ queue: queue.name, id, bytes: 0, read: () => storedJob(queue, id, reason) });
  }

  #add(job: Waiting): void {
    if (this.#waiting.length >= MAX_WAITING || this.#bytes + job.bytes > MAX_BYTES) {
      this.#leftOut.add('', 'too many were waiting');
      return;
    }
    this.#waiting.push(job);
    this.#bytes += job.bytes;
    this.#next();
  }

  #next(): void {
    const job = this.#running < AT_ONCE ? this.#waiting.shift() : undefined;
    if (!job) return;
    this.#running += 1;
    this.#bytes -= job.bytes;
    const ended = this.#call(job).finally(() => {
      this.#running -= 1;
      this.#next();
    });
    this.#underWay.add(ended);
  }

  async #call({ queue, id, read }: Waiting): Promise<void> {
    try {
      await this.#onDead(await read());
    } catch (error) {
      const [why] = messageOf(error).split('\n', 1);
      this.#failures.add(`${queue} ${idWord(id)}: ${this.#name} failed: ${why}`);
    }
  }

  /** Waits up to `ms` for all calls, and leaves out those that still wait then. */
  async end(ms: number): Promise<void> {
    await within(Math.min(Math.max(0, ms), LONGEST_TIMER_MS), this.#underWay.ended());
    for (const _ of this.#waiting.splice(0)) this.#leftOut.add('', 'the run has ended');
    if (this.#running > 0) this.#tell(`${this.#name} had not ended for ${many(this.#running, 'dead job')}`);
    this.#failures.flush();
    this.#leftOut.flush();
  }
}

const wordOf = (id: Id) => (typeof id === 'string' ? id : idWord(id));

async function storedJob(queue: Queue, id: Id, reason: DeadJob['reason']): Promise<DeadJob> {
  const job = await queue.show(id);
  if (!job) throw new Error('the job is not stored any more');
  const { error, attempts, attributes, payload } = job;
  return { queue: queue.name, id: wordOf(id), reason, error, attempts, attributes, payload };
}
