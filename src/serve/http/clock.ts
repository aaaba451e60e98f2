/** What decides by time asks it. A test has one of its own, and so it need not wait. */
export interface Clock {
  /** A time that never goes back, ms. */
  now(): number;
  /** Calls `act` after `ms`, unless the process has ended by then. Returns what calls that off. */
  after(ms: number, act: () => void): () => void;
}

/** The time of this machine. */
export const CLOCK: Clock = {
  now: () => performance.now(),
  after(ms, act) {
    const timer = setTimeout(act, ms).unref();
    return () => clearTimeout(timer);
  },
};
