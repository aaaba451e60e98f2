import { GivenBack, NO_ATTRIBUTES, randomWord, Task } from '../../internal.js';
import { withPayload } from '../lines/drain-line.js';
import { withCause } from './cause.js';
import { type Handed, type PoolEnd, type PoolHost, PoolProcess } from './pool-process.js';

/** The pause after the second process of a place that ends by itself without an answer, which doubles; the longest; ms. */
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 30_000;

/** How many bytes of lines are in hand before no more jobs are handed out. */
const MAX_BYTES = 16 * 1024 * 1024;

const NEVER = new AbortController().signal;

/** What a pool is made of. */
export interface PoolOptions
  extends Pick<
    PoolHost,
    | 'command'
    | 'processes'
    | 'relay'
    | 'policy'
    | 'report'
    | 'ahead'
    | 'maxJobs'
    | 'maxMemory'
    | 'answersOnStdout'
    | 'patienceMs'
  > {
  readonly size: number;
  /** All processes run although there are no jobs for them: in a run that waits for jobs. */
  readonly isWarm: boolean;
  /** Aborts when no more jobs should begin. */
  readonly stop: AbortSignal;
}

/**
 * Processes that stay (`drain --stay`): hands each job to one that has room, starts processes when jobs need them, and
 * replaces those that end.
 */
export class Pool {
  readonly #options: PoolOptions;
  readonly #host: PoolHost;
  readonly #places: Place[];
  /** Jobs for which no process has room. */
  readonly #waiting: Waiting[] = [];
  readonly #run = randomWord(4);
  #tickets = 0;
  #bytes = 0;
  #room: (() => void) | undefined;

  /** Starts processes at once if it is warm, else when jobs need them. */
  constructor(options: PoolOptions) {
    this.#options = options;
    const { size, stop } = options;
    this.#host = {
      ...options,
      isTicket: (word) => word.startsWith(`${this.#run}.`),
      onRoom: () => this.#assign(),
      onReturn: (jobs) => this.#return(jobs),
    };
    this.#places = Array.from({ length: size }, () => new Place(this.#host));
    stop.addEventListener('abort', () => {
      for (const job of this.#waiting.splice(0)) job.failed(new GivenBack());
    });
    this.#assign();
  }

