const { DELAYQ_CHAOS_SEED, DELAYQ_CHAOS_MINUTES, DELAYQ_CHAOS_REPEAT, DELAYQ_CHAOS_JOBS } = process.env;

/** The seed of all random choices. */
export const seed = Number(DELAYQ_CHAOS_SEED ?? 1);

/** How long the storm with all faults lasts. */
export const minutes = Number(DELAYQ_CHAOS_MINUTES ?? 1);

/** In runs of less than a minute one of `of` cases, which ones by the seed; else all. */
export const sampled = <T>(cases: readonly T[], of: number): T[] =>
  cases.filter((_, n) => minutes >= 1 || n % of === seed % of);

/** How often each scenario runs, each time with another seed. */
export const repeat = Number(DELAYQ_CHAOS_REPEAT ?? 1);

/** How many jobs wait in the large queue that grows. 0: that is left out. */
export const jobs = Number(DELAYQ_CHAOS_JOBS ?? 0);
