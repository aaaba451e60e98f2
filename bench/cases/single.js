// What one job costs alone, one call after another: enqueued, and taken and finished.
import { connect, Queue } from '../../dist/lib/index.js';
import { jobs } from '../jobs.js';
import * as bare from '../peers/bare.js';
import { PEERS, SERVERS } from '../peers/names.js';
import { interleave, progress } from '../rounds.js';
import { costs, rates } from '../table.js';

const COSTS = [
  ['wall', 'µs of time a job'],
  ['server', "µs of the server's CPU a job"],
  ['script', 'µs inside scripts a job'],
  ['node', "µs of the program's CPU a job"],
];

/** Targets of ratios: to the bare script, and of jobs/s. */
const ENQUEUE = { wall: 1.4, script: 2.3, node: 1.6 };
const TAKE = { script: 5 };
const RATES = { bullmq: 1.2, 'bee-queue': 0.8 };

/** How each peer takes and finishes single jobs. Its own worker where it has no calls for that. */
const CONSUMERS = {
  bullmq: { act: 'take', name: 'BullMQ, getNextJob + moveToC.' },
  'bullmq worker': { peer: 'bullmq', act: 'work', name: 'BullMQ worker, concurrency 1' },
  'bee-queue': { act: 'work', name: 'bee-queue worker, concurrency 1' },
  beanstalkd: { act: 'take', name: 'beanstalkd, reserve + delete' },
  'graphile-worker': { act: 'work', name: 'Graphile Worker, concurrency 1' },
  'pg-boss': { act: 'take', name: 'pg-boss, fetch + complete' },
};

const TRIES = 7;
/** Turns of each process a round, and calls of scripts: they are short, so there are many. */
const TURNS = 6;
const SCRIPTS = 3;
/** Jobs a turn. */
const TURN = { full: 500, quick: 500, smoke: 10 };
/** Jobs a script call, and its calls a round. */
const CALLS = [
  [1, { full: 500, quick: 500, smoke: 5 }],
  [250, { full: 10, quick: 10, smoke: 2 }],
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const consumers = Object.entries(CONSUMERS).filter(([name, { peer = name }]) => rig.has(peer));
  const results = {
    ...(await inTurns(rig, {
      bare: ['bare', 'single'],
      ...rig.contenders((peer) => [peer, 'single']),
      record: ['delayq', 'single', { tries: TRIES }],
    })),
    ...(await inTurns(rig, {
      'take bare': ['bare', 'single'],
      take: ['delayq', 'take'],
      ...Object.fromEntries(consumers.map(([name, { peer = name, act }]) => [`take ${name}`, [peer, act]])),
    })),
  };
  const of = (name, cost) => results[name]?.map((round) => round[cost]);
  const perSecond = (name) => of(name, 'wall')?.map((us) => 1e6 / us);
  const row = (name, ours, theirs, cost, ratio) => ({
    name,
    ours: of(ours, cost),
    theirs: of(theirs, cost),
    target: ratio && { ratio },
  });
  return [
    rates(
      'Enqueue one job, a call after another',
      Object.entries(PEERS).map(([peer, name]) => ({
        name,
        ours: perSecond('delayq'),
        theirs: perSecond(peer),
        target: RATES[peer] && { ratio: RATES[peer] },
      })),
    ),
    ...COSTS.map(([cost, unit]) =>
      costs('Enqueue one job, a call after another', unit, [
        row('bare script (ZADD, HSET)', 'delayq', 'bare', cost, ENQUEUE[cost]),
        row('bare script; ours with own tries', 'record', 'bare', cost),
        ...Object.entries(PEERS)
          .filter(([peer]) => cost !== 'script' || !(peer in SERVERS))
          .map(([peer, name]) => row(name, 'delayq', peer, cost)),
      ]),
    ),
    ...COSTS.map(([cost, unit]) =>
      costs('Take one job and ack it, a job after another', unit, [
        row('bare script (ZADD, HSET)', 'take', 'take bare', cost, TAKE[cost]),
        ...Object.entries(CONSUMERS)
          .filter(([peer]) => cost !== 'script' || !(peer in SERVERS))
          .map(([peer, { name }]) => row(name, 'take', `take ${peer}`, cost)),
      ]),
    ),
    costs('One call of a script, against a bare one of as many jobs', 'µs inside', await scripts(rig)),
  ];
}

/** Runs all contenders, each in a process of its own, a turn after another. @param {import('../rig.js').Rig} rig */
async function inTurns(rig, contenders) {
  await rig.flush();
  const rounds = TURNS * rig.rounds(5);
  const actors = Object.fromEntries(
    Object.entries(contenders).map(([name, [peer, act, options]]) => [
      name,
      rig.actor(peer, act, { n: rig.share(peer, rig.of(TURN)), rounds, ...options }),
    ]),
  );
  progress(`${Object.keys(actors).length} processes warm up`);
  // Each prints a line when it is ready.
  await Promise.all(Object.values(actors).map((actor) => actor.next()));
  const turn = (actor) => async () => JSON.parse(await actor.next('go\n'));
  const results = await interleave(
    rounds,
    Object.fromEntries(Object.entries(actors).map(([name, actor]) => [name, turn(actor)])),
  );
  await Promise.all(Object.values(actors).map((actor) => actor.end()));
  return results;
}

/** Rows with the time inside the scripts that enqueue, take and ack. @param {import('../rig.js').Rig} rig */
async function scripts(rig) {
  const redis = await connect(rig.url);
  const queue = new Queue(redis, 'bench');
  const least = await bare.open(rig.where);
  const kinds = CALLS.flatMap(([size, calls]) => [
    { name: `${size} plain`, size, calls: rig.of(calls), settings: {} },
    { name: `${size} with tries`, size, calls: rig.of(calls), settings: { tries: TRIES } },
  ]);
  const results = await interleave(
    SCRIPTS * rig.rounds(5),
    Object.fromEntries(kinds.map((kind) => [kind.name, () => script(rig, queue, least, kind)])),
  );
  redis.close();
  await least.close();
  return ['enqueue', 'drain', 'ack'].flatMap((step) =>
    kinds.map(({ name }) => ({
      name: `${step} of ${name}`,
      ours: results[name].map((us) => us[step]),
      theirs: results[name].map((us) => us.bare),
    })),
  );
}

/** Stores jobs by the bare script; then enqueues, takes and acks as many, `size` a call. Returns µs a call. */
async function script(rig, queue, least, { size, calls, settings }) {
  await rig.flush();
  // Makes the queue, and loads the scripts.
  await queue.enqueue({ payload: 0 });
  await queue.ack((await queue.drain()).jobs);
  const perCall = async (step) => {
    const before = await rig.commandStats('evalsha');
    for (let i = 0; i < calls; i += 1) await step(i);
    const after = await rig.commandStats('evalsha');
    if (after.calls - before.calls !== calls) throw new Error(`expected ${calls} calls of a script`);
    return (after.usec - before.usec) / calls;
  };
  const some = jobs(size, Date.now());
  const ours = some.map(({ data, at }) => ({ ...settings, payload: data, at }));
  const taken = [];
  return {
    bare: await perCall(() => (size === 1 ? least.add(some[0].data, some[0].at) : least.addMany(some))),
    enqueue: await perCall(() => queue.enqueue(ours)),
    drain: await perCall(async () => taken.push((await queue.drain({ limit: size })).jobs)),
    ack: await perCall((i) => queue.ack(taken[i])),
  };
}
