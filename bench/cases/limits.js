// Whether a rate is reached by many drains, and how many calls that takes: counted by Redis, once the burst is spent.
import { setTimeout as sleep } from 'node:timers/promises';
import { live } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs, rates, short } from '../table.js';

const RATE = 100;

/** How many drains, and their handler. */
const DRAINS = [
  [8, ''],
  [8, '-- true'],
  [8, '-P 8 -- true'],
  [50, '-- true'],
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const seconds = rig.of({ full: 30, quick: 5, smoke: 1 });
  const drains = ([n, more]) => {
    const words = more.split(' ').filter(Boolean);
    return () => limited(rig, () => live([DELAYQ, 'drain', '-q', '--watch', 'bench', ...words], rig.env), n, seconds);
  };
  const chosen = rig.of({ full: DRAINS, quick: DRAINS, smoke: [[2, '-- true']] });
  const results = await interleave(
    1,
    Object.fromEntries(chosen.map((one) => [`${one[0]} of drain --watch ${one[1]}`.trim(), drains(one)])),
  );
  const all = Object.entries(results);
  return [
    rates(`Jobs of a queue with rate=${RATE}/s, over ${seconds} s`, [
      ...all.map(([name, samples]) => ({
        name,
        alone: true,
        ours: samples.map(({ perSecond }) => perSecond),
        target: { value: RATE * 0.99 },
        note: `${samples.map(({ least, most }) => `${short(least)} to ${short(most)} in a second`)}`,
      })),
    ]),
    costs('The same', 'calls a job, acks included', [
      ...all.map(([name, samples]) => ({ name, alone: true, ours: samples.map(({ calls }) => calls) })),
    ]),
  ];
}

/** Lets `n` drains take jobs that are all due. */
async function limited(rig, start, n, seconds) {
  await rig.flush();
  await rig.delayq(['config', '--create', 'bench', `rate=${RATE}/s`]);
  await rig.act('delayq', 'fill', { n: RATE * (seconds + 40), at: Date.now() });
  const consumers = Array.from({ length: n }, start);
  for (const { lines } of consumers) lines.on('line', () => {});
  // Until all have begun, and the burst is spent.
  while ((await look(rig)).delivered < RATE) await sleep(100);
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
