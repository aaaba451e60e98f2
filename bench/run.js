// Compares delayq with its peers: npm run bench -- --help
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { prepare } from './prepare.js';

/** The topics in the order of the table. cases/NAME.js measures topic NAME. */
const TOPICS = {
  bulk: 'enqueue a million lines, against redis-cli --pipe',
  drain: 'drain a million jobs to stdout, against peers and a raw socket',
  library: 'enqueue from a program, against BullMQ, bee-queue and others',
  single: 'what one job costs alone, a call after another, against the same',
  worker: 'handle jobs in a program, against the same',
  handlers: 'a process per job, against xargs',
  watch: 'how late waiting consumers get their jobs, against the same',
  burst: 'how long until 200,000 jobs that fall due at once are delivered',
  idle: 'what a waiting consumer costs',
  sparse: 'what a job costs that comes alone, one a second',
  scale: 'how long calls take with up to five million pending jobs',
  partitions: 'what partitions cost, on 1, 3 and 6 masters, and how even the load is',
  limits: 'whether a rate is reached, with max-active as well, and by how many calls',
  features: 'what limits, windows, recurring jobs, events and results cost',
  recurring: 'what 1,000 recurring jobs cost, and how late their jobs are',
  http: 'delayq serve under load, and with 10,000 clients that wait',
  recovery: 'what a user sees when servers of a cluster or behind Sentinels fail',
  memory: 'how much memory Redis needs per job',
  start: 'how long a start takes, against node, redis-cli and PHP',
  size: 'how much disk space npm install takes',
};

const HELP = `Usage: npm run bench -- [options] [topic…]

Compares delayq with its peers on private servers on 127.0.0.1 and
prints one table. Default: all topics, about an hour.

Topics:
${Object.entries(TOPICS)
  .map(([name, what]) => `  ${name.padEnd(10)} ${what}`)
  .join('\n')}

Options:
  --quick      use a tenth of the sizes: for a first look, not for claims
  --smoke      use the smallest sizes, and print no figures: whether every
               topic still measures and loses nothing, in under a minute
  --runs N     rounds per case (default: 5, or 3 for long ones)
  --json FILE  also write all samples to FILE
  --write      put these topics into the table of bench/README.md, and
               make the table of README.md from it
  -h, --help   show this help

Exit status: 0 all topics were measured, 1 one could not be, or lost jobs.`;

function fail(why) {
  console.error(`bench: ${why}\n  next: npm run bench -- --help`);
  process.exit(64);
}

function optionsOf(args) {
  try {
    return parseArgs({
      args,
      allowPositionals: true,
      options: {
        quick: { type: 'boolean', default: false },
        smoke: { type: 'boolean', default: false },
        runs: { type: 'string' },
        json: { type: 'string' },
        write: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    return fail(error.message);
  }
}

const { values, positionals } = optionsOf(process.argv.slice(2));
if (values.help) {
  console.log(HELP);
  process.exit();
}
for (const topic of positionals) if (!(topic in TOPICS)) fail(`unknown topic ${JSON.stringify(topic)}`);
if (values.runs && !/^[1-9]\d?$/.test(values.runs)) fail(`--runs must be a number from 1 to 99, not ${values.runs}`);
if (values.quick && values.smoke) fail('--quick and --smoke exclude each other');
if (values.write && (values.quick || values.smoke))
  fail('--write is for the full sizes: leave out --quick and --smoke');
if (values.json && values.smoke) fail('--smoke has no figures to write');
const topics = Object.keys(TOPICS).filter((topic) => positionals.length === 0 || positionals.includes(topic));
const kind = values.smoke ? 'smoke' : values.quick ? 'quick' : 'full';

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(130));
prepare({ peers: kind !== 'smoke' });
// Imported after prepare(), which installs and builds what these import.
const { measured } = await import('./measured.js');
const { machineHere, resultOf, store, stored, written } = await import('./results.js');
const { performanceOf, writeReadme } = await import('./readme.js');

if (values.write && positionals.length > 0 && stored().machine !== machineHere()) {
  fail(
    `the table in bench/README.md is of another machine (${stored().machine}): measure all topics, or without --write`,
  );
}
const begin = performance.now();
const { results, missing } = await measured(topics, { kind, runs: values.runs ? Number(values.runs) : undefined });
const well = results.filter(({ wrong }) => wrong === undefined);
const wrong = results.filter((result) => !well.includes(result));
const failed = wrong.map((result) => `${result.topic} (${result.wrong.split('\n')[0]})`);
const all = { machine: machineHere(), results: well.map(resultOf) };
if (kind === 'smoke') {
  // That it finds its rows; there are none of peers.
  if (well.length === Object.keys(TOPICS).length) performanceOf(all);
} else {
  if (kind === 'quick') console.log('A tenth of the sizes: for a look, not for claims.\n');
  console.log(written({ ...all, results: results.map(resultOf).filter(({ text }) => text !== '') }));
  if (values.json) writeFileSync(values.json, `${JSON.stringify({ ...all, kind, results }, undefined, 1)}\n`);
  if (values.write) {
    store(all, Object.keys(TOPICS));
    writeReadme();
  }
}
const took = Math.ceil((performance.now() - begin) / 1_000);
const left = missing.length > 0 ? `; left out: ${missing.join(', ')}` : '';
const not = failed.length > 0 ? `; failed: ${failed.join(', ')}` : '';
console.log(`${well.length} of ${topics.length} topics measured in ${took} s${left}${not}`);
process.exit(failed.length > 0 ? 1 : 0);
