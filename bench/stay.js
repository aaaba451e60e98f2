// Handlers that stay, in four languages, beside a process for each job and a loop at the end of a pipe.
import { installed, timedShell } from './processes.js';
import { DELAYQ } from './rig.js';
import { interleave } from './rounds.js';
import { rates } from './table.js';

/** In each language: a worker that answers each line, a loop that answers none, and a handler of one job; `ms`: how long they work. */
const LANGUAGES = {
  PHP: {
    program: 'php',
    worker: (ms) => [
      '-r',
      `$a = fopen('php://fd/3', 'w'); while (fgets(STDIN) !== false) { ${slept(ms)} fwrite($a, "ok\\n"); }`,
    ],
    loop: (ms) => ['-r', `while (fgets(STDIN) !== false) { ${slept(ms)} }`],
    once: (ms) => ['-r', `fgets(STDIN); ${slept(ms)}`],
  },
  Python: {
    // A manager of versions may stand before it on the PATH, and take longer than Python itself.
    program: installed('/usr/bin/python3') ? '/usr/bin/python3' : 'python3',
    worker: (ms) => ['-c', `${head(ms)}a = os.fdopen(3, 'w', 1)\nfor line in sys.stdin:\n  work()\n  a.write('ok\\n')`],
    loop: (ms) => ['-c', `${head(ms)}for line in sys.stdin: work()`],
    once: (ms) => ['-c', `${head(ms)}sys.stdin.readline()\nwork()`],
  },
  Node: {
    program: 'node',
    worker: (ms) => ['-e', node(ms, `fs.writeSync(3, 'ok\\n')`)],
    loop: (ms) => ['-e', node(ms, '')],
    once: (ms) => ['-e', `fs.readFileSync(0); setTimeout(() => {}, ${ms})`],
  },
  sh: {
    program: 'sh',
    worker: (ms) => ['-c', `while read -r line; do ${nap(ms)} echo ok >&3; done`],
    loop: (ms) => ['-c', `while read -r line; do ${nap(ms) || ':;'} done`],
    once: (ms) => ['-c', `read -r line; ${nap(ms)}`],
  },
};

const slept = (ms) => (ms > 0 ? `usleep(${1_000 * ms});` : '');
const nap = (ms) => (ms > 0 ? `sleep ${ms / 1_000};` : '');
const head = (ms) => `import os, sys, time\ndef work(): ${ms > 0 ? `time.sleep(${ms / 1_000})` : 'pass'}\n`;
const node = (ms, answer) => `let rest = '', busy = Promise.resolve();
process.stdin.on('data', (data) => {
  const lines = (rest + data).split('\\n');
  rest = lines.pop();
  for (const _ of lines) busy = ${ms > 0 ? `busy.then(() => new Promise((resolve) => setTimeout(resolve, ${ms})))` : 'busy'}.then(() => { ${answer} });
});`;

/** How many jobs of each kind: with fewer, the start would be measured. */
const COUNTS = { 0: { stay: 200_000, loop: 100_000, once: 200 }, 5: { stay: 2_000, loop: 300, once: 200 } };

/** @param {import('./rig.js').Rig} rig @returns {Promise<import('./table.js').Section[]>} */
export async function measureStay(rig) {
  const sections = [];
  for (const ms of [0, 5]) {
    const rows = [];
    for (const [name, { program, worker, loop, once }] of Object.entries(LANGUAGES)) {
      if (!installed(program)) {
        rows.push({ name, note: `not installed: ${program}` });
        continue;
      }
      const { stay: many, loop: lines, once: few } = COUNTS[ms];
      const n = {
        stay: rig.size(name === 'sh' ? many / 4 : many),
        loop: rig.size(name === 'sh' ? lines / 4 : lines),
        once: rig.size(few),
      };
      const speeds = await interleave(rig.rounds(3), {
        stay: () => drained(rig, n.stay, [program, ...worker(ms)], '--stay', '-P', '4'),
        each: () => drained(rig, n.once, [program, ...once(ms)], '-P', '4'),
        xargs: async () => {
          const line = `n=$1; shift; seq "$n" | xargs -P 4 -I '{}' sh -c 'echo {} | "$@"' sh "$@"`;
          return n.once / (await timedShell(line, [String(n.once), program, ...once(ms)])).seconds;
        },
        loop: async () => {
          await rig.flush();
          await rig.fill(n.loop);
          const line = 'delayq=$1; shift; "$delayq" drain -q bench | "$@"';
          const { seconds } = await timedShell(line, [DELAYQ, program, ...loop(ms)], { env: rig.env });
          return n.loop / seconds;
        },
      });
      const target = name === 'PHP' && ms === 0 ? { value: 25_000 } : undefined;
      rows.push(
        { name: `${name}: a process for each job`, ours: speeds.stay, theirs: speeds.each, target },
        { name: '  … xargs -P 4', ours: speeds.stay, theirs: speeds.xargs },
        { name: '  … one loop: drain Q | worker', ours: speeds.stay, theirs: speeds.loop },
      );
    }
    const work = ms === 0 ? 'no work' : `${ms} ms of work`;
    sections.push(rates(`delayq drain --stay -P 4 Q -- worker, one job in hand, ${work}`, rows));
  }
  return sections;
}

/** Jobs per second of a drain into handlers. */
async function drained(rig, n, handler, ...options) {
  await rig.flush();
  await rig.fill(n);
  const { seconds } = await rig.delayq(['drain', '-q', ...options, 'bench', '--', ...handler]);
  const acked = Number(await rig.admin.hget('delayq:{bench}:stats', 'acked'));
  if (acked !== n) throw new Error(`${acked} of ${n} jobs were handled`);
  return n / seconds;
}
