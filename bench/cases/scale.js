// What millions of pending jobs cost: the longest call that blocked Redis, and how the time of a drain grows, with due jobs
// and with none.
import { connect, Queue } from '../../dist/lib/index.js';
import { installed, output } from '../processes.js';
import { median, progress } from '../rounds.js';
import { costs } from '../table.js';

const SIZES = [10_000, 1_000_000, 5_000_000];
const DUE = 10_000;
const EMPTY_DRAINS = 300;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const redis = await connect(rig.url);
  const queue = new Queue(redis, 'bench');
  const found = [];
  let pending = 0;
  await rig.admin.config('SET', 'slowlog-max-len', '100000', 'slowlog-log-slower-than', '1000');
  for (const full of SIZES) {
    const size = rig.size(full);
    progress(`${size} pending`);
    await rig.admin.slowlog('RESET');
    await rig.admin.config('RESETSTAT');
    await rig.fill(size - pending, ['--in', '2h']);
    pending = size;
    const enqueue = await slowest(rig);
    const runs = [];
    for (let i = 0; i < rig.rounds(5); i += 1) runs.push(await drained(rig, queue));
    const drain = await slowest(rig);
    const empty = [];
    for (let i = 0; i < EMPTY_DRAINS; i += 1) {
      const begin = performance.now();
      await queue.drain();
      empty.push((performance.now() - begin) * 1_000);
    }
    found.push({ size, enqueue, drain, empty: [median(empty)], runs });
  }
  redis.close();
  await rig.admin.config('SET', 'slowlog-log-slower-than', '10000');
  await rig.flush();
  const machine = installed('redis-cli') ? [stalls()] : undefined;
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
  const drain = `Drain ${DUE.toLocaleString('en')} due jobs`;
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
          note: `over 3 ms: ${one[name].slow} of ${one[name].calls.toLocaleString('en')} calls; mean ${one[name].mean.toFixed(2)} ms`,
        })),
      ),
    ),
    grown(drain, 'µs of Redis a job', ({ runs }) => runs.map((run) => run.server), 3),
    grown(drain, 'µs of time a job', ({ runs }) => runs.map((run) => run.wall), 3),
    grown('Drain with nothing due', 'µs per round trip', ({ empty }) => empty, 1.3),
  ];
}

/** Enqueues due jobs and drains them. Returns µs per job: of Redis, and in total. */
async function drained(rig, queue) {
  await queue.enqueue(Array.from({ length: DUE }, (_, i) => ({ payload: { i } })));
  const before = await rig.commandStats('evalsha');
  const begin = performance.now();
  let left = DUE;
  while (left > 0) {
    const { jobs } = await queue.drain({ limit: 250 });
    await queue.ack(jobs);
    left -= jobs.length;
  }
  const wall = performance.now() - begin;
  const { usec } = await rig.commandStats('evalsha');
  return { server: (usec - before.usec) / DUE, wall: (wall * 1_000) / DUE };
}

/** Calls since the last reset: the longest, ms (at least 1), how many took over 3 ms, how many in all, and the mean, ms. */
async function slowest(rig) {
  const entries = await rig.admin.slowlog('GET', 100_000);
  const { calls, usec } = await rig.commandStats('evalsha');
  await rig.admin.slowlog('RESET');
  await rig.admin.config('RESETSTAT');
  const times = entries.filter(([, , , [name]]) => /^eval/i.test(name)).map(([, , us]) => us / 1_000);
  return {
    longest: Math.max(1, ...times),
    slow: times.filter((ms) => ms > 3).length,
    calls,
    mean: usec / calls / 1_000,
  };
}

/** The longest stall of a busy loop within 3 s, ms. */
function stalls() {
  const said = output(['redis-cli', '--intrinsic-latency', '3']);
  return Number([...said.matchAll(/Max latency so far: (\d+)/g)].at(-1)?.[1]) / 1_000;
}
