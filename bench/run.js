// Measures delayq side by side with what else there is: npm run bench -- --help
import { writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { prepare } from './prepare.js';

/** In the order of the table. What each one measures stands in cases/NAME.js. */
const TOPICS = {
  bulk: 'enqueue a million lines, against redis-cli --pipe',
  drain: 'drain a million jobs to stdout, against beanstalkd, bee-queue, BullMQ and a raw socket',
  library: 'enqueue from a program, against BullMQ, bee-queue, beanstalkd and a plain sorted set',
  worker: 'handle jobs in a program, against the same',
  handlers: 'a process for each job, against xargs',
  watch: 'how late jobs come to consumers that wait, against the same',
  idle: 'what waiting costs',
  scale: 'how calls grow with up to five million pending jobs',
  memory: 'what Redis needs for a job',
  start: 'how long the command line takes to start, against node, redis-cli and PHP',
  size: 'what npm install puts on the disk',
};

const HELP = `Usage: npm run bench -- [options] [topic…]

Runs delayq and its peers side by side, on servers of its own on 127.0.0.1, and prints one table. Without topics: all of them,
in about 30 minutes; --quick in about 4.

Topics:
${Object.entries(TOPICS)
  .map(([name, what]) => `  ${name.padEnd(10)} ${what}`)
  .join('\n')}

Options:
  --quick      everything ten times smaller: for a look, not for claims
  --runs N     rounds of each case (default: 5; 3 of the long ones)
  --json FILE  write all samples there as well
  --write      put the table into bench/README.md
  -h, --help`;

function fail(why) {
  console.error(`bench: ${why}; npm run bench -- --help says more`);
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
for (const topic of positionals) if (!(topic in TOPICS)) fail(`there is no topic ${JSON.stringify(topic)}`);
if (values.runs && !/^[1-9]\d?$/.test(values.runs)) fail(`--runs is a number from 1 to 99, not ${values.runs}`);
const topics = Object.keys(TOPICS).filter((topic) => positionals.length === 0 || positionals.includes(topic));

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.once(signal, () => process.exit(130));
prepare();
// Only now is there what these import.
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
      // The others are worth having.
      console.error(error);
      process.exitCode = 1;
      sections.push(costs(`${topic} could not be measured`, 'see above', []));
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
