import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { POLL_MS } from '../store/keys.js';

/**
 * Backoff after losing the race for a job: the first delay and the longest, ms. Each lost race doubles the delay. This
 * is enough for the winner to be done, and it bounds how late a job is if the winner is gone.
 */
const BACKOFF_MS = [1, 16] as const;

/** The same after losing the race for a place under max-active, ms: the worker that freed it usually refills it. */
const FULL_BACKOFF_MS = [1, 128] as const;

/** When to look at a queue next, and what is known about it. */
interface Plan {
  /** When to look, by the monotonic clock, ms. */
  at: number;
  /** Something falls due then. Otherwise the poll interval ends. */
  forDue: boolean;
  /** With `forDue`: the due time of that, ms by the wall clock. */
  head: number;
  /** The time of the last call, by the monotonic clock, ms. */
  asked: number;
  /**
   * The clock of the queue's server minus the monotonic clock, ms: each server has a clock of its own. Before the first
   * answer, each message asks for a look at once.
   */
  clockOffset: number;
  /** Due jobs wait for a limit of the queue: its rate, or its max-active. */
  held: 'limited' | 'full' | undefined;
  /** The last pause ended when a job of this queue fell due, and no drain call has answered since. */
  wokeForDue: boolean;
  /** How much later than due to wake, ms. 0 after winning a job: otherwise all drains would ask for each job. */
  backoff: number;
}

/** Decides when to look at which queue: when something falls due in it, and at the latest after a poll interval. */
export class PollTimer {
  readonly #watch: boolean;
  readonly #end: number;
  readonly #signal: AbortSignal | undefined;
  readonly #queues: readonly Queue[];
  readonly #plans = new Map<Queue, Plan>();
  readonly #listeners: readonly WakeListener[];
  /** From when on the wake channels of all partitions should be heard, by the monotonic clock, ms. */
  #heardFrom = 0;
  /** Ends the pause so that the times are looked at again. */
  #wake: (() => void) | undefined;

  /**
   * Times are by the monotonic clock, ms. Without `watch`, looks at a queue again only if it has more jobs, or a limit
   * holds them back.
   */
  constructor(queues: readonly Queue[], watch: boolean, end: number, signal: AbortSignal | undefined) {
    this.#watch = watch;
    this.#end = end;
    this.#signal = signal;
    this.#queues = queues;
    const heard = (queue: Queue, due: number) => {
      if (watch || this.#plan(queue).held) this.#untilDue(queue, due);
    };
    this.#listeners = [...new Set(queues.map(({ redis }) => redis))].map(
      (redis) => new WakeListener(redis, queues, heard),
    );
    signal?.addEventListener('abort', () => this.#wake?.());
  }

  #plan(queue: Queue): Plan {
    let plan = this.#plans.get(queue);
    if (!plan) {
      const clockOffset = Number.POSITIVE_INFINITY;
      plan = { at: 0, forDue: false, head: 0, asked: 0, clockOffset, held: undefined, wokeForDue: false, backoff: 0 };
      this.#plans.set(queue, plan);
    }
    return plan;
  }

  isTime(queue: Queue, earlyMs = 0): boolean {
    return this.#plan(queue).at - earlyMs <= performance.now();
  }

