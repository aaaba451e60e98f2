// How late waiting consumers get their jobs, by the machine's clock, in whole ms.
import { setTimeout as sleep } from 'node:timers/promises';
import { PEERS } from '../peers/names.js';
import { live } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave, median, quantile } from '../rounds.js';
import { costs, short } from '../table.js';

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const spread = { n: rig.size(5_000), span: rig.size(10_000) };
  const trickle = { n: rig.size(500), every: 20, least: 50, most: 2_000 };
  const programs = (peer, watchers) => () => [rig.actor(peer, 'watch', { watchers })];
  const commands = (watchers) => () =>
    Array.from({ length: watchers }, () => live([DELAYQ, 'drain', '-q', '--watch', 'bench'], rig.env));

  const peers = await interleave(
    rig.rounds(3),
    rig.contenders((peer) => () => lateness(rig, programs(peer, 1), peer, 'spread', spread)),
  );
  const ours = await interleave(
    rig.rounds(3),
    Object.fromEntries(
      rig.of({ full: [1, 4, 16], quick: [1, 4, 16], smoke: [1] }).flatMap((watchers) => [
        [`${watchers} in a program`, () => lateness(rig, programs('delayq', watchers), 'delayq', 'trickle', trickle)],
        [`${watchers} on the command line`, () => lateness(rig, commands(watchers), 'delayq', 'trickle', trickle)],
      ]),
    ),
  );
  const p99 = (rounds) => rounds?.map((round) => round.p99);
  const text = (rounds) =>
    rounds && ['p50', 'p99', 'max'].map((name) => short(median(rounds.map((round) => round[name])))).join(' / ');
  const early = [...peers.delayq, ...Object.values(ours).flat()].reduce((sum, round) => sum + round.early, 0);
  const unit = 'ms late (p50 / p99 / max)';
  return [
    costs(
      `Lateness, ${spread.n.toLocaleString('en')} jobs that fall due within ${spread.span / 1_000} s`,
      unit,
      Object.entries(PEERS).map(([peer, name]) => ({
        name: peer === 'naive' ? 'ZRANGEBYSCORE loop, 1 s' : name,
        ours: p99(peers.delayq),
        theirs: p99(peers[peer]),
        shown: [text(peers.delayq), text(peers[peer])],
        note: peers[peer]?.some((round) => round.early > 0) ? 'some jobs were early' : undefined,
      })),
    ),
    costs('Lateness, a job every 20 ms due 50 ms to 2 s ahead', unit, [
      ...Object.entries(ours).map(([name, rounds]) => ({
        name: `watchers: ${name}`,
        alone: true,
        ours: p99(rounds),
        shown: [text(rounds)],
        target: { value: 5 },
      })),
      { name: 'jobs that were early', alone: true, ours: [early], target: { value: 0 } },
    ]),
  ];
}

/** The same of handlers that stay, which print how late they got their jobs. @param {import('../rig.js').Rig} rig */
export async function latenessOfStay(rig) {
  const worker = `const lines = require('node:readline').createInterface({ input: process.stdin });
    lines.on('line', (line) => { console.log(Date.now() - JSON.parse(line).payload.at); fs.writeSync(3, 'ok\\n'); });`;
  const handlers = (P) => () => [
    live([DELAYQ, 'drain', '-q', '--watch', '--stay', '-P', P, 'bench', '--', 'node', '-e', worker], rig.env),
  ];
  const trickle = { n: rig.size(500), every: 20, least: 50, most: 2_000 };
  const rows = [];
  for (const P of rig.of({ full: ['1', '4'], quick: ['1', '4'], smoke: ['4'] })) {
    const rounds = [];
    for (let i = 0; i < rig.rounds(3); i++) rounds.push(await lateness(rig, handlers(P), 'delayq', 'trickle', trickle));
    const text = ['p50', 'p99', 'max'].map((name) => short(median(rounds.map((round) => round[name])))).join(' / ');
    const p99 = rounds.map((round) => round.p99);
    rows.push({ name: `-P ${P}`, alone: true, ours: p99, shown: [text], target: { value: 5 } });
  }
  return costs('Lateness, --watch --stay, a job every 20 ms', 'ms late (p50 / p99 / max)', rows);
}

/**
 * Lets `peer` enqueue while the consumers wait. For each job a consumer prints how late it was, ms, or the payload.
 *
 * @param {import('../rig.js').Rig} rig
 * @param {() => ReturnType<typeof live>[]} start
 * @param {string} peer
 * @param {'spread' | 'trickle'} act
 * @param {{ n: number }} options
 */
async function lateness(rig, start, peer, act, options) {
  // First: beanstalkd is started anew.
  await rig.flush();
  const consumers = start();
  const late = [];
  const ready = consumers.map(
    (consumer) =>
      new Promise((resolve) => {
        consumer.lines.on('line', (line) => {
          if (line === 'ready') resolve(undefined);
          else late.push(line.startsWith('{') ? Date.now() - JSON.parse(line).at : Number(line));
        });
        // The command line prints nothing before its first job.
        setTimeout(resolve, 2_000);
      }),
  );
  await Promise.all(ready);
  await rig.act(peer, act, options);
  const end = Date.now() + 20_000;
  while (late.length < options.n && Date.now() < end) await sleep(50);
  await Promise.all(consumers.map((consumer) => consumer.end()));
  if (late.length < options.n) throw new Error(`${peer}: got ${late.length} of ${options.n} jobs`);
  return {
    p50: quantile(late, 0.5),
    p99: quantile(late, 0.99),
    max: Math.max(...late),
    early: late.filter((ms) => ms < 0).length,
  };
}
