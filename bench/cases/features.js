// What limits, windows, recurring jobs, events and results cost a queue that uses them, for single jobs, a call after
// another; and a plain queue, against that of another build (DELAYQ_BENCH_BEFORE, a directory with dist/).
import { pathToFileURL } from 'node:url';
import * as now from '../../dist/lib/index.js';
import { interleave } from '../rounds.js';
import { costs } from '../table.js';

const JOBS = 2_000;
const DEFINITIONS = 1_000;
const STEPS = ['enqueue', 'drain', 'ack'];

/** How each queue is made what it is, after it was plain. Limits that are never reached, so that all jobs pass. */
const FEATURES = {
  'a limit, turned off': async (operator) => {
    await operator.configure('bench', { maxActive: 1 });
    await operator.configure('bench', { maxActive: null });
  },
  rate: (operator) => operator.configure('bench', { rate: { jobs: 1e6, perMs: 1_000 } }),
  'max-active': (operator) => operator.configure('bench', { maxActive: 1e6 }),
  'once-for': (operator) => operator.configure('bench', { onceFor: 3_600_000 }),
  [`${DEFINITIONS} recurring jobs`]: recurring,
  events: (operator) => operator.configure('bench', { events: 10_000 }),
  'events of deaths': (operator) => operator.configure('bench', { events: 10_000, eventTypes: ['dead', 'lost'] }),
  'keep-done': (operator) => operator.configure('bench', { keepDone: 3_600_000 }),
};

/** Defines recurring jobs that do not fall due meanwhile. */
async function recurring(_, redis) {
  const jobs = new now.Recurring(redis);
  for (let i = 0; i < DEFINITIONS; i += 1) await jobs.put('bench', { id: `daily-${i}`, when: '1d', payload: 0 });
}

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const before = process.env.DELAYQ_BENCH_BEFORE;
  const then = before && (await import(pathToFileURL(`${before}/dist/lib/index.js`).href));
  const results = await interleave(rig.rounds(7), {
    plain: () => single(rig, now),
    ...(then ? { before: () => single(rig, then) } : {}),
    ...Object.fromEntries(Object.entries(FEATURES).map(([name, make]) => [name, () => single(rig, now, make)])),
  });
  const of = (name, step, cost) => results[name]?.map((round) => round[step][cost]);
  const section = (cost, unit) =>
    costs(
      'A queue that uses a feature, against a plain one',
      unit,
      STEPS.flatMap((step) => [
        ...(then
          ? [{ name: `${step}: plain, before`, ours: of('plain', step, cost), theirs: of('before', step, cost) }]
          : []),
        ...Object.keys(FEATURES).map((name) => ({
          name: `${step}: ${name}`,
          ours: of(name, step, cost),
          theirs: of('plain', step, cost),
        })),
      ]),
    );
  return [section('script', 'µs inside a script, a job'), section('wall', 'µs of time a job')];
}

/** Enqueues, takes and acks jobs one by one. Returns µs a job of each step. */
async function single(rig, { connect, Operator, Queue }, prepare = async () => {}) {
  await rig.flush();
  const redis = await connect(rig.url);
  try {
    const queue = new Queue(redis, 'bench');
    await prepare(new Operator(redis), redis);
    // Loads the scripts, and learns the layout.
    await queue.enqueue({ payload: 0 });
    await queue.ack((await queue.drain()).jobs);
    const [taken, answers] = [[], []];
    const measured = async (act) => {
      const before = await rig.commandStats('evalsha');
      const begin = performance.now();
      for (let i = 0; i < rig.size(JOBS); i += 1) await act(i);
      const wall = ((performance.now() - begin) * 1_000) / rig.size(JOBS);
      const after = await rig.commandStats('evalsha');
      return { wall, script: (after.usec - before.usec) / rig.size(JOBS) };
    };
    const found = {
      enqueue: await measured((i) => queue.enqueue({ payload: i })),
      drain: await measured(async () => taken.push((await queue.drain({ limit: 1 })).jobs)),
      ack: await measured(async (i) => answers.push(...(await queue.ack(taken[i])))),
    };
    const held = answers.filter((answer) => answer === 'held').length;
    if (held !== rig.size(JOBS)) throw new Error(`took and acked ${held} of ${rig.size(JOBS)} jobs`);
    return found;
  } finally {
    redis.close();
  }
}
