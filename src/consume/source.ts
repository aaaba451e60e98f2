import type { Clock } from '../model/time.js';
import { countOf, type Drained } from '../store/jobs.js';
import { POLL_MS } from '../store/keys.js';

/**
 * Backoff after losing the race for a job: the first delay and the longest, ms. Each lost race doubles the delay. This
 * is enough for the winner to be done, and it bounds how late a job is if the winner is gone.
 */
const BACKOFF_MS = [1, 16] as const;

/** The same after losing the race for a place under max-active, ms: the worker that freed it usually refills it. */
const FULL_BACKOFF_MS = [1, 128] as const;

/**
 * How long to wait for the groups of a stream, ms: at first, and at most. Each look in vain doubles it. So a consumer
 * that acks all the time gets its next jobs soon, and one that is dead costs one call per poll interval.
 */
const UNACKED_BACKOFF_MS = [16, POLL_MS] as const;

/**
 * Decides when to look at a queue, or at one of its partitions: when something falls due in it, and at the latest after
 * a poll interval. Answers and wake messages bring the next look forward. Times are by the clock, ms.
 */
export class Source {
  readonly #clock: Clock;
  readonly #watch: boolean;
  /** When to look next. */
  at = 0;
  /** Why: a poll interval ends, something falls due, or the last answer said that more is due. */
  #why: 'poll' | 'due' | 'more' = 'poll';
  /** Unless the reason is a poll: the due time of that, by the clock of the server. */
  #head = 0;
  /** When the last look was sent. */
  askedAt = 0;
  /** The last look was sent because something fell due, and has no answer yet. */
  #askedForDue = false;
  /**
   * The clock of the server minus that of this process: each server has a clock of its own. Before the first answer,
   * each message asks for a look at once.
   */
  #clockOffset = Number.POSITIVE_INFINITY;
  /** Due jobs wait for a limit of the queue: its rate, or its max-active. */
  held: 'limited' | 'full' | undefined;
  /**
   * No message brings a look forward before this. The rate allows nothing until then: asking early gets a later turn, and
   * loses what the rate allows. Or the groups of a stream get some time to ack.
   */
  #turnAt = 0;
  /** How much later than due to look. 0 after winning a job: otherwise all consumers would ask for each job. */
  #backoff = 0;

  /** Without `watch`, something that falls due later is of interest only while a limit holds due jobs back. */
  constructor(clock: Clock, watch = true) {
    this.#clock = clock;
    this.#watch = watch;
  }

  /** Whether it is time to look, or will be within `earlyMs`. */
  isTime(earlyMs = 0): boolean {
    return this.at - earlyMs <= this.#clock.now();
  }

  /** Whether something is due, as far as is known. */
  get isDue(): boolean {
    return this.#why !== 'poll' && this.isTime();
  }

  /** The due time of the first job, by the clock of the server; lower than all others while it is not known. */
  get head(): number {
    return this.#why === 'poll' ? Number.NEGATIVE_INFINITY : this.#head;
  }

  /** Whether the rate of the queue allows nothing yet: to ask now would lose the turn. */
  get awaitsTurn(): boolean {
    return this.#clock.now() < this.#turnAt;
  }

  /** Plans a look at `at`, or at the turn. */
  lookAt(at: number): void {
    this.at = Math.max(at, this.#turnAt);
    this.#why = 'poll';
  }

  /** A look is sent. Unless something else is learned, the next one is at `next`: the answer may miss later messages. */
  sent(next: number): void {
    this.#askedForDue = this.#why === 'due';
    this.askedAt = this.#clock.now();
    this.lookAt(next);
  }

  /** Learns from an answer. `plans`: no other call is in flight, so this one decides about the next look. */
  answered(drained: Drained, plans = true): void {
    const { now, state, next = Number.POSITIVE_INFINITY } = drained;
    const took = countOf(drained) > 0;
    this.#clockOffset = now - this.#clock.now();
    this.held = state === 'limited' || state === 'full' ? state : undefined;
    // A rate gives each consumer its own time.
    if (state === 'unacked') {
      const [first, longest] = UNACKED_BACKOFF_MS;
      this.#backoff = took ? first : Math.min(Math.max(2 * this.#backoff, first), longest);
    } else if (took || state === 'limited') this.#backoff = 0;
    else if (this.#askedForDue) {
      const [first, longest] = state === 'full' ? FULL_BACKOFF_MS : BACKOFF_MS;
      this.#backoff = Math.min(Math.max(2 * this.#backoff, first), longest * (0.5 + Math.random() / 2));
    }
    if (state !== 'full' && state !== 'unacked') this.#backoff = Math.min(this.#backoff, BACKOFF_MS[1]);
    this.#askedForDue = false;
    if (!plans) return;
    // Whatever was heard during the call: nothing can be had before the turn.
    const isTurn = state === 'limited' || state === 'unacked';
    if (isTurn) this.lookAt(this.#clock.now() + POLL_MS);
    if (state === 'more') {
      this.at = 0;
      this.#why = 'more';
      this.#head = Number.isFinite(next) ? next : 0;
    } else if (this.#watch) this.#lookWhenDue(next);
    // Limits may be raised or removed at any time.
    else if (this.held) this.#lookWhenDue(Math.min(next, now + POLL_MS));
    this.#turnAt = isTurn ? this.at : 0;
  }

  /**
   * A wake message said that something is due at `due`, by the clock of the server; NaN if the message is no time.
   * Returns whether the next look is earlier now. No message brings a turn forward.
   */
  heard(due: number): boolean {
    return (this.#watch || this.held !== undefined) && !this.awaitsTurn && this.#lookWhenDue(due);
  }

  #lookWhenDue(due: number): boolean {
    const at = due - this.#clockOffset + this.#backoff;
    // False for NaN, too: the wake channel is open to other software.
    if (!(at < this.at)) return false;
    this.at = at;
    this.#why = 'due';
    this.#head = due;
    return true;
  }
}
