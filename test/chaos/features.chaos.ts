import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Operator, Recurring } from '../../src/index.js';
import { queueKeys } from '../../src/store/keys.js';
import { run } from '../../src/store/script.js';
import { during } from '../support/afterwards.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, key, redisTargets, redisUrl } from '../support/redis.js';
import { scriptHash } from '../support/scripts.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer } from './consumers.js';
import { type Deployment, ONE_SERVER_STORM, oneServer, SENTINEL_STORM, withSentinels } from './deployments.js';
import { STORM } from './faults.js';
import { FeatureStorm } from './features.js';
import { readLog } from './ledger.js';
import { minutes, seed } from './options.js';
import { payloadOf } from './producers.js';

const DEPLOYMENTS: [string, () => Promise<Deployment>, Record<string, number>][] = [
  ['one server', oneServer, ONE_SERVER_STORM],
  ['Sentinels', withSentinels, SENTINEL_STORM],
];

// Failovers take long, so short runs leave them out.
it.each(DEPLOYMENTS.slice(0, minutes < 1 ? 1 : 2))(
  `a storm over %s (seed ${seed}): limits hold and are reached, each occurrence makes one job, and each id is done once`,
  async (_, redis, ofRedis) => {
    const storm = await during(FeatureStorm.begin(seed, await redis()));
    const end = performance.now() + minutes * 60_000;
    await storm.rage({ ...STORM, ...ofRedis }, () => performance.now() > end);
    const { figures, violations } = await storm.end();
    for (const [name, value] of Object.entries(figures)) console.log(name.padEnd(30), value);
    expect(violations).toEqual([]);
  },
  minutes * 60_000 + 600_000,
);

it.each([
  ['before its job is made', 'deaf'],
  ['after its job was made, before it knows', 'cut'],
] as const)('a drain is killed between an occurrence and its job, %s: others make one job of each', async (_, kind) => {
  const [queue, directory] = [freshName(), temporaryDirectory()];
  const [log, errors] = [join(directory, 'log'), join(directory, 'errors')];
  writeFileSync(log, '');
  // Loads the script: from now on, a call with its hash runs it.
  await run(connection, 'every/fire', queueKeys('delayq', queue, '1 0/1'), []).catch(() => {});
  const recurring = new Recurring(connection);
  const payload = JSON.parse(payloadOf('each', 'ok', 0));
  const { job } = await recurring.put(queue, { id: 'each', payload, when: '1s', missed: 'all' });
  const first = job.next as number;
  await until(() => Date.now() > first + 1_000);

  const proxy = await during(FaultyProxy.start(...redisTargets));
  const drain = (url: string) => new Consumer('exec', { queue, url, log, errors, label: queue });
  const struck = drain(proxy.url);
  const before = () => struck.signal('drain', 'SIGKILL');
  proxy.fault = { word: scriptHash('fire'), kind, times: 1, before };
  await struck.end();
  expect(proxy.struck).toBe(1);
  expect(await admin.hget(key(queue, 'stats'), 'delivered')).toBe(null);
  const stored = () => admin.zscore(key(queue, 'occurs'), 'each').then(Number);
  if (kind === 'deaf') expect(await stored()).toBe(first);
  else await until(async () => (await stored()) > first);

  await Promise.all([drain(redisUrl), drain(redisUrl), drain(redisUrl)].map((one) => one.end()));
  const operator = new Operator(connection);
  await operator.pause(queue);
  const next = await stored();
  await recurring.remove(queue, ['each']);
  await operator.resume(queue);
  await drain(redisUrl).end();
  const ids = Array.from({ length: (next - first) / 1_000 }, (_, n) => {
    return `each@${new Date(first + n * 1_000).toISOString().replace('.000', '')}`;
  });
  const { handlings } = readLog(readFileSync(log, 'utf8'));
  expect(handlings.map(({ id }) => id).sort()).toEqual(ids);
});
