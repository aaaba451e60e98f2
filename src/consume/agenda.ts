import { isDelayqError, isPassing } from '../model/errors.js';
import type { Clock } from '../model/time.js';
import type { Queue } from '../queue/queue.js';
import { PART_POLL_MS, POLL_MS } from '../store/keys.js';
import type { TakenJobs } from './leases.js';
import type { Outages } from './outages.js';
import { Source } from './source.js';
import type { PollOptions, TakeAnswer, TakeCall, Takes } from './takes.js';

/**
 * How long one of several queues may hold up those after it, ms. Far longer than an answer takes, even from another
 * continent, so the order of priority holds; a quarter of the poll interval, so others are asked in time.
 */
const PATIENCE_MS = POLL_MS / 4;

/** The same while another queue is late, ms: many queues may be on its server. Long enough for a nearby server. */
const SHORT_PATIENCE_MS = 25;

/** The same if all queues are on one server, ms: those after it would hardly get their answers sooner. */
const SHARED_PATIENCE_MS = 2_000;

/**
 * The most jobs of one call to one of several partitions: they come before older ones of the others. With 50, a job
 * costs Redis half as much again as in a queue without partitions; with 100, less than a quarter.
 */
const PART_BATCH = 100;

/** A look at one partition includes those whose time comes within this, ms: the process wakes up once for all. */
const EARLY_MS = PART_POLL_MS / 2;

/** What a consumer does next: deals with jobs, or waits, by the clock, ms, until a call ends or a message comes. */
export type Step = { readonly taken: TakenJobs } | { readonly until: number };

/** What an {@link Agenda} works with. */
interface AgendaParts {
  readonly clock: Clock;
  readonly takes: Takes;
  readonly outages: Outages;
  /** Begins to listen to the wake channel of a queue or partition. */
  readonly listen: (queue: Queue) => void;
  /** From when on all these channels are surely heard, by the clock, ms. */
  readonly heardFrom: () => number;
}

/** A queue, or one of its partitions, and its open calls, oldest first: two at most, with `ahead`. */
interface Entry {
  readonly queue: Queue;
  readonly source: Source;
  readonly calls: TakeCall[];
  /** The last answer promised more jobs. */
  hasMore: boolean;
  /** Its wake channel is listened to. */
  isHeard: boolean;
}

/**
 * What one consumer of some queues does next. It waits for nothing itself: {@link Agenda.next} decides by what has
 * happened so far and by the clock. docs/internals/consume.md has its states.
 */
export class Agenda {
  readonly #queues: readonly Queue[];
  readonly #options: PollOptions;
  readonly #parts: AgendaParts;
  /** When the run ends, by the clock, ms. */
  readonly #end: number;
  readonly #entries = new Map<Queue, Entry>();
  #timeIsOver = false;
  /** Why the run must end. */
  failure: { readonly queue: Queue; readonly error: unknown } | undefined;

  constructor(queues: readonly Queue[], options: PollOptions, parts: AgendaParts) {
    this.#queues = queues;
    this.#options = options;
    this.#parts = parts;
    this.#end = parts.clock.now() + (options.forMs ?? Number.POSITIVE_INFINITY);
    // One subscription for all.
    for (const { partitions } of queues) for (const part of partitions) this.#entryOf(part);
  }

