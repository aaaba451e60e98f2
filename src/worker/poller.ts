import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import type { Queue } from '../queue/queue.js';
import type { Drained } from '../store/jobs.js';
import { PART_POLL_MS, POLL_MS } from '../store/keys.js';
import { type DrainAnswer, type DrainCall, DrainCalls, type TakeOptions } from './drain-calls.js';
import type { TakenJobs } from './leases.js';
import { Outages } from './outages.js';
import { PollTimer } from './poll-timer.js';
import type { OnTrouble } from './trouble.js';

/** How to poll queues. Durations are ms. */
export interface PollOptions extends TakeOptions {
  /** With `watch`: stop after this time. */
  readonly forMs?: number | undefined;
  /** Stops polling. Jobs that are already taken are still yielded. */
  readonly signal?: AbortSignal | undefined;
  /** Called when one of several queues is in trouble; with `watch` also when Redis is, and again when that is over. */
  readonly onTrouble?: OnTrouble | undefined;
  /**
   * While there are more jobs, send the next call before the answer to the last one has arrived, so that neither Redis
   * nor the consumer waits for the other. After a stop or an error, read on until the end: jobs in flight are still
   * yielded. Breaking out of the loop gives them back.
   */
  readonly ahead?: boolean | undefined;
  /** Called with the answer of each drain call. */
  readonly onDrained?: ((queue: Queue, drained: Drained) => void) | undefined;
  /** Called before each wait: no more jobs come for now, even if the last answer promised some. */
  readonly onWait?: (() => void) | undefined;
}

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

/**
 * Yields due jobs of `queues` until all that were due at the start are taken; with `watch`, until stopped. While a
 * queue has more jobs, tries those before it again before each batch. Otherwise a queue is looked at when its next job
 * falls due, and once in each poll interval. Delivery relies on this alone; the wake channel only shortens the wait.
 *
 * Partitions replace their queue as soon as they are known: asks all of them at once when their next jobs are due, then
 * takes jobs from the one with the oldest due job.
 *
 * A queue whose server does not answer holds up the others once, for {@link PATIENCE_MS}, or if all are on that server
 * for {@link SHARED_PATIENCE_MS}; further ones meanwhile for {@link SHORT_PATIENCE_MS}. Its late answer still counts.
 * Until it recovers, each call asks for one job: all jobs that a call may bring count against the limit.
 *
 * With `watch`, errors that pass are waited out; the last one is thrown if the time ends before it has passed. A queue
 * that fails with another error, or without `watch` with any, is left out and, with `watch`, tried again later. Its
 * error is thrown at the end, or as soon as no other queue is left.
 *
 * `next(n)` says that n of the jobs were given back: they do not count against the limit.
 */
