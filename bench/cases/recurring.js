// What 1,000 recurring jobs in one queue cost while none is due, and how late their jobs are taken: by Redis's clock, from
// the due time to the time of the lease.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Inspector, Recurring } from '../../dist/lib/index.js';
import { live, usage } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { progress, quantile } from '../rounds.js';
import { costs } from '../table.js';

const DEFINITIONS = 1_000;
const EVERY_MS = 10_000;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const redis = await connect(rig.url);
  try {
    const ms = rig.quick ? 20_000 : 60_000;
    const idle = { 0: [], [DEFINITIONS]: [] };
    for (const n of [0, DEFINITIONS]) {
      progress(`idle, ${n} recurring jobs`);
      idle[n].push(await waiting(rig, redis, n, ms / 2));
    }
    const rows = [];
    for (const spread of [true, false]) {
      for (const drains of [1, 8]) {
        progress(`${spread ? 'spread' : 'at one instant'}, ${drains} drains`);
        const late = await lateness(rig, redis, { drains, spread, ms });
        const name = `${drains} of drain --watch, ${spread ? 'spread over 10 s' : 'all at one instant'}`;
        for (const [what, q] of [
          ['p50', 0.5],
          ['p99', 0.99],
          ['most', 1],
        ])
          rows.push({ name: `${name}: ${what}`, alone: true, ours: [quantile(late, q)], note: `${late.length} jobs` });
      }
    }
    const row = (name, cost) => ({
      name,
      ours: idle[DEFINITIONS].map((one) => one[cost]),
      theirs: idle[0].map((one) => one[cost]),
    });
    return [
      costs(`Waiting, with ${DEFINITIONS} recurring jobs, against none`, '% of a CPU', [
        row('drain --watch: its process', 'own'),
        row('the server', 'server'),
      ]),
      costs(`Jobs of ${DEFINITIONS} recurring jobs, each every ${EVERY_MS / 1_000} s`, 'ms late when taken', rows),
    ];
  } finally {
    redis.close();
  }
}

/** What a waiting drain costs; its queue has `n` recurring jobs of every day. */
async function waiting(rig, redis, n, ms) {
  await rig.flush();
  const recurring = new Recurring(redis);
  for (let i = 0; i < n; i += 1) await recurring.put('bench', { id: `r${i}`, when: '1d', payload: i });
  if (n === 0) await rig.act('delayq', 'fill', { n: 1, at: Date.now() + 86_400_000 });
  const consumer = live([DELAYQ, 'drain', '-q', '--watch', 'bench'], rig.env);
  // Until it has connected and polled once.
  await sleep(3_000);
  const server = Number(/process_id:(\d+)/.exec(await rig.admin.info('server'))?.[1]);
  const before = [usage(consumer.pid).cpu, usage(server).cpu];
  await sleep(ms);
  const [own, servers] = [usage(consumer.pid).cpu, usage(server).cpu].map(
    (cpu, i) => (cpu - before[i]) * (100_000 / ms),
  );
  await consumer.end();
  return { own, server: servers };
}

/** How late each job of `ms` was when it was taken, ms, in order: from the leases, which nobody ends. */
async function lateness(rig, redis, { drains, spread, ms }) {
  await rig.flush();
  const recurring = new Recurring(redis);
  for (let i = 0; i < DEFINITIONS; i += 1)
    await recurring.put('bench', { id: `r${i}`, when: `${EVERY_MS / 1_000}s`, payload: i });
  await place(rig, spread);
  const consumers = Array.from({ length: drains }, () =>
    live([DELAYQ, 'drain', '-q', '--watch', '--lease', '1h', 'bench'], rig.env),
  );
  for (const { lines } of consumers) lines.on('line', () => {});
  // The first ones meet drains that are still starting.
  await sleep(12_000);
  const from = await redis.now();
  await sleep(ms);
  const late = [];
  for await (const { due, lease } of new Inspector(redis).list('bench', { states: ['active'] }))
    if (due >= from && lease) late.push(lease.since - due);
  await Promise.all(consumers.map((consumer) => consumer.end()));
  return late.sort((a, b) => a - b);
}

/** Moves the recurring jobs: spread over one interval, or all to one instant, from 3 s from now on. */
async function place({ admin }, spread) {
  const [every, occurs] = ['delayq:{bench}:every', 'delayq:{bench}:occurs'];
  const start = Math.ceil((Date.now() + 3_000) / 1_000) * 1_000;
  const pipeline = admin.pipeline();
  for (const [id, text] of Object.entries(await admin.hgetall(every))) {
    const at = start + (spread ? Math.floor((Number(id.slice(1)) * EVERY_MS) / DEFINITIONS / 1_000) * 1_000 : 0);
    pipeline.hset(every, id, text.replace(/"created":\d+/, `"created":${at - EVERY_MS}`));
    pipeline.zadd(occurs, at, id);
  }
  await pipeline.exec();
}