  /** Whether due jobs of some queue wait for its limits. */
  get holds(): boolean {
    return [...this.#plans.values()].some(({ held, at }) => held && at < Number.POSITIVE_INFINITY);
  }

  /** Whether something is due, as far as is known. */
  isDue(queue: Queue): boolean {
    return this.#plan(queue).forDue && this.isTime(queue);
  }

  /** Sorts partitions: unknown ones first, then by the due times of their first jobs. */
  sort(parts: readonly Queue[]): Queue[] {
    const head = (part: Queue) => {
      const plan = this.#plan(part);
      return plan.forDue ? plan.head : Number.NEGATIVE_INFINITY;
    };
    return parts.filter((part) => this.isTime(part)).sort((a, b) => head(a) - head(b) || 0);
  }

  lookAt(queue: Queue, at: number): void {
    Object.assign(this.#plan(queue), { at, forDue: false });
  }

  /** Jobs of a queue have ended. If it was full, there may be a place now. */
  ended(queue: Queue): void {
    if (this.#plan(queue).held !== 'full') return;
    this.lookAt(queue, 0);
    this.#wake?.();
  }

  /** Plans a look after the poll interval. Call this before each look: its answer may miss later messages. */
  planPoll(queue: Queue): void {
    const plan = this.#plan(queue);
    const now = performance.now();
    const until = Math.min(this.#end, now + this.#pollMs(queue));
    const at = this.#watch && now < this.#end ? until : Number.POSITIVE_INFINITY;
    Object.assign(plan, { at, forDue: false, asked: now });
  }

  /** Polls partitions as often as a queue until their wake channels are surely heard. */
  #pollMs(queue: Queue): number {
    return performance.now() < this.#heardFrom ? POLL_MS : queue.pollMs;
  }

  /** Learns from a drain reply the clock of its server, and whether another drain was faster. */
  learn(queue: Queue, { now, jobs, state }: Drained): void {
    const plan = this.#plan(queue);
    plan.clockOffset = now - performance.now();
    plan.held = state === 'limited' || state === 'full' ? state : undefined;
    if (jobs.length > 0) plan.backoff = 0;
    else if (plan.wokeForDue) {
      const [first, longest] = state === 'full' ? FULL_BACKOFF_MS : BACKOFF_MS;
      plan.backoff = Math.min(Math.max(2 * plan.backoff, first), longest * (0.5 + Math.random() / 2));
    }
    // A rate gives each drain its own time.
    if (state === 'limited') plan.backoff = 0;
    if (state !== 'full') plan.backoff = Math.min(plan.backoff, BACKOFF_MS[1]);
    plan.wokeForDue = false;
  }

  /** Plans the next look at a queue by the last answer about it. */
  plan(queue: Queue, { state, next = Number.POSITIVE_INFINITY, jobs, now }: Drained): void {
    if (state === 'more') {
      this.askBefore(queue);
      Object.assign(this.#plan(queue), { at: 0, forDue: queue.whole !== queue, head: next ?? 0 });
    } else if (state === 'full' && jobs.length > 0) {
      // When the consumer wants more, some of these have ended: their places are free.
      this.lookAt(queue, 0);
    } else if (this.#watch) this.#untilDue(queue, next);
    // Limits may be raised or removed at any time.
    else if (this.#plan(queue).held) this.#untilDue(queue, Math.min(next, now + POLL_MS));
  }

  /** Plans a look at the queues before this one, which has more. */
  askBefore(queue: Queue): void {
    // Queues with priority are asked again before the next batch of this one; of several partitions one, in turn.
    for (const one of this.#queues) {
      if (one === queue.whole) break;
      const waiting = one.partitions.filter((part) => !this.isDue(part) && !this.#plan(part).held);
      const [first] = waiting.sort((a, b) => this.#plan(a).asked - this.#plan(b).asked);
      if (first) Object.assign(this.#plan(first), { at: 0, forDue: false });
    }
  }

  #untilDue(queue: Queue, due: number): void {
    const plan = this.#plan(queue);
    const at = due - plan.clockOffset + plan.backoff;
    // False for NaN, too: the wake channel is open to other software.
    if (!(at < plan.at)) return;
    Object.assign(plan, { at, forDue: true, head: due });
    this.#wake?.();
  }

  /**
   * Waits until it is time to look at a queue without a late call, one of the `late` calls has ended, or the signal
   * aborts.
   */
  async wait(late: ReadonlyMap<Queue, Promise<unknown>> = new Map()): Promise<void> {
    this.listen();
    let ended = false;
    const end = () => {
      ended = true;
      this.#wake?.();
    };
    for (const call of late.values()) call.then(end, end);
    const latest = Math.min(this.#end, performance.now() + POLL_MS);
    while (!ended && !this.#signal?.aborted) {
      let soonest: Plan | undefined;
      for (const queue of this.#queues)
        for (const part of queue.partitions) {
          const plan = this.#plan(part);
          if (!late.has(part) && plan.at < (soonest?.at ?? latest)) soonest = plan;
        }
      const ms = (soonest?.at ?? latest) - performance.now();
      if (ms <= 0) {
        if (soonest) soonest.wokeForDue = soonest.forDue;
        return;
      }
      await new Promise<void>((resolve) => {
        // Rounded up because timers fire early, and asking too early means asking twice.
        const timer = setTimeout(resolve, Math.ceil(ms));
        this.#wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
      this.#wake = undefined;
    }
  }

  /** Subscribes to the wake channels of the queues. Does so again if a connection for it was lost. */
  listen(): void {
    for (const listener of this.#listeners) if (listener.listen()) this.#heardFrom = performance.now() + POLL_MS;
  }

  close(): void {
    for (const listener of this.#listeners) listener.close();
  }
}

/** Hears over one connection when jobs of its queues fall due. */
class WakeListener {
  readonly #redis: Queue['redis'];
  readonly #queues: readonly Queue[];
  /** By channel. Names are unique within one connection only. */
  #channels = new Map<string, Queue>();
  /** How many partitions all queues had when it began to listen. */
  #known = 0;
  readonly #heard: (queue: Queue, due: number) => void;
  #listener: ReturnType<Queue['redis']['listen']> | undefined;
  #listenAgain = 0;

  /** Calls `heard` with the time in each message of a queue, ms; NaN if it is no number. */
  constructor(redis: Queue['redis'], queues: readonly Queue[], heard: (queue: Queue, due: number) => void) {
    this.#redis = redis;
    this.#queues = queues.filter((queue) => queue.redis === redis);
    this.#heard = heard;
  }

  /** Listens to all partitions that are known by now. Returns whether it has begun to do so. */
  listen(): boolean {
    const known = this.#queues.reduce((sum, { partitions }) => sum + partitions.length, 0);
    const isNew = known !== this.#known;
    if (!isNew && (this.#listener?.alive() || performance.now() < this.#listenAgain)) return false;
    this.#listenAgain = performance.now() + POLL_MS;
    this.#known = known;
    if (isNew)
      this.#channels = new Map(
        this.#queues.flatMap((queue) => queue.partitions.map((part) => [part.wakeChannel, part])),
      );
    // A part of the old listener may be alive, on a server that no longer owns its queue.
    this.#listener?.close();
    this.#listener = this.#redis.listen([...this.#channels.keys()], (channel, message) => {
      const queue = this.#channels.get(channel);
      if (queue) this.#heard(queue, Number(message));
    });
    return true;
  }

  close(): void {
    this.#listener?.close();
  }
}
