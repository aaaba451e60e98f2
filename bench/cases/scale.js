// What millions of pending jobs cost: the longest call that blocked Redis, and how the time of a drain grows, with due jobs
// and with none.
import { connect, Queue } from '../../dist/lib/index.js';
import { aboutCalls, logSlowCalls, longestStall, slowest } from '../longest.js';
import { median, progress } from '../rounds.js';
import { costs } from '../table.js';

const SIZES = [10_000, 1_000_000, 5_000_000];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const [due, emptyDrains] = rig.of({ full: [10_000, 300], quick: [10_000, 300], smoke: [500, 10] });
  const redis = await connect(rig.url);
  const queue = new Queue(redis, 'bench');
  const found = [];
  let pending = 0;
  await logSlowCalls(rig);
  for (const full of SIZES) {
    const size = rig.size(full);
    progress(`${size} pending`);
    await rig.fill(size - pending, ['--in', '2h']);
    pending = size;
    const enqueue = await slowest(rig);
    const runs = [];
    for (let i = 0; i < rig.rounds(5); i += 1) runs.push(await drained(rig, queue, due));
    const drain = await slowest(rig);
    const empty = [];
    for (let i = 0; i < emptyDrains; i += 1) {
      const begin = performance.now();
      await queue.drain();
      empty.push((performance.now() - begin) * 1_000);
    }
    found.push({ size, enqueue, drain, empty: [median(empty)], runs });
  }
  redis.close();
  await rig.flush();
  const machine = await longestStall(rig);
  const [small, ...large] = found;
  const at = ({ size }) => `${size.toLocaleString('en')} pending`;
  const grown = (title, unit, samples, ratio) =>
    costs(
      `${title}, against ${at(small)}`,
      unit,
      large.map((one, i) => ({
        name: at(one),
        ours: samples(one),
        theirs: samples(small),
        target: i === large.length - 1 ? { ratio } : undefined,
      })),
    );
  const drain = `Drain ${due.toLocaleString('en')} due jobs`;
  return [
    costs(
      'Longest call, against the longest stall of the machine itself',
      'ms',
      found.flatMap((one) =>
        ['enqueue', 'drain'].map((name) => ({
          name: `${name}, ${at(one)}`,
          ours: [one[name].longest],
          theirs: machine,
          target: { value: 3 },
          note: aboutCalls([one[name]]),
        })),
      ),
    ),
    grown(drain, 'µs of Redis a job', ({ runs }) => runs.map((run) => run.server), 3),
    grown(drain, 'µs of time a job', ({ runs }) => runs.map((run) => run.wall), 3),
    grown('Drain with nothing due', 'µs per round trip', ({ empty }) => empty, 1.3),
  ];
}

/** Enqueues due jobs and drains them. Returns µs per job: of Redis, and in total. */
async function drained(rig, queue, due) {
  await queue.enqueue(Array.from({ length: due }, (_, i) => ({ payload: { i } })));
  const before = await rig.commandStats('evalsha');
  const begin = performance.now();
  let left = due;
  while (left > 0) {
    const { jobs } = await queue.drain({ limit: 250 });
    const answers = await queue.ack(jobs);
    if (jobs.length === 0 || answers.some((answer) => answer !== 'held')) throw new Error(`${left} jobs were lost`);
    left -= jobs.length;
  }
  const wall = performance.now() - begin;
  const { usec } = await rig.commandStats('evalsha');
  return { server: (usec - before.usec) / due, wall: (wall * 1_000) / due };
}
