// The memory that Redis needs for a pending job with a payload of 115 bytes.
import { PEERS, SERVERS } from '../peers/names.js';
import { progress } from '../rounds.js';
import { costs } from '../table.js';

/** Hash tables double: at these sizes, and at an eighth of them, all tables are equally full. */
const [OURS, THEIRS] = [1_000_000, 250_000];
const PARTS = { full: 1, quick: 8, smoke: 256 };

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const size = (n) => Math.ceil(n / rig.of(PARTS));
  const bytes = async (n, fill) => {
    await rig.flush();
    const before = await rig.memory();
    await fill();
    return [((await rig.memory()) - before) / n];
  };
  progress('delayq');
  const ours = await bytes(size(OURS), () => rig.fill(size(OURS), ['--in', '1h']));
  const rows = [{ name: `${size(OURS).toLocaleString('en')} jobs`, alone: true, ours, target: { value: 300 } }];
  for (const [peer, name] of Object.entries(PEERS)) {
    if (peer in SERVERS) continue;
    progress(peer);
    const n = size(THEIRS);
    const at = Date.now() + 3_600_000;
    const theirs = rig.has(peer) ? await bytes(n, () => rig.act(peer, 'fill', { n, at })) : undefined;
    rows.push({ name, ours, theirs, target: { ratio: 1 } });
  }
  return [costs('Redis memory of a pending job', 'bytes', rows)];
}
