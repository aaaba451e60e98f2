// `delayq serve` beside a bare server of node:http, under the same load of 100 connections; and 10,000 that only wait.
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { connect, Queue } from '../../dist/lib/index.js';
import { live, treeCpu, usage } from '../processes.js';
import { DELAYQ, freePort } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs, rates } from '../table.js';

const LOAD = fileURLToPath(new URL('../http-load.js', import.meta.url));
const BARE = fileURLToPath(new URL('../http-bare.js', import.meta.url));
const CONNECTIONS = { full: 100, quick: 100, smoke: 5 };
const POLLS = 10_000;
/** How many of them get a job in the end. */
const WOKEN = 10;
/** More than 10,000 connections. */
const FILES = 16_384;
const LONGEST_LOAD_MS = 180_000;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const timed = rig.of({
    full: { warmup: 2, seconds: 5 },
    quick: { warmup: 1, seconds: 2 },
    smoke: { warmup: 0, seconds: 0.2 },
  });
  const bare = await started((port) => [process.execPath, BARE, String(port)]);
  const ours = await served(rig);
  const redis = await connect(rig.url);
  const checked = (act, published) => () => counted(rig, new Queue(redis, 'bench.jobs'), ours, act, published);
  try {
    const results = await interleave(rig.rounds(3), {
      bare: () => load(rig, bare, { act: 'publish', ...timed }),
      publish: checked({ act: 'publish', ...timed }),
      'bulk, bare': () => load(rig, bare, { act: 'bulk', ...timed }),
      bulk: checked({ act: 'bulk', ...timed }),
      'count=1': checked({ act: 'consume' }, rig.size(40_000)),
      'bare, alone': () => load(rig, bare, { act: 'publish', connections: 1, ...timed }),
      alone: checked({ act: 'consume', connections: 1 }, rig.size(10_000)),
      'count=100, no acks': checked({ act: 'consume', count: 100, ack: false }, rig.size(200_000)),
      'count=100': checked({ act: 'consume', count: 100 }, rig.size(200_000)),
      'count=100, one ack': checked({ act: 'consume', count: 100, ack: 'many' }, rig.size(200_000)),
    });
    const idle = await interleave(Math.min(rig.rounds(2), 2), { idle: () => waiting(rig, redis) });
    return sections(results, idle.idle, { users: rig.of(CONNECTIONS), polls: rig.size(POLLS) });
  } finally {
    redis.close();
    await Promise.all([bare.end(), ours.end()]);
  }
}

/** Starts a server, and waits until it answers. @param {(port: number) => string[]} command @param {object} [env] */
async function started(command, env) {
  const port = await freePort();
  // The log goes nowhere, and is written all the same.
  const line = `ulimit -n ${FILES}; exec "$@" 2>/dev/null`;
  const server = live(['sh', '-c', line, 'sh', ...command(port)], env);
  server.lines.on('line', () => {});
  for (let tries = 1; ; tries += 1) {
    const answer = await fetch(`http://127.0.0.1:${port}/healthz`).catch(() => {});
    if (answer) return { ...server, port, token: '-' };
    if (tries === 100) throw new Error(`${command(port).join(' ')} does not answer`);
    await sleep(50);
  }
}

/** Starts `delayq serve` with a token, as it is used. @param {import('../rig.js').Rig} rig */
async function served(rig) {
  const admin = `127.0.0.1:${await freePort()}`;
  const listen = (port) => [DELAYQ, 'serve', '--listen', `127.0.0.1:${port}`, '--admin-listen', admin];
  const server = await started(listen, rig.env);
  const body = new URLSearchParams({ description: 'bench' });
  const answer = await fetch(`http://${admin}/token/bench`, { method: 'POST', body });
  if (answer.status !== 201) throw new Error(`no token: ${answer.status} ${await answer.text()}`);
  return { ...server, token: (await answer.json()).token };
}

/** Lets http-load.js act on a server. Returns its result, and the CPU time of the server, µs a job. */
async function load(rig, { pid, port, token }, options) {
  const connections = rig.of(CONNECTIONS);
  const before = treeCpu(pid);
  const user = live([process.execPath, LOAD, JSON.stringify({ port, token, connections, ...options })]);
  const late = setTimeout(() => user.end(), LONGEST_LOAD_MS);
  try {
    const result = JSON.parse(await user.next());
    return { ...result, cpu: (treeCpu(pid) - before) / result.all };
  } finally {
    clearTimeout(late);
    await user.end();
  }
}

/** Lets it act on an empty queue, or one with `published` jobs, and counts what became of the jobs. */
async function counted(rig, queue, server, act, published = 0) {
  const keys = await rig.admin.keys('delayq:{bench.jobs}:*');
  if (keys.length > 0) await rig.admin.unlink(keys);
  if (published > 0) await load(rig, server, { act: 'fill', jobs: published });
  const result = await load(rig, server, act);
  const { active, payload } = await queue.counts();
  const consumed = published > 0 ? result.all - result.twice : 0;
  const [acked, held] = act.ack === false ? [0, consumed] : [consumed, 0];
  const kept = (published || result.all) - acked;
  // A job that is active although nobody got it, or has acked it, is lost until its lease ends.
  const lost = Math.max(0, kept - payload) + Math.abs(active - held);
  return { ...result, lost, twice: (result.twice ?? 0) + Math.max(0, payload - kept) };
}

