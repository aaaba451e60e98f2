// What a consumer costs while it waits for a job due in an hour: the commands it sends (MONITOR marks those that scripts
// call), and the CPU time of its process.
import { setTimeout as sleep } from 'node:timers/promises';
import { PEERS, SERVERS } from '../peers/names.js';
import { live, usage } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs } from '../table.js';
import { tally } from '../tally.js';

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const ms = rig.of({ full: 10_000, quick: 4_000, smoke: 1_000 });
  const program = (peer) => () => watched(rig, peer, () => rig.actor(peer, 'watch'), ms);
  const results = await interleave(Math.min(rig.rounds(2), rig.of({ full: 2, quick: 1, smoke: 1 })), {
    ...rig.contenders(program),
    'drain --watch': () => watched(rig, 'delayq', () => live([DELAYQ, 'drain', '-q', '--watch', 'bench'], rig.env), ms),
  });
  const section = (title, unit, value, target) => {
    const of = (name) => results[name]?.map(value);
    return costs(title, unit, [
      { name: 'delayq drain --watch', alone: true, ours: of('drain --watch'), target },
      { name: "delayq's Worker", alone: true, ours: of('delayq'), target },
      ...Object.entries(PEERS)
        .filter(([peer]) => !(peer in SERVERS) || target.value < 1)
        .map(([peer, name]) => ({
          name: peer === 'naive' ? 'ZRANGEBYSCORE loop, 1 s' : name,
          ours: of('delayq'),
          theirs: of(peer),
        })),
    ]);
  };
  return [
    section('A waiting consumer', 'commands/s', ({ commands }) => commands, { value: 1 }),
    section('A waiting consumer', '% of a CPU', ({ cpu }) => cpu, { value: 0.5 }),
  ];
}

async function watched(rig, peer, start, ms) {
  await rig.flush();
  await rig.act(peer, 'fill', { n: 1, at: Date.now() + 3_600_000 });
  const consumer = start();
  // Until it has connected and polled once.
  await sleep(2_500);
  const { counts, end } = await tally(rig);
  const before = usage(consumer.pid).cpu;
  await sleep(ms);
  const cpu = usage(consumer.pid).cpu - before;
  end();
  await consumer.end();
  return { commands: (counts.calls * 1_000) / ms, cpu: (cpu * 100_000) / ms };
}
