// Contenders take turns, round by round, so that the load of the machine affects all alike. Medians count.

/** @param {number[]} samples */
export function median(samples) {
  return quantile(samples, 0.5);
}

/** @param {number[]} samples @param {number} q from 0 to 1 */
export function quantile(samples, q) {
  const sorted = [...samples].sort((a, b) => a - b);
  const place = (sorted.length - 1) * q;
  const [low, high] = [sorted[Math.floor(place)], sorted[Math.ceil(place)]];
  return low + (high - low) * (place % 1);
}

/**
 * Runs each contender once per round. Returns the results of each by name. Skips those that are undefined.
 *
 * @template T
 * @param {number} rounds
 * @param {Record<string, undefined | (() => Promise<T>)>} contenders
 * @returns {Promise<Record<string, T[]>>}
 */
export async function interleave(rounds, contenders) {
  /** @type {Record<string, T[]>} */
  const results = {};
  for (let round = 1; round <= rounds; round += 1) {
    progress(`round ${round} of ${rounds}: ${Object.keys(contenders).join(', ')}`);
    for (const [name, run] of Object.entries(contenders)) {
      if (!run) continue;
      results[name] ??= [];
      results[name].push(await run());
    }
  }
  return results;
}

/** Prints progress to stderr. @param {string} text */
export function progress(text) {
  process.stderr.write(`bench: ${text}\n`);
}
