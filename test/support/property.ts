import fc, { type Parameters as Options } from 'fast-check';

/** DELAYQ_TEST_LONG=1: everything is searched for as long as it takes, and each run tries something else. */
export const LONG = process.env.DELAYQ_TEST_LONG === '1';

/** What is tried depends on it alone. DELAYQ_TEST_SEED repeats a run that has failed. */
export const SEED = Number(process.env.DELAYQ_TEST_SEED ?? (LONG ? Date.now() % 1_000_000 : 6));
if (LONG) console.log(`DELAYQ_TEST_SEED=${SEED}`);

/** Checks a property with so many values. If it fails, fast-check names the seed. */
export const runs = (count = 100): Options<unknown> => ({ numRuns: count, seed: SEED });

/** The same for a property that takes more than half a second: with one of `of` of them, unless the run is long. */
export const slowRuns = (count: number, of = 10): Options<unknown> => runs(LONG ? count : Math.ceil(count / of));

/** Any character, for `fc.string({ unit })`: fast-check's own `binary` takes half a second to be made. */
export const codePoint = fc
  .oneof(fc.integer({ min: 0, max: 0xd7ff }), fc.integer({ min: 0xe000, max: 0x10ffff }))
  .map((code) => String.fromCodePoint(code));

/** What the steps are called that some arbitraries make: each those of one name. */
export const kindsOf = (kinds: readonly { readonly arbitrary: fc.Arbitrary<{ readonly do: string }> }[]): string[] =>
  [...new Set(kinds.flatMap(({ arbitrary }) => fc.sample(arbitrary, 1).map((step) => step.do)))].sort();
