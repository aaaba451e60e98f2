// The table of README.md, made from that of bench/README.md: `node bench/readme.js` writes it, `--check` compares.
import { readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { stored } from './results.js';
import { parsed } from './table.js';

const FILE = new URL('../README.md', import.meta.url);
const MARKERS = ['<!-- performance -->', '<!-- end of performance -->'];

/** A job in the bench, bytes. */
const PAYLOAD = 115;

/**
 * The rows of README.md: the topic, what is measured, and how its cells are made of rows of the topic. `find` finds a
 * row by the beginning of its section's title and, unless it is the only one, by its own name.
 *
 * @typedef {ReturnType<typeof parsed>[number]} Row
 * @typedef {(section: string, name?: string) => Row} Find
 * @type {[string, (find: Find) => string[]][]}
 */
const ROWS = [
  [
    'bulk',
    (find) => {
      const row = find('Enqueue a file');
      const memory = find('Its memory', `${sizeIn(row.section)} lines`);
      const beside = besides([row, '`redis-cli --pipe` with the same calls']);
      return [`enqueue a file of ${sizeIn(row.section)} lines`, `${rate(row.ours)}, ${mebibytes(memory.ours)}`, beside];
    },
  ],
  [
    'drain',
    (find) => {
      const of = (name) => find('Drain', name);
      const first = of('beanstalkd, reserve + delete');
      const [all, few] = first.section.match(/\d[\d,]*\d/g);
      const peers = [
        [first, 'beanstalkd'],
        [of('bee-queue worker, no-op'), 'bee-queue'],
        [of('BullMQ worker, no-op'), 'BullMQ'],
      ];
      const memory = find('Its memory');
      const beside = `workers with an empty handler, ${few} jobs: ${besides(...peers)}`;
      return [`drain ${all} jobs to a file, at least once`, `${rate(first.ours)}, ${mebibytes(memory.ours)}`, beside];
    },
  ],
  [
    'drain',
    (find) => {
      const row = find('Drain', 'raw socket, the same script');
      return [`the same, at most once`, rate(row.ours), besides([row, 'a raw socket with the same calls'])];
    },
  ],
  [
    'worker',
    (find) => {
      const of = (name) => [find('Worker', name), name];
      const peers = ['beanstalkd', 'bee-queue', 'BullMQ'].map(of);
      return ['worker in a program, retries on', rate(peers[0][0].ours), besides(...peers)];
    },
  ],
  [
    'library',
    (find) => {
      const of = (name) => [find('Enqueue from a program, 100 at a time', name), name];
      const peers = ['bee-queue', 'BullMQ'].map(of);
      return ['enqueue from a program, 100 at a time', rate(peers[0][0].ours), besides(...peers)];
    },
  ],
  [
    'single',
    (find) => {
      const of = (name) => [find('Enqueue one job, a call after another: jobs/s', name), name];
      const peers = ['BullMQ', 'bee-queue'].map(of);
      return ['enqueue from a program, each waited for', rate(peers[0][0].ours), besides(...peers)];
    },
  ],
  [
    'handlers',
    (find) => {
      const row = find('', 'xargs -P 8 -n 1 /bin/true');
      return ['a process for each job, 8 at once', rate(row.ours), besides([row, '`xargs -P 8`'])];
    },
  ],
  [
    'handlers',
    (find) => {
      const row = find('delayq drain --stay -P 4 Q -- worker, one job in hand, no work', 'PHP: a process for each job');
      return ['PHP workers that stay, 4 at once', rate(row.ours), besides([row, 'a process for each job'])];
    },
  ],
  [
    'watch',
    (find) => {
      const p99 = (text) => `${text.split(' / ')[1]} ms`;
      const of = (name) => find('Lateness, ', name);
      const loop = of('ZRANGEBYSCORE loop, 1 s');
      const beside = `BullMQ ${p99(of('BullMQ').theirs)}, a loop that looks each second ${p99(loop.theirs)}`;
      return ['lateness of jobs waited for, p99', p99(loop.ours), beside];
    },
  ],
  [
    'memory',
    (find) => {
      const of = (name) => find('Redis memory', name);
      const beside = ['BullMQ', 'bee-queue'].map((name) => `${name} ${of(name).theirs} B`).join(', ');
      return [`a waiting job of ${PAYLOAD} bytes`, `${of('BullMQ').ours} B`, beside];
    },
  ],
  [
    'start',
    (find) => {
      const of = (name) => find('One start', `enqueue, against ${name}`);
      const [php, cli] = [of('PHP (php-redis)'), of('redis-cli ping')];
      const beside = `**slower**: ${times(php.ratio)} PHP, ${times(cli.ratio)} \`redis-cli\``;
      return ['one start of `enqueue`', `${Math.round(figure(php.ours))} ms`, beside];
    },
  ],
  [
    'idle',
    (find) => {
      const of = (name) => find('A waiting consumer: commands/s', name);
      const beside = ['BullMQ', 'bee-queue'].map((name) => `${name} ${Number(of(name).theirs)}`).join(', ');
      return ['waiting for jobs', `${of('delayq drain --watch').ours} command/s`, `**more**: ${beside}`];
    },
  ],
];

/** The median in a cell: `196k (187k-203k)`. @param {string} cell */
function figure(cell) {
  const [, number, unit = ''] = /^([\d.]+)([kM]?)/.exec(cell) ?? [];
  return Number(number) * { '': 1, k: 1e3, M: 1e6 }[unit];
}

/** Jobs a second. @param {string} cell */
function rate(cell) {
  const n = figure(cell);
  return `${(n < 10_000 ? Number(n.toPrecision(2)) : n).toLocaleString('en')}/s`;
}

const mebibytes = (cell) => `${Math.round(figure(cell))} MiB`;
const times = (ratio) => `${Number(ratio.toPrecision(2))} x`;
/** The first number with commas in a title. */
const sizeIn = (title) => title.match(/\d[\d,]*\d/)[0];

/** Rates as multiples of those of others: first the slower ones. @param {[Row, string][]} rows */
function besides(...rows) {
  const told = (some) => some.map(([{ ratio }, name]) => `${times(ratio)} ${name}`).join(', ');
  const worse = rows.filter(([{ ratio }]) => ratio < 0.95);
  const better = rows.filter((row) => !worse.includes(row));
  return [told(better), worse.length > 0 ? `**slower**: ${told(worse)}` : ''].filter(Boolean).join('; ');
}

/** What stands in README.md between its markers. @param {{ machine: string, results: import('./results.js').Result[] }} all */
export function performanceOf({ machine, results }) {
  const finding = (topic) => {
    const rows = parsed(results.find((result) => result.topic === topic)?.text ?? '');
    return (section, name) => {
      const row = rows.find((one) => one.section.startsWith(section) && (name === undefined || one.name === name));
      if (!row) throw new Error(`bench/README.md has no row ${JSON.stringify(name ?? section)} of the topic ${topic}`);
      return row;
    };
  };
  const lines = ROWS.map(([topic, cellsOf]) => `| ${[...cellsOf(finding(topic)), `\`${topic}\``].join(' | ')} |`);
  const [enqueued, drained] = [finding('bulk')('Enqueue a file'), finding('drain')('Drain')].map(({ ours }) =>
    rate(ours),
  );
  const waiting = (1e9 / figure(finding('memory')('Redis memory').ours) / 1e6).toFixed(1);
  return `One Redis, on ${machine.split(' (')[0]} that it shares with its clients: ${enqueued.replace('/', ' jobs/')} in, ${drained} out, ${waiting} million waiting
jobs in 1 GB, with payloads of ${PAYLOAD} bytes.

| | delayq | beside others, in the same run | topic |
|---|---|---|---|
${lines.join('\n')}`;
}

/** The README with the table of these results. @param {string} text @param {Parameters<typeof performanceOf>[0]} all */
function renewed(text, all) {
  const [from, to] = MARKERS.map((marker) => text.indexOf(marker));
  if (from < 0 || to < from) throw new Error('README.md has no markers for its table');
  return `${text.slice(0, from)}${MARKERS[0]}\n\n${performanceOf(all)}\n\n${text.slice(to)}`;
}

/** Makes the table of README.md from that of bench/README.md. */
export function writeReadme() {
  writeFileSync(FILE, renewed(readFileSync(FILE, 'utf8'), stored()));
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  if (process.argv[2] !== '--check') writeReadme();
  else {
    const text = readFileSync(FILE, 'utf8');
    if (renewed(text, stored()) !== text) {
      console.error('README.md differs from the table in bench/README.md\n  next: node bench/readme.js');
      process.exit(1);
    }
  }
}
