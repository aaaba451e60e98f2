import { judge, type Operation, type Unseen } from './history.js';

/** Ms since 1970, with fractions. */
export const now = () => performance.timeOrigin + performance.now();

/** How long an enqueue waits before it is repeated, ms. */
const REPEATED_MS = 100;

/** A call that took longer than this, ms, may have lost a reply although nothing had struck. */
const LOST_MS = 2_000;

/** About the time when a master dies, or comes back: what it did then its replica may not have, ms. */
const FORGETS_MS = 200;

/** How long all histories may take to be judged, ms. */
const JUDGED_MS = 120_000;

/** A call as it is recorded; `replicated`: it was confirmed only when all replicas had it. */
export interface Recorded extends Operation {
  readonly replicated?: boolean | undefined;
}

/** What was asked about all ids of a queue, and what was answered. */
export class Histories {
  readonly #of = new Map<string, Recorded[]>();
  readonly #unseen: Unseen[] = [];
  readonly #forgot: [number, number][] = [];
  #versions = 0;

  /** A number that no other payload has. */
  get version(): number {
    this.#versions += 1;
    return this.#versions;
  }

  record(id: string, operation: Recorded): void {
    const history = this.#of.get(id);
    if (history) history.push(operation);
    else this.#of.set(id, [operation]);
  }

  /** From now on, somebody may have taken jobs that nobody saw, each for at least `leaseMs`. */
  unseen(from: number, leaseMs = 0): void {
    this.#unseen.push({ from, leaseMs });
  }

  /** A server has died since, or come back: what it did may be forgotten, and its replies were lost. */
  forgets(since: number): void {
    this.#forgot.push([since - FORGETS_MS, now() + FORGETS_MS]);
  }

  /** Judges the histories of all ids. */
  judge(): { readonly figures: Record<string, number>; readonly violations: string[] } {
    const violations: string[] = [];
    let [calls, unknown, longest] = [0, 0, 0];
    let left = this.#of.size;
    const end = now() + JUDGED_MS;
    for (const [id, history] of this.#of) {
      calls += history.length;
      unknown += history.filter(({ act, answer }) => answer === undefined && act !== 'ack').length;
      longest = Math.max(longest, history.length);
      if (now() > end) continue;
      left -= 1;
      const wrong = judge(history.map(this.#qualified, this), this.#unseen);
      if (wrong) violations.push(`${id}: ${wrong}`);
    }
    if (left > 0) violations.push(`no time was left for the histories of ${left} ids`);
    return {
      figures: { ids: this.#of.size, calls, 'most of an id': longest, 'of unknown outcome': unknown },
      violations,
    };
  }

  #qualified(operation: Recorded): Operation {
    const { act, from, to, replicated } = operation;
    const within = (all: readonly [number, number][]) => all.some(([begin, end]) => from <= end && to >= begin);
    const isEnqueue = act === 'keep' || act === 'replace';
    const took = to - from;
    const isStruck = within(this.#forgot);
    const repeated = took > LOST_MS || (isStruck && (!isEnqueue || took > REPEATED_MS));
    return { ...operation, repeated, forgettable: !replicated && isStruck };
  }
}
