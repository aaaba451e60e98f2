import { checkDue, checkMs, keysOf } from './validate.js';

/** Default time between two jobs, ms: due together, but in order. Exact in Redis's scores until 2248. */
const DEFAULT_STEP_MS = 2 ** -10;

/** Longest time between two jobs, ms: ten years. */
const LONGEST_STEP_MS = 10 * 365 * 86_400_000;

/** When jobs that follow one another are due. */
interface SpreadOptions {
  readonly in?: number;
  readonly at?: number;
  readonly stepMs?: number;
}

const checkOptions = keysOf<SpreadOptions>('a spread', { in: true, at: true, stepMs: true });

/** Due times for jobs that follow one another. Each call that uses it continues where the call before it stopped. */
export class Spread {
  /** Time from each job to the next, ms. */
  readonly stepMs: number;
  #next: string;

  /**
   * The first job is due `in` ms after the first call (by Redis's clock; default 0) or `at` ms since 1970, each further
   * job `stepMs` later. Without `stepMs` they fall due together, in order. Throws `usage` if both `in` and `at` are
   * given, or if a value is out of range.
   */
  constructor(options: SpreadOptions = {}) {
    const { in: inMs, at, stepMs = DEFAULT_STEP_MS } = checkOptions(options);
    checkDue({ in: inMs, at });
    this.stepMs = checkMs(Math.min(stepMs, LONGEST_STEP_MS), 'stepMs');
    this.#next = at === undefined ? `+${checkMs(inMs ?? 0, 'in')}` : String(at);
  }

  /** Due time of the next job, in the form that the scripts read: `+ms` from now, or ms since 1970. @internal */
  get next(): string {
    return this.#next;
  }

  /** Continues at `next`, the due time that a script returned for the job after its last one. @internal */
  advance(next: string): void {
    this.#next = next;
  }
}
