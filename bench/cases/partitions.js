// What a queue with 16 partitions costs on clusters of 1, 3 and 6 masters, against one without: CPU time of the servers a
// job, in all and of the busiest; what waiting consumers cost; and how far from the order of due times a drain is.
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect, Operator, Queue, Worker } from '../../dist/lib/index.js';
import { ClusterNodes } from '../nodes.js';
import { live, timed, treeCpu } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { progress, quantile } from '../rounds.js';
import { costs } from '../table.js';

const PARTITIONS = 16;
const JOBS = 50_000;
const BACKLOG_MS = 3_500_000;

const payload = { order: 4711, what: 'x'.repeat(95) };
const jobs = (n, idOf) =>
  Array.from({ length: n }, (_, i) => (idOf ? { id: idOf(i), payload, at: 1 + i } : { payload, at: 1 + i }));

const ONE = 'enqueue one at a time';

/** Each step goes on with what the one before has left. */
const STEPS = {
  'enqueue, ids made by delayq': (queue, n) => queue.enqueue(jobs(n)),
  'drain and ack of them': drained,
  'enqueue, own ids': (queue, n) => queue.enqueue(jobs(n, (i) => `order-${i}`)),
  'drain and ack of these': drained,
  [ONE]: async (queue, n) => {
    for (const job of jobs(n)) await queue.enqueue(job);
  },
};

async function drained(queue, n) {
  let handled = 0;
  const worker = new Worker(
    queue,
    () => {
      handled += 1;
    },
    { watch: false, concurrency: 100 },
  );
  await worker.run();
  if (handled !== n) throw new Error(`handled ${handled} of ${n} jobs`);
}

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const sections = [];
  for (const masters of rig.of({ full: [1, 3, 6], quick: [1, 3, 6], smoke: [3] })) {
    const cluster = await ClusterNodes.start(rig, { masters, replicas: 0 });
    try {
      sections.push(...(await onCluster(rig, cluster, masters)));
      if (masters === 3) sections.push(...(await watching(rig, cluster)), await order(rig, cluster));
    } finally {
      cluster.stop();
    }
  }
  return sections;
}

async function flush(cluster) {
  for (const { admin } of cluster.nodes) await admin.flushall('SYNC');
}

/** An empty queue, which knows its partitions. */
async function fresh(cluster, partitions) {
  await flush(cluster);
  const redis = await connect(cluster.url);
  const queue = new Queue(redis, 'bench');
  if (partitions > 1) for await (const _ of new Operator(redis).partition('bench', partitions));
  return queue;
}

async function onCluster(rig, cluster, masters) {
  /** µs a job of each server, by step and by how many partitions. */
  const found = {};
  const singles = rig.of({ full: 10_000, quick: 10_000, smoke: 20 });
  for (let round = 1; round <= rig.rounds(3); round += 1) {
    progress(`${masters} masters, round ${round}`);
    for (const partitions of round % 2 ? [1, PARTITIONS] : [PARTITIONS, 1]) {
      const queue = await fresh(cluster, partitions);
      // Scripts are loaded, and connections open.
      for (const step of Object.values(STEPS)) await step(queue, 1_000);
      await drained(queue, 1_000);
      for (const [name, step] of Object.entries(STEPS)) {
        const n = name === ONE ? singles : rig.size(JOBS);
        const before = cluster.nodes.map(({ pid }) => treeCpu(pid));
        await step(queue, n);
        const each = cluster.nodes.map(({ pid }, i) => (treeCpu(pid) - before[i]) / n);
        const all = each.reduce((sum, one) => sum + one, 0);
        found[name] ??= { 1: [], [PARTITIONS]: [] };
        found[name][partitions].push({ all, busiest: Math.max(...each) / all });
      }
      queue.redis.close();
    }
  }
  const names = Object.keys(STEPS);
  const on = masters === 1 ? 'on one master' : `on ${masters} masters`;
  const work = costs(
    `${PARTITIONS} partitions ${on}, against none`,
    'µs of CPU of all servers a job',
    names.map((name) => ({
      name,
      ours: found[name][PARTITIONS].map(({ all }) => all),
      theirs: found[name][1].map(({ all }) => all),
      target: { ratio: 1.25 },
    })),
  );
  if (masters === 1) return [work];
  const share = costs(
    `The busiest of ${masters} masters, against none`,
    '% of the work of all',
    names.map((name) => ({
      name,
      ours: found[name][PARTITIONS].map(({ busiest }) => busiest * 100),
      theirs: found[name][1].map(({ busiest }) => busiest * 100),
      target: { value: Math.round(1_250 / masters) / 10 },
    })),
  );
  return [work, share];
}

