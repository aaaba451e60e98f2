import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { JsonText } from '../../src/index.js';
import { read } from '../support/handlers.js';
import { admin, freshQueue, key, redisUrl } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer } from './consumers.js';
import { Ledger, readLog, remainsOf } from './ledger.js';
import { minutes, seed } from './options.js';
import { payloadOf } from './producers.js';
import { Random } from './random.js';

const JOBS = minutes >= 1 ? 100_000 : 4_000;
const KILLS = minutes >= 1 ? 50 : 8;

it(`handlers that stay crash, stall, answer twice and eat memory, their drain is killed ${KILLS} times, and nothing is lost`, {
  timeout: 900_000,
}, async () => {
  const random = new Random(seed);
  const queue = freshQueue();
  const ledger = new Ledger(queue.name);
  await admin.hset(key(queue.name, 'config'), {
    layout: '1 0/1 uses settings',
    lease: 1_000,
    backoff: '1',
    tries: 50,
    maxLost: 100,
  });
  const jobs = Array.from({ length: JOBS }, () => {
    const id = ledger.sending(0);
    return {
      id,
      payload: JsonText.parse(payloadOf(id, random.whole(0, 99) === 0 ? 'fail' : 'ok', random.whole(1, 500))),
    };
  });
  for (const { id } of await queue.enqueue(jobs)) ledger.confirmed(id);
  const directory = temporaryDirectory();
  const [log, errors] = [join(directory, 'log'), join(directory, 'errors')];
  const done = () => readLog(read(log)).handlings.length;
  const struck = new Set<string>();
  const how = { queue: queue.name, url: redisUrl, log, errors };
  const flags = () =>
    `--watch --timeout 1s --kill-after 200ms --max-memory 120M --max-jobs 3000 --ahead ${random.pick([1, 1, 8])}`;
  let consumer: Consumer | undefined;
  try {
    for (let n = 0; n <= KILLS; n++) {
      const label = `stay-${n}`;
      consumer = new Consumer('stay', { ...how, label, flags: flags(), wild: 0.0005 });
      // One that has not started cannot be told to stop.
      const { members } = consumer;
      await until(() => members.has('drain'));
      if (n === KILLS) break;
      // Some work before it is killed, not equally much each time.
      const upTo = done() + random.whole(1, (2 * JOBS) / (KILLS + 1));
      const since = Date.now();
      await until(() => done() >= Math.min(upTo, JOBS) || Date.now() - since > 20_000, 60_000);
      await sleep(random.whole(0, 50));
      struck.add(label);
      if (random.whole(0, 3) === 0) {
        consumer.signal('drain', 'SIGTERM');
        await consumer.end();
      } else await consumer.kill();
    }
    await until(async () => {
      const { pending, active } = await queue.counts();
      return pending + active === 0;
    }, 300_000);
    consumer?.signal('drain', 'SIGTERM');
    await consumer?.end();
  } finally {
    await consumer?.kill();
  }
  const { figures, violations } = ledger.balance(readLog(read(log)), await remainsOf(admin, queue.name), {
    disturbed: (run) => struck.has(run),
  });
  console.log(`stay: ${JSON.stringify(figures)}; no answers: ${read(errors).match(/is no answer/g)?.length ?? 0}`);
  expect({ violations, present: figures.present, dead: figures.dead }).toEqual({ violations: [], present: 0, dead: 0 });
  expect(readFileSync(errors, 'utf8')).not.toMatch(/^ +at /m);
});
