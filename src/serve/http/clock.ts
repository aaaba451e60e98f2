/** The clock of all decisions by time. Tests replace it, so that they need not wait. */
export interface Clock {
  /** A time that never goes back, ms. */
  now(): number;
  /** Calls `act` after `ms`, unless the process has ended by then. Returns a function that cancels it. */
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
