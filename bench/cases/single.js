// What one job costs alone, one call after another: enqueued, and taken and finished.
import { connect, Queue } from '../../dist/lib/index.js';
import { data } from '../jobs.js';
import { PEERS } from '../peers/names.js';
import { interleave } from '../rounds.js';
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
};

/** Jobs a script call, and its calls. */
const CALLS = [
  [1, 2_000],
  [250, 40],
];
const TRIES = 7;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const n = rig.size(10_000);
  const act = (peer, what, options) => async () => {
    await rig.flush();
    return rig.act(peer, what, { n, ...options });
  };
  const consumers = Object.entries(CONSUMERS).filter(([name, { peer = name }]) => rig.has(peer));
  const results = await interleave(rig.rounds(5), {
    bare: act('bare', 'single'),
    ...rig.contenders((peer) => act(peer, 'single')),
    record: act('delayq', 'single', { tries: TRIES }),
    take: act('delayq', 'take'),
    ...Object.fromEntries(consumers.map(([name, { peer = name, act: what }]) => [`take ${name}`, act(peer, what)])),
  });
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
        ...Object.entries(PEERS).map(([peer, name]) => row(name, 'delayq', peer, cost)),
      ]),
    ),
    ...COSTS.map(([cost, unit]) =>
      costs('Take one job and ack it, a job after another', unit, [
        row('bare script (ZADD, HSET)', 'take', 'bare', cost, TAKE[cost]),
        ...Object.entries(CONSUMERS).map(([peer, { name }]) => row(name, 'take', `take ${peer}`, cost)),
      ]),
    ),
    costs('One call of a script', 'µs inside it', await scripts(rig)),
  ];
}

/** Rows with the time inside the scripts that enqueue, take and ack. @param {import('../rig.js').Rig} rig */
async function scripts(rig) {
  const redis = await connect(rig.url);
  const queue = new Queue(redis, 'bench');
  const kinds = CALLS.flatMap(([size, calls]) => [
    { name: `${size} plain`, size, calls, job: {} },
    { name: `${size} with tries`, size, calls, job: { tries: TRIES } },
  ]);
  const results = await interleave(
    rig.rounds(5),
    Object.fromEntries(
      kinds.map((kind) => [kind.name, () => script(rig, queue, { ...kind, calls: rig.size(kind.calls) })]),
    ),
  );
  redis.close();
  return ['enqueue', 'drain', 'ack'].flatMap((step) =>
    kinds.map(({ name }) => ({ name: `${step} of ${name}`, alone: true, ours: results[name].map((us) => us[step]) })),
  );
}

/** Enqueues, takes and acks jobs, `size` a call. @returns {Promise<{ enqueue: number, drain: number, ack: number }>} µs a call */
async function script(rig, queue, { size, calls, job }) {
  await rig.flush();
  // Makes the queue, and loads the scripts.
  await queue.enqueue({ payload: data(0) });
  await queue.ack((await queue.drain()).jobs);
  const perCall = async (step) => {
    const before = await rig.commandStats('evalsha');
    for (let i = 0; i < calls; i += 1) await step(i);
    const after = await rig.commandStats('evalsha');
    if (after.calls - before.calls !== calls) throw new Error(`expected ${calls} calls of a script`);
    return (after.usec - before.usec) / calls;
  };
  const taken = [];
  return {
    enqueue: await perCall((i) => queue.enqueue(Array.from({ length: size }, () => ({ ...job, payload: data(i) })))),
    drain: await perCall(async () => taken.push((await queue.drain({ limit: size })).jobs)),
    ack: await perCall((i) => queue.ack(taken[i])),
  };
}