  /** Has a job handled. Returns what came out of it; empty: nothing. Throws what a worker expects if it is not done. */
  handle(task: Task): Promise<string> {
    const ticket = `${this.#run}.${(++this.#tickets).toString(36)}`;
    const { id, queue, attempt, tries, due } = task;
    const attributes = task.attributes === NO_ATTRIBUTES ? undefined : task.attributes;
    const head = JSON.stringify({ id, ticket, queue, attempt, tries, due, attributes });
    const line = withPayload(head, task.payload, '}\n');
    this.#bytes += line.length;
    return new Promise<string>((resolve, reject) => {
      const over = () => {
        this.#bytes -= line.length;
        if (this.#room && this.#bytes < MAX_BYTES) this.#room();
      };
      const job: Waiting = {
        ...{ ticket, line, call: Task.callOf(task), isPostponed: false },
        done: (result) => {
          over();
          resolve(result);
        },
        failed: (error) => {
          over();
          reject(error);
        },
      };
      this.#waiting.push(job);
      this.#assign();
    });
  }

  /** Takes back jobs that a process has not begun: the next ones get them. */
  #return(jobs: readonly Handed[]): void {
    const waiting = jobs.map((job) => ({ ...job, isPostponed: true }));
    if (this.#options.stop.aborted) for (const job of waiting) job.failed(new GivenBack());
    else {
      this.#waiting.unshift(...waiting);
      for (const job of waiting) this.#postpone(job);
    }
  }

  /** If much is in hand: resolves once it is less. */
  room(): Promise<unknown> | undefined {
    if (this.#bytes < MAX_BYTES) return undefined;
    return new Promise<void>((resolve) => {
      this.#room = resolve;
    });
  }

  /** How many processes have jobs in hand. */
  get working(): number {
    return this.#places.filter(({ process }) => process && !process.isIdle).length;
  }

  #assign(): void {
    for (let [job] = this.#waiting; job; [job] = this.#waiting) {
      const process = this.#freest();
      if (!process) break;
      this.#waiting.shift();
      if (job.isPostponed && process.isIdle) job.call.begin();
      process.hand(job);
    }
    for (const job of this.#waiting) if (!job.isPostponed) this.#postpone(job);
    let wanted = this.#options.isWarm ? Number.POSITIVE_INFINITY : this.#waiting.length;
    for (const place of this.#places) {
      if (wanted <= 0) break;
      if (this.#start(place) || place.isStarting) wanted -= this.#options.ahead;
    }
  }

  #postpone(job: Waiting): void {
    job.isPostponed = true;
    job.call.postpone();
    job.call.onAbort = (reason) => {
      const at = this.#waiting.indexOf(job);
      if (at >= 0) this.#waiting.splice(at, 1);
      job.failed(reason);
    };
  }

  /** The process with the most room; undefined: none has any. */
  #freest(): PoolProcess | undefined {
    let most = 0;
    let found: PoolProcess | undefined;
    for (const { process } of this.#places) {
      const room = process?.room ?? 0;
      if (room > most) {
        most = room;
        found = process;
      }
    }
    return found;
  }

  /** Starts a process in a place that is free. Returns whether it does. */
  #start(place: Place): boolean {
    if (this.#options.stop.aborted || !place.isFree) return false;
    place.start().then(
      () => this.#assign(),
      (error: NodeJS.ErrnoException) => {
        const waiting = this.#waiting.splice(0);
        try {
          this.#options.policy.startFailed(error);
        } catch (thrown) {
          for (const job of waiting) job.failed(thrown);
        }
      },
    );
    return true;
  }

  /** Ends all processes: their stdin ends; those that stay get SIGTERM, and those still left SIGKILL. */
  async close(): Promise<void> {
    await Promise.all(this.#places.map((place) => place.close()));
  }
}

interface Waiting extends Handed {
  /** Its time does not count: no process had room for it. */
  isPostponed: boolean;
}

/** A place for a process, and for the next one once that has ended. */
class Place {
  readonly #host: PoolHost;
  process: PoolProcess | undefined;
  #starting: Promise<PoolProcess> | undefined;
  /** How many processes in a row have ended by themselves without an answer. */
  #inRow = 0;
  #pause: NodeJS.Timeout | undefined;
  #isClosed = false;

  constructor(host: PoolHost) {
    this.#host = host;
  }

  get isFree(): boolean {
    return !this.process && !this.#starting && !this.#pause && !this.#isClosed;
  }

  get isStarting(): boolean {
    return this.#starting !== undefined;
  }

  /** Starts a process. Throws as {@link PoolProcess.start}. */
  async start(): Promise<void> {
    this.#starting = PoolProcess.start(this.#host);
    try {
      const process = await this.#starting;
      this.process = process;
      process.ended.then((end) => this.#ended(process, end));
    } finally {
      this.#starting = undefined;
    }
  }

  #ended({ answered }: PoolProcess, { status, signal, tail, isOwn, hadJob }: PoolEnd): void {
    this.process = undefined;
    this.#inRow = isOwn && answered === 0 ? this.#inRow + 1 : 0;
    if (isOwn && !hadJob && (answered === 0 || status !== 0)) {
      const how = withCause(signal ? `killed by ${signal}` : `exit ${status}`, tail);
      const when = answered === 0 ? 'before its first job' : 'between two jobs';
      this.#host.report.handlerProblem(`a handler that should stay ended ${when}: ${how}`);
      // Perhaps it could not be run at all.
      this.#host.policy.check({ status, signal, tail, aborted: false }, NEVER).catch(() => {});
    }
    const pauseMs = this.#inRow < 2 ? 0 : Math.min(FIRST_PAUSE_MS * 2 ** (this.#inRow - 2), LONGEST_PAUSE_MS);
    if (!this.#isClosed) this.#pause = setTimeout(() => this.#free(), pauseMs);
  }

  #free(): void {
    this.#pause = undefined;
    this.#host.onRoom();
  }

  /** Ends its process, and starts no more. */
  async close(): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#pause);
    const process = this.process ?? (await this.#starting?.catch(() => undefined));
    process?.retire();
    await process?.ended;
  }
}
