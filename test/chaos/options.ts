const { DELAYQ_CHAOS_SEED, DELAYQ_CHAOS_MINUTES, DELAYQ_CHAOS_REPEAT } = process.env;

/** What chance begins with. */
export const seed = Number(DELAYQ_CHAOS_SEED ?? 1);

/** How long the storm of everything lasts. */
export const minutes = Number(DELAYQ_CHAOS_MINUTES ?? 1);

/** How often each scenario is gone through, each time with another seed. */
export const repeat = Number(DELAYQ_CHAOS_REPEAT ?? 1);
