// Drains to stdout with the command line: with leases and acks against the no-op workers of the peers, at most once against
// a raw socket, and with delayq ack.
import { statSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { timed, timedShell } from '../processes.js';
import { record } from '../recorder.js';
import { DELAYQ } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs, rates } from '../table.js';

const RAW = fileURLToPath(new URL('../raw-drain.js', import.meta.url));

/** The peers' jobs are enqueued without a delay, which saves them a step. */
const PEERS = [
  { peer: 'beanstalkd', name: 'beanstalkd, reserve + delete', ratio: 2.5 },
  { peer: 'bee-queue', name: 'bee-queue worker, no-op', ratio: 5 },
  { peer: 'bullmq', name: 'BullMQ worker, no-op', ratio: 7 },
];

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const [n, few, acked] = [rig.size(1_000_000), rig.size(100_000), rig.size(200_000)];
  const [out, call] = [rig.file('out.jsonl'), rig.file('drain.resp')];
  // Loads the scripts, so that the recording holds the call that delayq repeats.
  await rig.delayq(['enqueue', '-q', 'bench', '{}']);
  await rig.delayq(['drain', '--at-most-once', 'bench']);
  await record(rig.port, call, (port) =>
    rig.delayq(['drain', '--at-most-once', 'bench'], { env: { DELAYQ_REDIS_URL: `redis://127.0.0.1:${port}` } }),
  );
  const size = statSync(await rig.lines(n)).size;

  /** Fails unless `run` writes all jobs to `out`. */
  const toFile = async (run) => {
    await rig.flush();
    await rig.fill(n);
    const { seconds, peakMiB } = await run();
    if (statSync(out).size !== size) throw new Error(`expected ${size} bytes of output, got ${statSync(out).size}`);
    return { rate: n / seconds, peakMiB };
  };
  const shell = async (line, count) => {
    await rig.flush();
    await rig.fill(count);
    const { seconds } = await timedShell(line, [DELAYQ], { env: rig.env });
    const left = await rig.admin.exists('delayq:{bench}:pending', 'delayq:{bench}:active');
    if (left > 0) throw new Error(`${line} left jobs behind`);
    return { rate: count / seconds };
  };
  const peer = (name) => async () => {
    await rig.flush();
    await rig.act(name, 'fill', { n: few });
    return { rate: few / (await rig.act(name, 'drain', { n: few })).seconds };
  };
  const peers = PEERS.filter((one) => rig.has(one.peer));
  const results = await interleave(rig.rounds(3), {
    ...Object.fromEntries(peers.map((one) => [one.peer, peer(one.peer)])),
    file: () => toFile(() => rig.delayq(['drain', '-q', 'bench'], { to: out })),
    pipe: () => shell('"$1" drain -q bench | cat >/dev/null', n),
    raw: () => toFile(() => timed([process.execPath, RAW, String(rig.port), call], { to: out })),
    'at most once': () => toFile(() => rig.delayq(['drain', '-q', '--at-most-once', 'bench'], { to: out })),
    'short pipe': () => shell('"$1" drain -q bench | cat >/dev/null', acked),
    ack: () => shell('"$1" drain -q --lease 5m bench | cat | "$1" ack >/dev/null', acked),
  });
  const of = (name) => results[name]?.map(({ rate }) => rate);
  const against = (ours) =>
    PEERS.map((one) => ({ name: one.name, ours: of(ours), theirs: of(one.peer), target: { ratio: one.ratio } }));
  const million = n.toLocaleString('en');
  return [
    rates(
      `Drain ${million} due jobs, confirmed (peers: ${few.toLocaleString('en')}): delayq drain Q > file`,
      against('file'),
    ),
    rates(
      `Drain ${million} due jobs, confirmed (peers: ${few.toLocaleString('en')}): delayq drain Q | cat`,
      against('pipe'),
    ),
    costs('Its memory', 'peak MiB resident', [
      {
        name: `${million} jobs`,
        alone: true,
        ours: results.file.map(({ peakMiB }) => peakMiB),
        target: { value: 150 },
      },
    ]),
    rates(`Drain ${million} due jobs: delayq drain --at-most-once Q > file`, [
      {
        name: 'raw socket, the same script',
        ours: of('at most once'),
        theirs: of('raw'),
        target: { ratio: 0.85 },
      },
    ]),
    rates(`Drain ${acked.toLocaleString('en')} due jobs: drain --lease 5m Q | cat | delayq ack`, [
      { name: 'delayq drain Q | cat', ours: of('ack'), theirs: of('short pipe'), target: { ratio: 0.5 } },
    ]),
  ];
}
