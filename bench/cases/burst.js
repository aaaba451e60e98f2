// Many jobs that fall due within one second, while millions wait: how long until the last is delivered.
import { readFileSync, statSync } from 'node:fs';
import { freemem } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { aboutCalls, logSlowCalls, longestStall, slowest } from '../longest.js';
import { live, treeCpu } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave, median, progress, quantile } from '../rounds.js';
import { costs, short } from '../table.js';

const SPAN = 1_000;
/** Room to leave free for each pending job: twice what it takes. */
const BYTES = 600;
/** How often the sizes of files are read, ms. */
const LOOK = 5;
const LONGEST = 60_000;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const drainers = rig.of({ full: [1, 4, 16], quick: [1, 4, 16], smoke: [2] });
  const n = rig.size(200_000);
  const wanted = rig.size(5_000_000);
  const room = Math.floor(Math.min(freemem(), process.constrainedMemory() || Number.POSITIVE_INFINITY) / BYTES);
  const pending = Math.min(wanted, room);
  if (pending < wanted) progress(`memory for ${pending} of ${wanted} pending jobs`);
  const begin = Date.now();
  await rig.fill(pending, ['--in', '2h']);
  // Enqueuing takes its share of that time; it must be over before the jobs fall due.
  const ahead = 4_000 + (4 * n * (Date.now() - begin)) / pending;
  await logSlowCalls(rig);
  const results = await interleave(
    rig.rounds(3),
    Object.fromEntries(
      drainers.flatMap((drains) => [
        [`${drains} in programs`, () => burst(rig, programs(rig, drains), { n, pending, ahead })],
        [`${drains} on the command line`, () => burst(rig, commands(rig, drains), { n, pending, ahead })],
      ]),
    ),
  );
  const machine = await longestStall(rig);
  const what = `${n.toLocaleString('en')} jobs fall due within 1 s, ${pending.toLocaleString('en')} later`;
  const section = (title, unit, row) =>
    costs(
      title,
      unit,
      Object.entries(results).map(([name, rounds]) => ({ name: `drains: ${name}`, ...row(rounds, name) })),
    );
  const text = (rounds) => ['p50', 'p99'].map((name) => short(median(rounds.map((round) => round[name])))).join(' / ');
  return [
    section(what, 's to the last delivery', (rounds, name) => ({
      alone: true,
      ours: rounds.map(({ last }) => last),
      target: name.startsWith('1 ') ? { value: 2.5 } : undefined,
    })),
    section('Their lateness', 'ms late (p50 / p99)', (rounds) => ({
      alone: true,
      ours: rounds.map(({ p50 }) => p50),
      shown: [text(rounds)],
    })),
    section('CPU time of Redis meanwhile', 'µs a job', (rounds) => ({
      alone: true,
      ours: rounds.map(({ cpu }) => cpu),
    })),
    section('Longest call meanwhile, against the longest stall of the machine itself', 'ms', (rounds) => ({
      ours: rounds.map(({ slow }) => slow.longest),
      theirs: machine,
      target: { value: 3 },
      note: aboutCalls(rounds.map(({ slow }) => slow)),
    })),
  ];
}

/** Library workers, each in a process of its own. */
function programs(rig, drains) {
  const actors = Array.from({ length: drains }, () => rig.actor('delayq', 'tally'));
  return {
    ready: () => Promise.all(actors.map((actor) => actor.next())),
    delivered: async () =>
      (await Promise.all(actors.map((actor) => actor.next('?\n')))).map((line) => JSON.parse(line)),
    end: () => Promise.all(actors.map((actor) => actor.end())),
  };
}

/** `delayq drain --watch Q > file`. When a job came is known from the size of the file at that time. */
function commands(rig, drains) {
  const files = Array.from({ length: drains }, (_, i) => rig.file(`burst-${i}.jsonl`));
  const line = 'exec "$0" drain -q --watch bench >"$1"';
  const children = files.map((file) => live(['sh', '-c', line, DELAYQ, file], rig.env));
  const sizes = files.map(() => [{ at: 0, size: 0 }]);
  const look = setInterval(() => {
    for (const [i, file] of files.entries()) {
      const size = statSync(file, { throwIfNoEntry: false })?.size ?? 0;
      if (size > sizes[i].at(-1).size) sizes[i].push({ at: Date.now(), size });
    }
  }, LOOK);
  return {
    // They print nothing before their first job.
    ready: () => sleep(2_000),
    delivered: async () => {
      await sleep(10 * LOOK);
      clearInterval(look);
      return files.map((file, i) => tallied(readFileSync(file, 'utf8'), sizes[i]));
    },
    end: () => Promise.all(children.map((child) => child.end())),
  };
}

/** @param {string} text one payload a line @param {{ at: number, size: number }[]} sizes */
function tallied(text, sizes) {
  const late = {};
  let [end, step] = [0, 0];
  for (const line of text.trimEnd().split('\n').filter(Boolean)) {
    end += Buffer.byteLength(line) + 1;
    while (sizes[step].size < end) step += 1;
    const ms = sizes[step].at - JSON.parse(line).at;
    late[ms] = (late[ms] ?? 0) + 1;
  }
  return { last: sizes[step].at, late };
}

/** Enqueues n jobs due `ahead` ms from now, and waits until they are all delivered and confirmed. */
async function burst(rig, drains, { n, pending, ahead }) {
  try {
    await drains.ready();
    const { first: due } = await rig.act('delayq', 'spread', { n, ahead, span: SPAN });
    if (Date.now() > due)
      throw new Error('enqueuing took too long: the first jobs were due before the last was enqueued');
    await slowest(rig);
    const before = treeCpu(rig.serverOf('delayq'));
    await sleep(due - Date.now());
    for (;;) {
      const [waiting, active] = await Promise.all(
        ['pending', 'active'].map((set) => rig.admin.zcard(`delayq:{bench}:${set}`)),
      );
      if (waiting === pending && active === 0) break;
      if (Date.now() > due + LONGEST) throw new Error(`${waiting - pending} jobs were not delivered within a minute`);
      await sleep(50);
    }
    const cpu = (treeCpu(rig.serverOf('delayq')) - before) / n;
    const slow = await slowest(rig);
    const delivered = await drains.delivered();
    const late = delivered.flatMap((one) =>
      Object.entries(one.late).flatMap(([ms, count]) => Array(count).fill(Number(ms))),
    );
    if (late.length !== n) throw new Error(`${late.length} of ${n} jobs were delivered`);
    const last = (Math.max(...delivered.map((one) => one.last)) - due) / 1_000;
    return { last, p50: quantile(late, 0.5), p99: quantile(late, 0.99), cpu, slow };
  } finally {
    await drains.end();
  }
}
