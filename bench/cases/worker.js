// The library's worker with a no-op handler: at least once, with retries, each job acknowledged.
import { PEERS } from '../peers/names.js';
import { interleave } from '../rounds.js';
import { rates } from '../table.js';

const TARGETS = { beanstalkd: 1.5, 'bee-queue': 3, bullmq: 1 };

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const all = rig.size(100_000);
  const contender = (peer) => async () => {
    const n = rig.share(peer, all);
    await rig.flush();
    await rig.act(peer, 'fill', { n });
    return n / (await rig.act(peer, 'drain', { n })).seconds;
  };
  const speeds = await interleave(rig.rounds(5), rig.contenders(contender));
  return [
    rates(
      `Worker, ${all.toLocaleString('en')} due jobs, async no-op handler`,
      Object.entries(PEERS).map(([peer, name]) => ({
        name: peer === 'naive' ? 'ZRANGEBYSCORE loop, at most once' : name,
        ours: speeds.delayq,
        theirs: speeds[peer],
        target: TARGETS[peer] && { ratio: TARGETS[peer] },
      })),
    ),
  ];
}