  /** The calls whose outcomes it has not dealt with. */
  get open(): TakeCall[] {
    return [...this.#entries.values()].flatMap(({ calls }) => calls);
  }

  /** The time of the run is over. */
  get timeIsOver(): boolean {
    return this.#timeIsOver;
  }

  sourceOf(queue: Queue): Source {
    return this.#entryOf(queue).source;
  }

  /** Jobs of a queue have ended. Returns whether that frees a place for another. */
  ended(queue: Queue): boolean {
    const { source } = this.#entryOf(queue);
    if (source.held !== 'full') return false;
    source.lookAt(0);
    return true;
  }

  /**
   * Decides what to do now; undefined: the run is over. Begins with the first queue each time, and sends what calls it
   * is time for. While a queue has more jobs, those before it are asked again before each batch.
   */
  next(): Step | undefined {
    const { watch, onWait } = this.#options;
    for (;;) {
      const step = this.#visitAll();
      if (step === 'again') continue;
      if (step) return step;
      this.#timeIsOver ||= this.#parts.clock.now() >= this.#end;
      // It may stop the run.
      onWait?.();
      const entries = this.#queues.flatMap(({ partitions }) => partitions.map((part) => this.#entryOf(part)));
      const waits = watch || entries.some(({ source }) => source.held && source.at < Number.POSITIVE_INFINITY);
      const goesOn = waits && !this.#isOver;
      if (!goesOn) return this.open.length > 0 ? { until: Number.POSITIVE_INFINITY } : undefined;
      for (const entry of entries) this.#listenTo(entry);
      const times = entries.filter(({ calls }) => calls.length === 0).map(({ source }) => source.at);
      return { until: times.reduce((a, b) => Math.min(a, b), this.#end) };
    }
  }

  /** No more calls are sent. */
  get #isOver(): boolean {
    const { outages, takes } = this.#parts;
    return this.failure !== undefined || this.#timeIsOver || outages.all || takes.left === 0 || this.#isStopped;
  }

  get #isStopped(): boolean {
    return this.#options.signal?.aborted ?? false;
  }

  #entryOf(queue: Queue): Entry {
    const known = this.#entries.get(queue);
    if (known) return known;
    const { watch = false } = this.#options;
    const source = new Source(this.#parts.clock, watch);
    const entry: Entry = { queue, source, calls: [], hasMore: false, isHeard: false };
    this.#entries.set(queue, entry);
    // The answer to the first call may miss later messages.
    if (watch) this.#listenTo(entry);
    return entry;
  }

  #listenTo(entry: Entry): void {
    if (!entry.isHeard) this.#parts.listen(entry.queue);
    entry.isHeard = true;
  }

