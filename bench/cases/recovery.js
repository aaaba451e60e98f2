// What users of a queue see when its servers fail, or when its slot moves: pauses, errors, jobs lost or done twice.
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { ClusterNodes, SentinelNodes, TIMEOUT } from '../nodes.js';
import { live } from '../processes.js';
import { progress } from '../rounds.js';
import { costs, short } from '../table.js';

const LOAD = fileURLToPath(new URL('../load.js', import.meta.url));

/** A pause may last this long: until the servers notice, and 2 s to elect another and to find it. */
const TARGET = { value: TIMEOUT + 2_000 };
/** After another server has taken over, the old one comes back, ms. */
const BACK = 2_000;
const CALM = 1_000;
/** Between two calls of each user, ms; and their calls before anything happens. */
const BUSY = { pause: 1, calls: 200 };
/** How many jobs wait in a slot that moves. */
const SIZES = [10_000, 300_000];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const sizes = rig.of({ full: SIZES, quick: SIZES, smoke: SIZES.slice(1) }).map((n) => rig.size(n));
  const onCluster = {
    'kill -9 of the master': { strike: gone('SIGKILL') },
    'SIGSTOP of the master': { strike: gone('SIGSTOP') },
    'CLUSTER FAILOVER': { strike: planned },
    ...Object.fromEntries(
      sizes.map((n) => [`reshard, ${n.toLocaleString('en')} jobs wait`, { strike: moved, waiting: n }]),
    ),
  };
  const withSentinels = {
    'kill -9 of the primary': { strike: gone('SIGKILL') },
    'SIGSTOP of the primary': { strike: gone('SIGSTOP') },
    'SENTINEL FAILOVER': { strike: planned },
  };
  const busy = rig.of({ full: BUSY, quick: BUSY, smoke: { pause: 20, calls: 10 } });
  /** @type {Record<string, object[]>} */
  const results = {};
  const chosen = (cases) =>
    Object.entries(cases).filter(([name]) => rig.of({ full: true, quick: true, smoke: remains(name) }));
  for (const [Nodes, cases] of [
    [ClusterNodes, chosen(onCluster)],
    [SentinelNodes, chosen(withSentinels)],
  ]) {
    /** @type {ClusterNodes | SentinelNodes | undefined} */
    let nodes;
    try {
      for (let round = 1; round <= rig.rounds(3); round += 1) {
        for (const [name, { strike, waiting = 0 }] of cases) {
          progress(`round ${round}: ${name}`);
          results[name] ??= [];
          nodes ??= await Nodes.start(rig);
          try {
            results[name].push(await struck(nodes, strike, { waiting, ...busy }));
          } catch (error) {
            // On a busy machine a failover may begin while a large slot moves. The next case gets fresh servers.
            progress(`${name} failed: ${error.message}`);
            nodes.stop();
            nodes = undefined;
          }
        }
      }
    } finally {
      nodes?.stop();
    }
  }
  return sections(results);
}

/** Whether all servers remain. Otherwise it takes seconds until they notice, and agree. */
const remains = (name) => /FAILOVER|reshard/.test(name);

let queues = 0;

/** Lets users work while `strike` happens. Returns what they saw, and how long the servers took. */
async function struck(nodes, strike, load) {
  const name = `recovery-${++queues}`;
  const { master } = await nodes.of(name);
  let other;
  for (let i = 0; nodes instanceof ClusterNodes && !other; i += 1) {
    const elsewhere = `other-${queues}-${i}`;
    if ((await nodes.of(elsewhere)).master !== master) other = elsewhere;
  }
  const { url, peer, replicas } = nodes;
  const users = live([process.execPath, LOAD, JSON.stringify({ url, peer, name, other, replicas, ...load })]);
  try {
    await users.next();
    await sleep(CALM);
    const begin = performance.now();
    const servers = (await strike(nodes, { name, other })) - begin;
    await nodes.settled();
    await sleep(CALM);
    const report = JSON.parse(await users.next('stop\n'));
    for (const who of ['plain', 'replicated', 'consumer', 'elsewhere', 'theirs'])
      for (const reason of report[who]?.reasons ?? []) progress(`  ${who}: ${reason}`);
    for (const { admin } of await nodes.masters()) await admin.flushall('SYNC');
    return { servers, ...report };
  } finally {
    await users.end();
  }
}

/** The server dies or freezes, is replaced, and comes back. Resolves with the time when it was replaced. */
function gone(signal) {
  return async (nodes, { name }) => {
    const { master, slot } = await nodes.of(name);
    master.strike(signal);
    await nodes.replaced(master, slot);
    const replaced = performance.now();
    await sleep(BACK);
    await master.comeBack();
    return replaced;
  };
}

