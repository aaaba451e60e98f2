// Enqueues from a program: with 100 concurrent callers, and with the bulk call. Jobs are due in an hour.
import { PEERS } from '../peers/names.js';
import { interleave } from '../rounds.js';
import { rates } from '../table.js';

const WAYS = [
  ['hundred', '100 at a time', 50_000],
  ['bulk', 'many in one call', 100_000],
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const sections = [];
  for (const [act, title, full] of WAYS) {
    const contender = (peer) => async () => {
      const n = rig.share(peer, rig.size(full));
      await rig.flush();
      const { seconds, stored } = await rig.act(peer, act, { n });
      const pending = peer === 'delayq' ? await rig.admin.zcard('delayq:{bench}:pending') : stored;
      if (pending !== stored) throw new Error(`${pending} of ${stored} jobs are pending`);
      return n / seconds;
    };
    const speeds = await interleave(rig.rounds(5), rig.contenders(contender));
    sections.push(
      rates(
        `Enqueue from a program, ${title}`,
        Object.entries(PEERS).map(([peer, name]) => ({
          name,
          ours: speeds.delayq,
          theirs: speeds[peer],
          // The goal is to be the fastest of the Node libraries.
          target: ['bullmq', 'bee-queue'].includes(peer) ? { ratio: 1 } : undefined,
        })),
      ),
    );
  }
  return sections;
}