export async function* poll(
  queues: readonly Queue[],
  options: PollOptions = {},
): AsyncGenerator<TakenJobs, void, number | undefined> {
  const { watch = false, signal } = options;
  const end = performance.now() + (options.forMs ?? Number.POSITIVE_INFINITY);
  const timer = new PollTimer(queues, watch, end, signal);
  const calls = new DrainCalls(options);
  const outages = options.leases?.outages ?? new Outages();
  outages.begin(queues, options);
  if (options.leases) options.leases.onSettled = (queue) => timer.ended(queue);
  /** The open calls of each queue, oldest first: two at most, with `ahead`. */
  const inFlight = new Map<Queue, DrainCall[]>();
  const sentTo = (queue: Queue): DrainCall[] => {
    const sent = inFlight.get(queue) ?? [];
    inFlight.set(queue, sent);
    return sent;
  };
  const known = () => queues.reduce((sum, { partitions }) => sum + partitions.length, 0);
  const isAlone = (queue: Queue) => queues.length === 1 && queue.whole.partitions.length === 1;
  const patienceWith = (queue: Queue, call: DrainCall) => {
    if (isAlone(queue)) return Number.POSITIVE_INFINITY;
    if (outages.isInTrouble(queue)) return 0;
    const ms = [...inFlight.values()].some(([call]) => call?.isLate)
      ? SHORT_PATIENCE_MS
      : queues.every(({ redis }) => redis === queue.redis && !redis.sharded)
        ? SHARED_PATIENCE_MS
        : PATIENCE_MS;
    // Partitions are asked all at once.
    return call.isLook ? Math.max(0, call.sentAt + ms - performance.now()) : ms;
  };
  const [first] = queues;
  /** Queues whose last answer promised more jobs. */
  const more = new Set<Queue>();
  let failure: { readonly error: unknown } | undefined;
  let timeIsOver = false;
  const over = () => failure !== undefined || timeIsOver || outages.all || calls.left === 0 || signal?.aborted;
  const ask = (queue: Queue) => {
    const isWhole = queue.whole === queue;
    const max = !isWhole && !timer.isDue(queue) ? 0 : outages.isInTrouble(queue) ? 1 : isWhole ? undefined : PART_BATCH;
    timer.planPoll(queue);
    sentTo(queue).push(calls.send(queue, max));
  };
  /** Calls a queue if its time has come, or comes within `earlyMs`. */
  const askInTime = (queue: Queue, earlyMs = 0) => {
    if (sentTo(queue).length > 0 || over() || !timer.isTime(queue, earlyMs)) return;
    if (outages.has(queue)) timer.planPoll(queue);
    else ask(queue);
  };
  /** The partitions of a queue in polling order; those with open calls first. */
  const inOrder = (queue: Queue): readonly Queue[] => {
    const { partitions } = queue;
    if (partitions.length === 1) return partitions;
    outages.drained(queue);
    // It was asked before its partitions were known.
    const asked = [queue, ...partitions].filter((part) => sentTo(part).length > 0);
    return [...asked, ...timer.sort(partitions.filter((part) => sentTo(part).length === 0))];
  };
  /** Asks ahead, before the answer to `call` has come: the partition with the next oldest job, or the same again. */
  const askAhead = (queue: Queue, call: DrainCall) => {
    if (queue.whole !== first || call.isLate || call.isLook || over() || performance.now() >= end) return;
    const { partitions } = first;
    if (partitions.reduce((sum, part) => sum + sentTo(part).filter(({ isLate }) => !isLate).length, 0) > 1) return;
    const next = partitions.length > 1 && inOrder(first).find((part) => sentTo(part).length === 0 && timer.isDue(part));
    if (next && !outages.has(next)) ask(next);
    else if (more.has(queue) && sentTo(queue).length === 1) ask(queue);
  };
  const failed = (queue: Queue, error: unknown) => {
    if (signal?.aborted && isDelayqError(error, 'unknown')) failure ??= { error: inDoubt(queue, error, options) };
    else if (watch && isPassing(error)) timer.lookAt(queue, performance.now() + outages.wait(queue, error));
    else if (isDelayqError(error) && (!isPassing(error) || !isAlone(queue))) outages.failed(queue, error);
    else failure ??= { error };
  };
  if (watch) timer.listen();
  if (!over()) calls.begin(queues);
  try {
    for (;;) {
      let found = false;
      const before = known();
      for (const queue of queues.flatMap(inOrder)) {
        const sent = sentTo(queue);
        askInTime(queue);
        const [call] = sent;
        if (!call) continue;
        if (call.isLook) for (const part of queue.whole.partitions) if (!timer.isDue(part)) askInTime(part, EARLY_MS);
        if (options.ahead) askAhead(queue, call);
        let answer: DrainAnswer | undefined;
        try {
          answer = await calls.answerTo(call, patienceWith(queue, call));
          if (!answer) continue;
          sent.shift();
        } catch (error) {
          sent.shift();
          failed(queue, error);
          more.delete(queue);
          if (sent.length > 0) break;
          continue;
        }
        outages.drained(queue);
        const { drained, taken } = answer;
        if (drained.state === 'more') more.add(queue);
        else more.delete(queue);
        timer.learn(queue, drained);
        // With a call in flight, its answer will say when to look next.
        if (sent.length === 0) timer.plan(queue, drained);
        const others = queue === queue.whole ? [] : queue.whole.partitions;
        const goesOn = drained.state === 'idle' && others.some((part) => timer.isDue(part));
        if (goesOn) timer.askBefore(queue);
        options.onDrained?.(queue.whole, goesOn ? { ...drained, state: 'more' } : drained);
        const givenBack = taken.jobs.length > 0 ? yield taken : 0;
        calls.left += givenBack ?? 0;
        found = taken.jobs.length > 0 || drained.state === 'more';
        if (found || sent.length > 0) break;
      }
      // An answer revealed partitions that have not been asked yet.
      found ||= known() > before;
      const awaited = [...inFlight].flatMap(([queue, [call]]) => (call ? [{ queue, call }] : []));
      if (awaited.some(({ call }) => !call.isLate) || (found && performance.now() < end)) continue;
      timeIsOver ||= performance.now() >= end;
      const late = new Map(awaited.map(({ queue, call }) => [queue, call.answer]));
      if (late.size > 0 || watch || timer.holds) options.onWait?.();
      if ((watch || timer.holds) && !over()) await timer.wait(late);
      else if (late.size > 0) await Promise.race(late.values()).catch(() => {});
      else break;
    }
  } finally {
    for (const call of [...inFlight.values()].flat()) calls.abandon(call);
    timer.close();
    outages.end(timeIsOver && !signal?.aborted);
  }
  if (failure) throw failure.error;
  if (outages.error) throw outages.error;
}

/** The error for a drain call that may have taken jobs for a consumer that has stopped. */
function inDoubt({ name }: Queue, error: DelayqError, { leaseMs }: PollOptions): DelayqError {
  const next =
    leaseMs === 0
      ? 'jobs that this call took were removed from Redis as it took them, and are lost'
      : 'jobs that this call took are delivered again when their leases expire';
  const what = `stopped before Redis answered the last call for jobs of ${name}`;
  return new DelayqError('unknown', what, { why: error.why, next, cause: error });
}
