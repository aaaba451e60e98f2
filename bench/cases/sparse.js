// What a job costs that comes alone, one a second: the calls of the consumers that wait for it, and the commands that Redis
// runs for them (MONITOR).
import { setTimeout as sleep } from 'node:timers/promises';
import { PEERS } from '../peers/names.js';
import { live } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave, median } from '../rounds.js';
import { costs, short } from '../table.js';
import { tally } from '../tally.js';

/** A job a second, due in a second: consumers hear of it, or find it by polling. */
const SOON = { every: 1_000, least: 1_000, most: 1_000 };
/** Due in three seconds: consumers find it by polling. */
const LATER = { every: 1_000, least: 3_000, most: 3_000 };

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const program = (peer) => () => cost(rig, peer, () => [rig.actor(peer, 'watch')], SOON);
  const drains = (watchers, { queues = 'bench', when = SOON } = {}) => {
    // With a handler: a job that was written to a pipe is acknowledged a lease later.
    const drain = () => live([DELAYQ, 'drain', '-q', '--watch', queues, '--', 'echo'], rig.env);
    return () => cost(rig, 'delayq', () => Array.from({ length: watchers }, drain), when);
  };
  const others = {
    'drain --watch, due in 3 s': drains(1, { when: LATER }),
    'drain --watch of 3 queues': drains(1, { queues: 'first,second,bench' }),
    '4 of drain --watch': drains(4),
    '16 of drain --watch': drains(16),
  };
  const results = await interleave(1, {
    ...rig.contenders(program),
    beanstalkd: undefined,
    'drain --watch': drains(1),
    ...rig.of({ full: others, quick: others, smoke: {} }),
  });
  const of = (name, value) => results[name]?.map(value);
  const calls = (result) => result.calls;
  // One take, one ack, and the poll of its second; for each more watcher or queue, two looks.
  const targets = { 1: 3, 3: 7, 4: 9, 16: 33 };
  const alone = Object.keys(results).filter((name) => name.includes('drain'));
  return [
    costs('A job a second', 'calls of Redis a job', [
      ...alone.map((name) => ({
        name,
        alone: true,
        ours: of(name, calls),
        target: { value: targets[/\d+(?= of| queues)/.exec(name)?.[0] ?? 1] },
        note: `${short(median(of(name, ({ commands }) => commands)))} commands, those in scripts included`,
      })),
      { name: "delayq's Worker", alone: true, ours: of('delayq', calls), target: { value: targets[1] } },
      ...peers(of, calls),
    ]),
    costs(
      'A job a second, what scripts call included',
      'commands a job',
      peers(of, ({ commands }) => commands),
    ),
  ];
}

/** Rows that compare the worker with its peers. */
function peers(of, value) {
  return Object.entries(PEERS)
    .filter(([peer]) => peer !== 'beanstalkd')
    .map(([peer, name]) => ({
      name: peer === 'naive' ? 'ZRANGEBYSCORE loop, 1 s' : name,
      ours: of('delayq', value),
      theirs: of(peer, value),
    }));
}

/** Lets `peer` enqueue while the consumers wait. Counts from the delivery of the first job to that of the last. */
async function cost(rig, peer, start, when) {
  await rig.flush();
  const consumers = start();
  const n = rig.of({ full: 21, quick: 6, smoke: 3 });
  // Until they have connected and polled once.
  await sleep(2_500);
  const { counts, end } = await tally(rig);
  let delivered = 0;
  let first;
  const last = new Promise((resolve) => {
    for (const { lines } of consumers) {
      lines.on('line', (line) => {
        if (line === 'ready') return;
        delivered += 1;
        if (delivered === 1) first = { ...counts };
        if (delivered === n) resolve({ ...counts });
      });
    }
  });
  await rig.act(peer, 'trickle', { n, ...when });
  const total = await Promise.race([last, sleep(20_000)]);
  end();
  await Promise.all(consumers.map((consumer) => consumer.end()));
  if (!total) throw new Error(`${peer}: got ${delivered} of ${n} jobs`);
  return { calls: (total.calls - first.calls) / (n - 1), commands: (total.commands - first.commands) / (n - 1) };
}