/** What a server of its own costs while 10,000 connections wait. */
async function waiting(rig, redis) {
  const server = await served(rig);
  const options = { port: server.port, token: server.token, connections: rig.size(POLLS), act: 'poll', jobs: WOKEN };
  const line = `ulimit -n ${FILES}; exec "$@"`;
  const users = live(['sh', '-c', line, 'sh', process.execPath, LOAD, JSON.stringify(options)]);
  try {
    await users.next();
    const ms = rig.of({ full: 30_000, quick: 5_000, smoke: 1_000 });
    const look = async () => ({
      cpu: treeCpu(server.pid),
      redis: treeCpu(rig.serverOf('redis')),
      calls: (await rig.commandStats('evalsha')).calls,
    });
    const before = await look();
    await sleep(ms);
    const after = await look();
    const { peakMiB } = usage(server.pid);
    const each = (name) => ((after[name] - before[name]) * 1_000) / ms;
    // They do wait.
    await new Queue(redis, 'bench.jobs').enqueue(Array.from({ length: WOKEN }, (_, i) => ({ payload: i })));
    const { all, twice } = JSON.parse(await users.next('stop\n'));
    if (all !== WOKEN || twice > 0)
      throw new Error(`of ${WOKEN} jobs those who wait got ${all}, ${twice} of them twice`);
    return { peakMiB, cpu: each('cpu') / 10_000, redis: each('redis') / 10_000, calls: each('calls') };
  } finally {
    await Promise.all([users.end(), server.end()]);
  }
}

/** @returns {import('../table.js').Section[]} */
function sections(results, idle, { users, polls }) {
  const of = (name, value) => results[name].map(value);
  const rate = ({ perSecond }) => perSecond;
  const cpu = (round) => round.cpu;
  const sum = (rounds, value) => rounds.reduce((total, round) => total + (value(round) ?? 0), 0);
  const took = (name, ours, value, theirs) => ({
    name,
    ours: of(ours, value),
    theirs: theirs && of(theirs, value),
    alone: !theirs,
  });
  const both = (name, ours, pick, theirs) => [
    took(`${name}: p50`, ours, (round) => pick(round).p50, theirs),
    took(`${name}: p99`, ours, (round) => pick(round).p99, theirs),
  ];
  // Of the bare server: as many jobs as it could answer requests for.
  const row = (name, ours, requests, target, bare = 'bare') => ({
    name,
    ours: of(ours, rate),
    theirs: of(bare, (round) => rate(round) / requests),
    target,
  });
  const rounds = Object.entries(results).flatMap(([name, all]) => (name.includes('bare') ? [] : all));
  return [
    rates(`HTTP, ${users} connections, against a bare node:http server and its requests`, [
      { name: 'publish', ours: of('publish', rate), theirs: of('bare', rate), target: { ratio: 0.5 } },
      { name: 'publish', alone: true, ours: of('publish', rate), target: { value: 10_000 } },
      { name: 'bulk of 64', ours: of('bulk', rate), theirs: of('bulk, bare', rate), target: { value: 80_000 } },
      row('consume + ack, count=1', 'count=1', 2, { value: 5_000 }),
      row('the same, one connection', 'alone', 2, undefined, 'bare, alone'),
      row('consume + one ack of 100 jobs', 'count=100, one ack', 0.02, { value: 30_000 }),
      row('consume of 100 + 100 DELETEs', 'count=100', 1.01),
      { name: 'consume, count=100', alone: true, ours: of('count=100, no acks', rate) },
    ]),
    costs('HTTP answers, against a bare node:http server', 'ms', [
      ...both('publish', 'publish', (round) => round, 'bare'),
      ...both('bulk of 64', 'bulk', (round) => round, 'bulk, bare'),
      ...both('GET, count=1', 'count=1', ({ get }) => get),
      ...both('GET, one connection', 'alone', ({ get }) => get),
      ...both('DELETE, one connection', 'alone', ({ ack }) => ack),
      ...both('GET, count=100', 'count=100', ({ get }) => get),
      ...both('DELETE', 'count=100', ({ ack }) => ack),
    ]),
    costs('CPU time of the server, against the bare one', 'µs a job', [
      took('publish', 'publish', cpu, 'bare'),
      took('bulk of 64', 'bulk', cpu, 'bulk, bare'),
      took('consume + ack, count=1', 'count=1', cpu),
      took('the same, one connection', 'alone', cpu),
      took('consume + one ack of 100 jobs', 'count=100, one ack', cpu),
      took('consume of 100 + 100 DELETEs', 'count=100', cpu),
      took('consume, count=100', 'count=100, no acks', cpu),
    ]),
    costs('HTTP: jobs of all rounds', 'jobs', [
      {
        name: 'lost',
        alone: true,
        ours: [sum(rounds, ({ lost }) => lost)],
        target: { value: 0 },
        note: `of ${sum(rounds, ({ all }) => all).toLocaleString('en')}`,
      },
      { name: 'there twice', alone: true, ours: [sum(rounds, ({ twice }) => twice)], target: { value: 0 } },
    ]),
    costs(`${polls.toLocaleString('en')} waiting connections`, 'see the rows', [
      { name: 'serve, % of a core', alone: true, ours: idle.map(({ cpu }) => cpu), target: { value: 5 } },
      { name: 'serve, MiB at most', alone: true, ours: idle.map(({ peakMiB }) => peakMiB), target: { value: 150 } },
      { name: 'Redis, % of a core', alone: true, ours: idle.map(({ redis }) => redis) },
      { name: 'calls of scripts/s', alone: true, ours: idle.map(({ calls }) => calls) },
    ]),
  ];
}
