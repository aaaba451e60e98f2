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
  limits: 'whether a rate is reached by 8 drains and by 50, and by how many calls',
  features: 'what limits, windows and recurring jobs cost, against a plain queue',
  recurring: 'what 1,000 recurring jobs cost, and how late their jobs are',
  http: 'delayq serve under load, and with 10,000 clients that wait',
  recovery: 'what a user sees when servers of a cluster or behind Sentinels fail',
  memory: 'how much memory Redis needs per job',
  start: 'how long a start takes, against node, redis-cli and PHP',
  size: 'how much disk space npm install takes',
};

const HELP = `Usage: npm run bench -- [options] [topic…]

Compares delayq with its peers on private servers on 127.0.0.1 and
prints one table. Default: all topics, about 55 minutes; 11 with --quick.

Topics:
${Object.entries(TOPICS)
  .map(([name, what]) => `  ${name.padEnd(10)} ${what}`)
  .join('\n')}

Options:
  --quick      use a tenth of the sizes: for a first look, not for claims
  --runs N     rounds per case (default: 5, or 3 for long ones)
  --json FILE  also write all samples to FILE
  --write      replace the table in bench/README.md
  -h, --help   show this help`;

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
const topics = Object.keys(TOPICS).filter((topic) => positionals.length === 0 || positionals.includes(topic));

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(130));
prepare();
// Imported after prepare(), which installs and builds what these import.
const { Rig } = await import('./rig.js');
const { progress } = await import('./rounds.js');
const { costs } = await import('./table.js');
const { reported, writeInto } = await import('./report.js');

const rig = new Rig({ quick: values.quick, runs: values.runs ? Number(values.runs) : undefined });
/** @type {import('./table.js').Section[]} */
const sections = [];
const begin = performance.now();
try {
  await rig.open();
  for (const topic of topics) {
    const { measure } = await import(`./cases/${topic}.js`);
    progress(`== ${topic}: ${TOPICS[topic]}`);
    try {
      await rig.flush();
      sections.push(...(await measure(rig)));
    } catch (error) {
      // The other topics are still worth measuring.
      console.error(error);
      process.exitCode = 1;
      sections.push(costs(`${topic} failed`, 'see above', []));
    }
  }
  const report = await reported(sections, { rig, topics: positionals, minutes: (performance.now() - begin) / 60_000 });
  progress('done');
  console.log(report.text);
  if (values.json) writeFileSync(values.json, `${JSON.stringify(report, undefined, 1)}\n`);
  if (values.write) writeInto(new URL('README.md', import.meta.url), report.text);
} finally {
  rig.close();
}
process.exit();
