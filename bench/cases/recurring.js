// What 1,000 recurring jobs in one queue cost while none is due, and how late their jobs are taken: by Redis's clock, from
// the due time to the time of the lease.
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Inspector, Recurring } from '../../dist/lib/index.js';
import { live, usage } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { progress, quantile } from '../rounds.js';
import { costs } from '../table.js';

/** For how long jobs are made, ms; of how many recurring ones, each how often, s; taken by how many drains. */
const FULL = { ms: 60_000, definitions: 1_000, every: 10, consumers: [1, 8] };
const SMOKE = { ms: 3_000, definitions: 20, every: 1, consumers: [1] };

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const redis = await connect(rig.url);
  try {
    const { ms, definitions, every, consumers } = rig.of({ full: FULL, quick: { ...FULL, ms: 20_000 }, smoke: SMOKE });
    const idle = { 0: [], [definitions]: [] };
    for (const n of [0, definitions]) {
      progress(`idle, ${n} recurring jobs`);
      idle[n].push(await waiting(rig, redis, n, ms / 2));
    }
    const rows = [];
    for (const spread of [true, false]) {
      for (const drains of consumers) {
        progress(`${spread ? 'spread' : 'at one instant'}, ${drains} drains`);
        const late = await lateness(rig, redis, { drains, spread, ms, definitions, every });
        const name = `${drains} of drain --watch, ${spread ? `spread over ${every} s` : 'all at one instant'}`;
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
      ours: idle[definitions].map((one) => one[cost]),
      theirs: idle[0].map((one) => one[cost]),
    });
    return [
      costs(`Waiting, with ${definitions} recurring jobs, against none`, '% of a CPU', [
        row('drain --watch: its process', 'own'),
        row('the server', 'server'),
      ]),
      costs(`Jobs of ${definitions} recurring jobs, each every ${every} s`, 'ms late when taken', rows),
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
async function lateness(rig, redis, { drains, spread, ms, definitions, every }) {
  await rig.flush();
  const recurring = new Recurring(redis);
  for (let i = 0; i < definitions; i += 1) await recurring.put('bench', { id: `r${i}`, when: `${every}s`, payload: i });
  await place(rig, { spread, definitions, every });
  const consumers = Array.from({ length: drains }, () =>
    live([DELAYQ, 'drain', '-q', '--watch', '--lease', '1h', 'bench'], rig.env),
  );
  for (const { lines } of consumers) lines.on('line', () => {});
  // The first ones meet drains that are still starting.
  await sleep(every * 1_000 + 2_000);
  const from = await redis.now();
  await sleep(ms);
  const late = [];
  for await (const { due, lease } of new Inspector(redis).list('bench', { states: ['active'] }))
    if (due >= from && lease) late.push(lease.since - due);
  await Promise.all(consumers.map((consumer) => consumer.end()));
  // Those of the last interval may not have been taken yet.
  const least = definitions * Math.floor(ms / 1_000 / every - 1);
  if (late.length < least) throw new Error(`${late.length} jobs were made and taken, not ${least}`);
  return late.sort((a, b) => a - b);
}

/** Moves the recurring jobs: spread over one interval, or all to one instant, from 3 s from now on. */
async function place({ admin }, { spread, definitions, every }) {
  const [defined, occurs] = ['delayq:{bench}:every', 'delayq:{bench}:occurs'];
  const start = Math.ceil((Date.now() + 3_000) / 1_000) * 1_000;
  const pipeline = admin.pipeline();
  for (const [id, text] of Object.entries(await admin.hgetall(defined))) {
    const at = start + (spread ? Math.floor((Number(id.slice(1)) * every) / definitions) * 1_000 : 0);
    pipeline.hset(defined, id, text.replace(/"created":\d+/, `"created":${at - every * 1_000}`));
    pipeline.zadd(occurs, at, id);
  }
  await pipeline.exec();
}
