// One process per job: /bin/true, 8 at a time.
import { installed, timedShell } from '../processes.js';
import { interleave } from '../rounds.js';
import { rates } from '../table.js';

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const n = rig.size(2_000);
  const xargs = (command) => async () =>
    n / (await timedShell(`seq "$1" | xargs -P 8 -n 1 ${command}`, [String(n)])).seconds;
  const speeds = await interleave(rig.rounds(5), {
    xargs: installed('xargs') ? xargs('/bin/true') : undefined,
    // delayq too gives each handler its own session, so that it can be killed with all its children.
    setsid: installed('xargs') && installed('setsid') ? xargs('setsid /bin/true') : undefined,
    delayq: async () => {
      await rig.flush();
      await rig.fill(n);
      return n / (await rig.delayq(['drain', '-q', '-P', '8', 'bench', '--', '/bin/true'])).seconds;
    },
  });
  return [
    rates(`${n.toLocaleString('en')} processes: delayq drain -P 8 Q -- /bin/true`, [
      { name: 'xargs -P 8 -n 1 /bin/true', ours: speeds.delayq, theirs: speeds.xargs, target: { ratio: 0.9 } },
      { name: 'xargs … setsid /bin/true', ours: speeds.delayq, theirs: speeds.setsid },
    ]),
  ];
}
