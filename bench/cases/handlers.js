// One process per job, 8 at a time: /bin/true, and programs that take as long as those of users.
import { installed, timedShell } from '../processes.js';
import { interleave } from '../rounds.js';
import { measureStay } from '../stay.js';
import { rates } from '../table.js';
import { latenessOfStay } from './watch.js';

/** How many processes of each handler are started: with fewer, the start of the drain would be measured. */
const REAL = [
  { name: "php -r '1;'", command: ['php', '-r', '1;'], n: 600 },
  { name: 'node -e 0', command: ['node', '-e', '0'], n: 300 },
  { name: 'sh -c, three commands', command: ['sh', '-c', 'cat >/dev/null; date; printf x'], n: 1_000 },
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const n = rig.size(2_000);
  const { delayq, xargs, setsid } = await compared(rig, ['/bin/true'], n, 5);
  const rows = [];
  for (const { name, command, n } of REAL) {
    if (!installed(command[0])) {
      rows.push({ name, note: `not installed: ${command[0]}` });
      continue;
    }
    const speeds = await compared(rig, command, rig.size(n), 7);
    rows.push(
      { name, ours: speeds.delayq, theirs: speeds.xargs, target: { ratio: 0.95 } },
      { name: '  … with setsid', ours: speeds.delayq, theirs: speeds.setsid },
    );
  }
  const late = await latenessOfStay(rig);
  return [
    rates(`${n.toLocaleString('en')} processes: delayq drain -P 8 Q -- /bin/true`, [
      { name: 'xargs -P 8 -n 1 /bin/true', ours: delayq, theirs: xargs, target: { ratio: 0.9 } },
      { name: 'xargs … setsid /bin/true', ours: delayq, theirs: setsid },
    ]),
    rates('delayq drain -P 8 Q -- handler, against xargs -P 8 -n 1 handler', rows),
    ...(await measureStay(rig)),
    late,
  ];
}

/**
 * Processes per second.
 *
 * @param {import('../rig.js').Rig} rig
 * @param {string[]} command
 * @param {number} n how many processes
 * @param {number} rounds
 */
function compared(rig, command, n, rounds) {
  const xargs = (words) => async () =>
    n / (await timedShell('n=$1; shift; seq "$n" | xargs -P 8 -n 1 "$@"', [String(n), ...words])).seconds;
  return interleave(rig.rounds(rounds), {
    xargs: installed('xargs') ? xargs(command) : undefined,
    // delayq too gives each handler its own session, so that it can be killed with all its children.
    setsid: installed('xargs') && installed('setsid') ? xargs(['setsid', ...command]) : undefined,
    delayq: async () => {
      await rig.flush();
      await rig.fill(n);
      const { seconds } = await rig.delayq(['drain', '-q', '-P', '8', 'bench', '--', ...command]);
      const acked = Number(await rig.admin.hget('delayq:{bench}:stats', 'acked'));
      if (acked !== n) throw new Error(`${acked} of ${n} jobs were handled`);
      return n / seconds;
    },
  });
}