/** What consumers cost that wait for jobs. */
async function watching(rig, cluster) {
  const ms = rig.of({ full: 20_000, quick: 10_000, smoke: 500 });
  const watchers = rig.of({ full: 100, quick: 100, smoke: 2 });
  const rows = [];
  const servers = () => cluster.nodes.reduce((sum, { pid }) => sum + treeCpu(pid), 0);
  for (const partitions of [PARTITIONS, 1]) {
    progress(`waiting consumers, ${partitions} partitions`);
    const queue = await fresh(cluster, partitions);
    const idle = await during(ms, servers);
    const consumer = live([DELAYQ, 'drain', '-q', '--watch', 'bench'], { DELAYQ_REDIS_URL: cluster.url });
    // It has looked twice, and listens.
    await sleep(3_000);
    const [own, one] = await Promise.all([during(ms, () => treeCpu(consumer.pid)), during(ms, servers)]);
    await consumer.end();
    const connections = await Promise.all(Array.from({ length: watchers }, () => connect(cluster.url)));
    const workers = connections.map((redis) => new Worker(new Queue(redis, 'bench'), () => {}));
    const running = workers.map((worker) => worker.run());
    await sleep(3_000);
    const [program, many] = await Promise.all([during(ms, () => treeCpu(process.pid)), during(ms, servers)]);
    for (const worker of workers) worker.stop();
    await Promise.all(running);
    for (const redis of connections) redis.close();
    queue.redis.close();
    const per = (all) => Math.max(0, all - idle) / 10_000;
    rows.push([own / 10_000, per(one), program / 10_000 / watchers, per(many) / watchers]);
  }
  const names = [
    'drain --watch: its process',
    'drain --watch: all servers',
    `one of ${watchers}: its share of a process`,
    `one of ${watchers}: all servers`,
  ];
  const row = (name, i) => ({ name, ours: [rows[0][i]], theirs: [rows[1][i]], target: { value: 0.5 } });
  return [costs(`A consumer that waits over ${PARTITIONS} partitions, against none`, '% of a CPU', names.map(row))];
}

/** The growth of a number within `ms`, a second. */
async function during(ms, what) {
  const before = what();
  await sleep(ms);
  return ((what() - before) * 1_000) / ms;
}

/** How far behind the newest job that was delivered before it a job is. */
async function order(rig, cluster) {
  const n = rig.size(JOBS);
  const queue = await fresh(cluster, PARTITIONS);
  const first = Date.now() - BACKLOG_MS;
  const due = (i) => Math.round(first + (i * BACKLOG_MS) / n);
  await queue.enqueue(Array.from({ length: n }, (_, i) => ({ id: `order-${i}`, payload: i, at: due(i) })));
  const behind = { seconds: [], places: [] };
  let newest = 0;
  let place = 0;
  const file = rig.file('order');
  await timed([DELAYQ, 'drain', '-q', 'bench'], { env: { DELAYQ_REDIS_URL: cluster.url }, to: file });
  for (const line of readFileSync(file, 'utf8').trim().split('\n')) {
    newest = Math.max(newest, due(Number(line)));
    behind.seconds.push((newest - due(Number(line))) / 1_000);
    behind.places.push(Math.abs(place++ - Number(line)));
  }
  if (place !== n) throw new Error(`drained ${place} of ${n} jobs`);
  queue.redis.close();
  const row = (name, samples, q) => ({ name, alone: true, ours: [quantile(samples, q)] });
  return costs(`Order of a drain of ${n.toLocaleString('en')} jobs, due over 3,500 s`, 's or jobs', [
    row('seconds behind a newer one, p50', behind.seconds, 0.5),
    row('seconds behind a newer one, most', behind.seconds, 1),
    row('places from its own, p50', behind.places, 0.5),
    row('places from its own, most', behind.places, 1),
  ]);
}