  /** The partitions of a queue in the order in which to ask them: those with open calls, then by their oldest jobs. */
  #inOrder(queue: Queue): Entry[] {
    const { partitions } = queue;
    if (partitions.length === 1) return [this.#entryOf(queue)];
    this.#parts.outages.drained(queue);
    // The queue was asked before its partitions were known.
    const entries = [queue, ...partitions].map((part) => this.#entryOf(part));
    const asked = entries.filter(({ calls }) => calls.length > 0);
    const free = entries.filter(({ queue: part, source, calls }) => part !== queue && !calls[0] && source.isTime());
    return [...asked, ...free.sort((a, b) => a.source.head - b.source.head || 0)];
  }

  /** Asks the queues in turn until there are jobs, or one has to be waited for. */
  #visitAll(): Step | 'again' | undefined {
    for (const queue of this.#queues)
      for (const entry of this.#inOrder(queue)) {
        const step = this.#visit(entry);
        if (step) return step;
      }
    return undefined;
  }

  /** Returns what to do before the queues after this one are asked; `again`: begin with the first one. */
  #visit(entry: Entry): Step | 'again' | undefined {
    const { clock } = this.#parts;
    const { queue, calls } = entry;
    this.#askInTime(entry);
    const [call] = calls;
    if (!call) return undefined;
    // Partitions are asked all at once.
    if (call.isLook)
      for (const part of queue.whole.partitions) {
        const other = this.#entryOf(part);
        if (!other.source.isDue) this.#askInTime(other, EARLY_MS);
      }
    if (this.#options.ahead) this.#askAhead(entry, call);
    if (!call.outcome) {
      if (call.isLate) return undefined;
      call.waitUntil ??= this.#patienceEnd(call);
      if (clock.now() < call.waitUntil) return { until: call.waitUntil };
      call.isLate = true;
      return undefined;
    }
    calls.shift();
    call.isDone = true;
    if ('error' in call.outcome) {
      this.#failed(entry, call.outcome.error);
      return calls.length > 0 ? 'again' : undefined;
    }
    this.#answered(entry, call.outcome);
    const { taken } = call.outcome;
    const hasJobs = taken.jobs.length > 0;
    if (hasJobs || entry.hasMore) this.#timeIsOver ||= clock.now() >= this.#end;
    if (hasJobs) return { taken };
    return entry.hasMore || calls.length > 0 ? 'again' : undefined;
  }

  #ask(entry: Entry): void {
    const { queue, source, calls } = entry;
    const { outages, takes } = this.#parts;
    const isWhole = queue.whole === queue;
    const max = !isWhole && !source.isDue ? 0 : outages.isInTrouble(queue) ? 1 : isWhole ? undefined : PART_BATCH;
    source.sent(this.#nextPoll(queue));
    calls.push(takes.send(queue, max));
  }

  /** Calls a queue if its time has come, or comes within `earlyMs`. */
  #askInTime(entry: Entry, earlyMs = 0): void {
    const { queue, source, calls } = entry;
    if (calls.length > 0 || this.#isOver || !source.isTime(earlyMs)) return;
    if (this.#parts.outages.has(queue)) source.sent(this.#nextPoll(queue));
    else this.#ask(entry);
  }

  /** Asks ahead, before the answer to `call` has come: the partition with the next oldest job, or the same again. */
  #askAhead(entry: Entry, call: TakeCall): void {
    const { clock, outages } = this.#parts;
    const [first] = this.#queues;
    if (entry.queue.whole !== first || call.isLate || call.isLook) return;
    if (this.#isOver || clock.now() >= this.#end) return;
    const parts = first.partitions.map((part) => this.#entryOf(part));
    if (parts.reduce((sum, { calls }) => sum + calls.filter(({ isLate }) => !isLate).length, 0) > 1) return;
    const next =
      parts.length > 1 && this.#inOrder(first).find(({ calls, source }) => calls.length === 0 && source.isDue);
    if (next && !outages.has(next.queue)) this.#ask(next);
    else if (entry.hasMore && entry.calls.length === 1) this.#ask(entry);
  }

  /** When a queue is polled next if nothing is learned until then. Never after the end, and only with `watch`. */
  #nextPoll(queue: Queue): number {
    const { clock, heardFrom } = this.#parts;
    const now = clock.now();
    if (!this.#options.watch || now >= this.#end) return Number.POSITIVE_INFINITY;
    // Partitions are polled as often as a queue until their wake channels are surely heard.
    return Math.min(this.#end, now + (now < heardFrom() ? POLL_MS : queue.pollMs));
  }

  #isAlone({ whole }: Queue): boolean {
    return this.#queues.length === 1 && whole.partitions.length === 1;
  }

  #patienceEnd({ queue, isLook, sentAt }: TakeCall): number {
    if (this.#isAlone(queue)) return Number.POSITIVE_INFINITY;
    const { clock, outages } = this.#parts;
    const now = clock.now();
    if (outages.isInTrouble(queue)) return now;
    const ms = this.open.some(({ isLate }) => isLate)
      ? SHORT_PATIENCE_MS
      : this.#queues.every(({ redis }) => redis === queue.redis && !redis.sharded)
        ? SHARED_PATIENCE_MS
        : PATIENCE_MS;
    return (isLook ? sentAt : now) + ms;
  }

  #answered(entry: Entry, { drained }: TakeAnswer): void {
    const { queue, source, calls } = entry;
    this.#parts.outages.drained(queue);
    entry.hasMore = drained.state === 'more';
    // With a call in flight, its answer will say when to look next.
    source.answered(drained, calls.length === 0);
    // When the consumer wants more, some of these have ended: their places are free.
    if (drained.state === 'full' && drained.jobs.length > 0 && calls.length === 0) source.lookAt(0);
    const others = queue === queue.whole ? [] : queue.whole.partitions;
    const goesOn = drained.state === 'idle' && others.some((part) => this.sourceOf(part).isDue);
    if (goesOn || (entry.hasMore && calls.length === 0)) this.#askBefore(queue);
    this.#options.onDrained?.(queue.whole, goesOn ? { ...drained, state: 'more' } : drained);
  }

  /** Plans a look at each queue before this one, which has more; of several partitions at one, in turn. */
  #askBefore({ whole }: Queue): void {
    for (const queue of this.#queues) {
      if (queue === whole) break;
      const idle = queue.partitions.map((part) => this.sourceOf(part)).filter(({ isDue, held }) => !isDue && !held);
      idle.sort((a, b) => a.askedAt - b.askedAt)[0]?.lookAt(0);
    }
  }

  #failed(entry: Entry, error: unknown): void {
    const { queue, source } = entry;
    const { clock, outages } = this.#parts;
    entry.hasMore = false;
    const { watch, stream, limit } = this.#options;
    const isInDoubt = isDelayqError(error, 'unknown');
    // Only one queue goes into a stream: no other could go on. Nobody knows how many jobs a call in doubt has moved there,
    // so another one might exceed the limit.
    const isEnd = stream && (!isPassing(error) || (isInDoubt && limit !== undefined));
    if (isEnd || (isInDoubt && this.#isStopped)) this.failure ??= { queue, error };
    else if (watch && isPassing(error)) source.lookAt(clock.now() + outages.wait(queue, error));
    else if (isDelayqError(error) && (!isPassing(error) || !this.#isAlone(queue))) outages.failed(queue, error);
    else this.failure ??= { queue, error };
  }
}
