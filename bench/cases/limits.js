// Whether limits are reached by many drains, and how many calls that takes: counted by Redis, once the burst is spent.
import { setTimeout as sleep } from 'node:timers/promises';
import { live } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs, rates, short } from '../table.js';

/** What is set, the rate, the share of it to reach, and how many drains (with --watch) take the jobs, and how. */
const QUEUES = [
  {
    ...{ settings: ['rate=100/s'], rate: 100, share: 0.99 },
    drains: [
      [8, ''],
      [8, '-- true'],
      [8, '-P 8 -- true'],
      [50, '-- true'],
    ],
  },
  // Just enough handlers for the rate, then more. In 30 s, a job more or less is 1 to 2 %.
  ...[
    [5, 0.3],
    [2, 0.9],
  ].map(([rate, seconds]) => ({
    ...{ settings: [`rate=${rate}/s`, 'max-active=2'], rate, share: 0.95 },
    drains: [
      [1, `-P 2 -- sleep ${seconds}`],
      [2, `-- sleep ${seconds}`],
      [4, `-- sleep ${seconds}`],
    ],
  })),
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const seconds = rig.of({ full: 30, quick: 5, smoke: 1 });
  const smallest = { ...QUEUES[0], drains: [[2, '-- true']] };
  const sections = [];
  const calls = [];
  for (const { settings, rate, share, drains } of rig.of({ full: QUEUES, quick: QUEUES, smoke: [smallest] })) {
    const cases = drains.map(([n, more]) => {
      const words = more.split(' ').filter(Boolean);
      const start = () => live([DELAYQ, 'drain', '-q', '--watch', 'bench', ...words], rig.env);
      return [`${n} of drain ${more}`.trim(), () => limited(rig, { settings, rate, start, n, seconds })];
    });
    const results = Object.entries(await interleave(1, Object.fromEntries(cases)));
    const rows = (of, more = () => ({})) =>
      results.map(([name, samples]) => ({ name, alone: true, ours: samples.map(of), ...more(samples) }));
    sections.push(
      rates(
        `Jobs of a queue with ${settings.join(' ')}, over ${seconds} s`,
        rows(
          ({ perSecond }) => perSecond,
          (samples) => ({
            target: { value: rate * share },
            note: `${samples.map(({ least, most }) => `${short(least)} to ${short(most)} in a second`)}`,
          }),
        ),
      ),
    );
    calls.push(...rows((sample) => sample.calls));
  }
  return [...sections, costs('The same', 'calls a job, acks included', calls)];
}

/** Lets `n` drains take jobs that are all due. */
async function limited(rig, { settings, rate, start, n, seconds }) {
  await rig.flush();
  await rig.delayq(['config', '--create', 'bench', ...settings]);
  await rig.act('delayq', 'fill', { n: rate * (seconds + 40), at: Date.now() });
  const consumers = Array.from({ length: n }, start);
  for (const { lines } of consumers) lines.on('line', () => {});
  // Until all have begun, and the burst is spent.
  while ((await look(rig)).delivered < rate) await sleep(100);
  await sleep(rig.of({ full: 3_000, quick: 3_000, smoke: 0 }));
  const looks = [await look(rig)];
  for (let i = 0; i < seconds; i += 1) {
    await sleep(1_000);
    looks.push(await look(rig));
  }
  await Promise.all(consumers.map((consumer) => consumer.end()));
  const between = (a, b) => ((b.delivered - a.delivered) * 1_000) / (b.now - a.now);
  const each = looks.slice(1).map((one, i) => between(looks[i], one));
  const [first, last] = [looks[0], looks[seconds]];
  return {
    perSecond: between(first, last),
    least: Math.min(...each),
    most: Math.max(...each),
    calls: (last.calls - first.calls) / (last.delivered - first.delivered),
  };
}

/** The jobs that were delivered, the calls of scripts, and the time of Redis's clock, ms. */
async function look({ admin }) {
  const [[, time], [, delivered], [, info]] = await admin
    .multi()
    .time()
    .hget('delayq:{bench}:stats', 'delivered')
    .info('commandstats')
    .exec();
  return {
    now: Number(time[0]) * 1_000 + Number(time[1]) / 1_000,
    delivered: Number(delivered),
    calls: Number(/cmdstat_evalsha:calls=(\d+)/.exec(info)?.[1]),
  };
}
