import { expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { until } from '../support/until.js';
import { ONE_SERVER_STORM } from './deployments.js';
import { CLIENT_STORM, HttpStorm, SERVER_STORM } from './http.js';
import { minutes, seed } from './options.js';
import { expectBalanced } from './report.js';

it(`HTTP clients that break off at any moment lose no job, and cost no delivery that they may not have had (seed ${seed})`, async () => {
  const storm = await during(HttpStorm.begin(seed));
  await until(() => storm.delivered > 500, 120_000);
  expectBalanced(await storm.end(), storm);
  expect(troublesOf(storm)).toEqual([]);
});

it(`HTTP servers that are stopped one after the other refuse nothing that they have taken, and end well (seed ${seed})`, async () => {
  const storm = await during(HttpStorm.begin(seed));
  await storm.rage({ 'stop server': 1 }, () => (storm.struck['stop server'] ?? 0) >= 4);
  expectBalanced(await storm.end(), storm);
  expect(troublesOf(storm).filter((trouble) => trouble !== 'lost')).toEqual([]);
});

it(
  `a storm over two HTTP servers loses nothing, and every delivery has its reason (seed ${seed})`,
  async () => {
    const storm = await during(HttpStorm.begin(seed, { graceMs: 3_000, hasTokens: true }));
    const everything = { ...SERVER_STORM, ...CLIENT_STORM, ...ONE_SERVER_STORM };
    const end = performance.now() + minutes * 60_000;
    await storm.rage(everything, () => performance.now() > end);
    expectBalanced(await storm.end(), storm);
    expect(new Set(Object.keys(storm.struck))).toEqual(new Set(Object.keys(everything)));
  },
  minutes * 60_000 + 600_000,
);

/**
 * The answers that say that a server or Redis failed, or that never came. A request for several queues goes on without one
 * that is not answered for a second, and can then not say that there is no job: on a busy machine that is no trouble.
 */
function troublesOf({ answers }: HttpStorm): string[] {
  return Object.keys(answers).filter((answer) => answer === 'lost' || /^5\d\d (?!several queues)/.test(answer));
}
