// Enqueue from a program: one after the other, by 100 callers at a time, and by the call for many. Jobs due in an hour.
import { PEERS } from '../peers/names.js';
import { interleave } from '../rounds.js';
import { rates } from '../table.js';

const WAYS = [
  ['one', 'one by one', 10_000],
  ['hundred', '100 at a time', 50_000],
  ['bulk', 'many in one call', 100_000],
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const sections = [];
  for (const [act, title, full] of WAYS) {
    const n = rig.size(full);
    const contender = (peer) => async () => {
      await rig.flush();
      return n / (await rig.act(peer, act, { n })).seconds;
    };
    const speeds = await interleave(rig.rounds(5), rig.contenders(contender));
    sections.push(
      rates(
        `Enqueue from a program, ${title}`,
        Object.entries(PEERS).map(([peer, name]) => ({
          name,
          ours: speeds.delayq,
          theirs: speeds[peer],
          // First of the Node peers.
          target: ['bullmq', 'bee-queue'].includes(peer) ? { ratio: 1 } : undefined,
        })),
      ),
    );
  }
  return sections;
}
