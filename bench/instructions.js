// How many instructions Redis spends on the scripts of a job: unlike times, they hardly move from run to run.
import { mkdtempSync, readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { data } from './jobs.js';
import { prepare } from './prepare.js';
import { installed, output, serve } from './processes.js';
import { median } from './rounds.js';

const HELP = `Usage: node bench/instructions.js [options] [DIR]

Prints how many thousand instructions a job costs inside of EVALSHA, for queues
that use different features. Takes the library from DIR/dist, by default that of
this checkout. Needs valgrind. Takes two minutes.

Options:
  -h, --help  show this help`;

const [WAITING, MANY] = [1_300, 250];
const [ROUNDS, SINGLES, BATCHES] = [3, 400, 8];

const limits = { rate: { jobs: 1e6, perMs: 1_000 }, maxActive: 1e6 };
/** How each queue becomes what it is. */
const KINDS = {
  plain: () => {},
  settings: ({ operator }, name) => operator.configure(name, { tries: 3, lease: 30_000 }),
  window: ({ operator }, name) => operator.configure(name, { onceFor: 3_600_000 }),
  rate: ({ operator }, name) => operator.configure(name, { rate: limits.rate }),
  'max-active': ({ operator }, name) => operator.configure(name, { maxActive: limits.maxActive }),
  recurring: ({ recurring }, name) => define(recurring, name, 1_000),
  events: ({ operator }, name) => operator.configure(name, { events: 10_000 }),
  'events: dead': ({ operator }, name) => operator.configure(name, { events: 10_000, eventTypes: ['dead', 'lost'] }),
  results: ({ operator }, name) => operator.configure(name, { keepDone: 3_600_000 }),
  'turned off': turnedOff,
};

const help = { type: 'boolean', short: 'h' };
const { values, positionals } = parseArgs({ options: { help }, allowPositionals: true });
if (values.help) {
  console.log(HELP);
  process.exit();
}
if (!installed('valgrind')) {
  console.error('instructions: valgrind is not installed');
  process.exit(1);
}
const [directoryOfBuild = fileURLToPath(new URL('..', import.meta.url))] = positionals;
if (positionals.length === 0) prepare({ peers: false });
const library = pathToFileURL(resolve(directoryOfBuild, 'dist/lib/index.js')).href;
const { connect, Operator, Queue, Recurring } = await import(library);
const { freePort } = await import('./rig.js');

/** Recurring jobs that do not fall due meanwhile. */
async function define(recurring, name, count) {
  const ids = Array.from({ length: count }, (_, i) => `daily-${i}`);
  for (const id of ids) await recurring.put(name, { id, when: '1d', payload: 0 });
  return ids;
}

/** Uses every feature, then none of them. */
async function turnedOff({ redis, operator, recurring, queue }, name) {
  await operator.configure(name, { ...limits, onceFor: 1 });
  const ids = await define(recurring, name, 10);
  await queue.enqueue(batch(MANY));
  await queue.ack((await queue.drain({ limit: MANY })).jobs);
  await recurring.remove(name, ids);
  await operator.configure(name, { rate: null, maxActive: null, onceFor: null });
  for (let tries = 1; (await redis.call('EXISTS', `delayq:{${name}}:done`)) === 1; tries += 1) {
    if (tries > 100) throw new Error('ids are still remembered');
    await queue.enqueue({ payload: 0 });
    await queue.ack((await queue.drain({ limit: 1 })).jobs);
  }
}

/** Jobs for one call. */
const batch = (count, more) => Array.from({ length: count }, (_, i) => ({ payload: data(i), ...more }));

/** The figures of a queue, by what is done. @param {() => number} counted instructions since it was called last */
async function measure(queue, counted) {
  const figures = {};
  const step = async (name, times, jobs, act) => {
    counted();
    for (let i = 0; i < times; i += 1) await act(i);
    figures[name] = counted() / times / jobs / 1_000;
  };
  const waiting = [];
  const putOff = (more) => async (i) => waiting.push(await queue.enqueue({ payload: data(i), in: '1h', ...more }));
  await step('enqueue of 1', SINGLES, 1, putOff());
  await step('the same, with own tries', SINGLES, 1, putOff({ tries: 3 }));
  await queue.finish(waiting.map(({ id }) => id));
  for (const [name, more] of Object.entries({ 'take and ack of 1': {}, 'the same, with a record': { tries: 3 } })) {
    await queue.enqueue(batch(SINGLES, more));
    await step(name, SINGLES, 1, async () => {
      const [answer] = await queue.ack((await queue.drain({ limit: 1 })).jobs);
      if (answer !== 'held') throw new Error('no job was taken and acked');
    });
  }
  await step('a take of nothing', SINGLES, 1, () => queue.drain({ limit: 1 }));
  const held = [];
  await step('enqueue of 250, a job', BATCHES, MANY, () => queue.enqueue(batch(MANY)));
  await step('take of 250, a job', BATCHES, MANY, async () => held.push((await queue.drain({ limit: MANY })).jobs));
  if (held.flat().length !== BATCHES * MANY) throw new Error(`took ${held.flat().length} jobs`);
  await step('ack of 250, a job', BATCHES, MANY, (i) => queue.ack(held[i]));
  return figures;
}

const directory = mkdtempSync(join(tmpdir(), 'delayq-instructions-'));
const port = await freePort();
const flags = ['--bind', '127.0.0.1', '--port', String(port), '--save', '', '--dir', directory];
const toggles = ['--toggle-collect=evalShaCommand', '--collect-atstart=no', `--callgrind-out-file=${directory}/out`];
const prefix = `--vgdb-prefix=${directory}/vgdb`;
serve(['valgrind', '--tool=callgrind', ...toggles, prefix, 'redis-server', ...flags], { remove: directory });

let redis;
for (const begin = performance.now(); !redis; ) {
  redis = await connect({ host: '127.0.0.1', port }).catch((error) => {
    if (performance.now() - begin > 60_000) throw error;
    return sleep(200);
  });
}
const [, pid] = /process_id:(\d+)/.exec(String(await redis.call('INFO', 'server')));
/** Instructions since the last call: a dump begins to count anew. */
const counted = () => {
  const before = new Set(readdirSync(directory));
  output(['callgrind_control', prefix, '-d', pid]);
  const [dump] = readdirSync(directory).filter((name) => name.startsWith('out.') && !before.has(name));
  return Number(/^totals: (\d+)/m.exec(readFileSync(join(directory, dump), 'utf8'))[1]);
};
const table = {};
for (const [kind, become] of Object.entries(KINDS)) {
  console.error(`instructions: ${kind}`);
  const name = kind.replace(' ', '-');
  const queue = new Queue(redis, name);
  await queue.enqueue(batch(WAITING, { in: '1h' }));
  await become({ redis, operator: new Operator(redis), recurring: new Recurring(redis), queue }, name);
  // The first round warms up.
  const rounds = [];
  for (let i = 0; i <= ROUNDS; i += 1) rounds.push(await measure(queue, counted));
  for (const step of Object.keys(rounds[0])) {
    table[step] = [...(table[step] ?? []), median(rounds.slice(1).map((round) => round[step])).toPrecision(3)];
  }
}
redis.close();
const cells = (head, row) => head.padEnd(25) + row.map((cell) => cell.padStart(11)).join('');
console.log(cells('thousand instructions', Object.keys(KINDS)));
for (const [step, row] of Object.entries(table)) console.log(cells(step, row));
process.exit();