async function planned(nodes, { name }) {
  const { master, slot } = await nodes.of(name);
  await nodes.failover(name);
  await nodes.replaced(master, slot);
  return performance.now();
}

/** The slot of the queue moves to the node that has neither queue. */
async function moved(nodes, { name, other }) {
  const used = await Promise.all([name, other].map(async (queue) => (await nodes.of(queue)).master));
  await nodes.reshard(
    name,
    (await nodes.masters()).find((node) => !used.includes(node)),
  );
  return performance.now();
}

/** @returns {import('../table.js').Section[]} */
function sections(results) {
  const rows = (row) =>
    Object.entries(results).map(([name, rounds]) => ({
      name,
      ...(rounds.length > 0 ? row(rounds, name) : { alone: true }),
    }));
  const sum = (rounds, value) => rounds.reduce((total, round) => total + value(round), 0);
  const pauses = (who) => (rounds) => rounds.map((round) => round[who].longest);
  const counted = (rounds, values) =>
    ['unknown', 'unreachable', 'temporary'].map((code) =>
      sum(rounds, (round) => sum(values(round), (one) => one.errors[code] ?? 0)),
    );
  const text = (counts) => counts.join(' / ');
  const n = (count) => count.toLocaleString('en');
  return [
    costs("Longest pause of a producer, against ioredis's own client", 'ms', [
      ...rows((rounds) => ({
        ours: pauses('plain')(rounds),
        theirs: pauses('theirs')(rounds),
        target: TARGET,
        note: `the servers themselves took ${range(rounds.map(({ servers }) => servers))} ms`,
      })),
    ]),
    costs('Longest pause of a consumer', 'ms', [
      ...rows((rounds) => ({ alone: true, ours: pauses('consumer')(rounds), target: TARGET })),
    ]),
    costs('Longest pause of a producer that waits for all replicas', 'ms', [
      ...rows((rounds, name) => ({
        alone: true,
        ours: pauses('replicated')(rounds),
        // Elsewhere a replica is missing until the old server is one.
        target: remains(name) && !name.includes('SENTINEL') ? TARGET : undefined,
      })),
    ]),
    costs('Longest pause of a queue on another node, against that of a sleeping program', 'ms', [
      ...rows((rounds) => ({
        ours: rounds[0].elsewhere && pauses('elsewhere')(rounds),
        theirs: pauses('clock')(rounds),
      })).filter(({ ours }) => ours),
    ]),
    costs("Calls that failed, against ioredis's", 'unknown / unreachable / temporary', [
      ...rows((rounds) => {
        const ours = counted(rounds, ({ plain, consumer }) => [plain, consumer]);
        const all = (counts) => counts.reduce((total, count) => total + count);
        const theirs = sum(rounds, (round) => sum(Object.values(round.theirs.errors), (count) => count));
        const replicated = counted(rounds, (round) => [round.replicated]);
        return {
          ours: [all(ours)],
          theirs: [theirs],
          shown: [text(ours), `${theirs} errors`],
          note: all(replicated) > 0 ? `of the producer that waits for all replicas: ${text(replicated)}` : undefined,
        };
      }),
    ]),
    costs("Confirmed jobs lost, against ioredis's calls", 'jobs in all rounds', [
      ...rows((rounds) => ({
        ours: [sum(rounds, ({ jobs }) => jobs.plain.lost)],
        theirs: [sum(rounds, ({ theirs }) => theirs.lost)],
        note: `of ${n(sum(rounds, ({ jobs }) => jobs.plain.confirmed))}, and of ${n(sum(rounds, ({ theirs }) => theirs.ok))}`,
      })),
    ]),
    costs('Confirmed jobs lost that waited for all replicas', 'jobs in all rounds', [
      ...rows((rounds) => ({
        alone: true,
        ours: [sum(rounds, ({ jobs }) => jobs.replicated.lost)],
        target: { value: 0 },
        note: `of ${n(sum(rounds, ({ jobs }) => jobs.replicated.confirmed))}`,
      })),
    ]),
    costs("Jobs handled twice, against ioredis's calls executed twice", 'in all rounds', [
      ...rows((rounds) => {
        const twice = {};
        for (const { jobs } of rounds)
          for (const [why, count] of Object.entries(jobs.twice)) twice[why] = (twice[why] ?? 0) + count;
        return {
          ours: [sum(Object.values(twice), (count) => count)],
          theirs: [sum(rounds, ({ theirs }) => theirs.twice)],
          note:
            Object.entries(twice)
              .map(([why, count]) => `${why}: ${count}`)
              .join(', ') || undefined,
        };
      }),
    ]),
  ];
}

/** @param {number[]} samples */
function range(samples) {
  const [least, most] = [Math.min(...samples), Math.max(...samples)];
  return least === most ? short(least) : `${short(least)} to ${short(most)}`;
}
