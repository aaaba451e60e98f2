// Enqueues a file of payloads. The other is redis-cli --pipe: it sends the same calls as delayq, recorded beforehand, so it
// has nothing to compute.
import { freemem } from 'node:os';
import { installed, timedShell } from '../processes.js';
import { record } from '../recorder.js';
import { interleave, progress } from '../rounds.js';
import { costs, rates } from '../table.js';

const ENQUEUE = ['enqueue', '--in', '1h', 'bench', '-'];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const n = rig.size(1_000_000);
  const file = await rig.lines(n);
  const calls = rig.file('calls.resp');
  // Loads the script, so that the recording holds only its digest.
  await rig.delayq(['enqueue', '-q', '--in', '1h', 'bench', '{}']);
  await rig.flush();
  await record(rig.port, calls, (port) =>
    rig.delayq(ENQUEUE, { from: [file], env: { DELAYQ_REDIS_URL: `redis://127.0.0.1:${port}` } }),
  );

  const all = async (run) => {
    await rig.flush();
    const result = await run();
    const there = await rig.admin.zcard('delayq:{bench}:pending');
    if (there !== n) throw new Error(`expected ${n} pending jobs, found ${there}`);
    return result;
  };
  const results = await interleave(rig.rounds(5), {
    'redis-cli': installed('redis-cli')
      ? () => all(() => timedShell(`redis-cli -p ${rig.port} --pipe <"$1" || true`, [calls]))
      : undefined,
    delayq: () => all(() => rig.delayq(ENQUEUE, { from: [file] })),
  });
  const speeds = (name) => results[name]?.map(({ seconds }) => n / seconds);
  const million = n.toLocaleString('en');
  const memory = [
    {
      name: `${million} lines`,
      alone: true,
      ours: results.delayq.map(({ peakMiB }) => peakMiB),
      target: { value: 150 },
    },
  ];
  const tenfold = { name: `${(10 * n).toLocaleString('en')} lines`, alone: true, target: { value: 150 } };
  // Ten million jobs are 3 GB in Redis.
  if (freemem() > 5 * 300 * 10 * n) {
    progress(`${10 * n} lines`);
    await rig.flush();
    const { peakMiB } = await rig.delayq(ENQUEUE, { from: Array(10).fill(file) });
    memory.push({ ...tenfold, ours: [peakMiB] });
  } else memory.push({ ...tenfold, note: 'not measured: not enough free memory' });
  await rig.flush();
  return [
    rates(`Enqueue a file of ${million} lines: delayq enqueue Q - < file`, [
      {
        name: 'redis-cli --pipe, same calls',
        ours: speeds('delayq'),
        theirs: speeds('redis-cli'),
        target: { ratio: 0.85 },
      },
    ]),
    costs('Its memory', 'peak MiB resident', memory),
  ];
}
