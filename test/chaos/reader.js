// A handler of lines: notes each job as soon as it has read its line whole. With "pass" it passes the line on, to
// delayq ack. What it does besides stands in the payloads.
import { appendFileSync, existsSync, openSync, writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

const { CHAOS_LOG, CHAOS_GATE, CHAOS_RUN } = process.env;
const pass = process.argv.includes('pass');
const log = openSync(CHAOS_LOG, 'a');
// Whoever took the lines has gone: what it has not answered comes again.
process.stdout.on('error', () => process.exit(0));

for await (const line of createInterface({ input: process.stdin })) {
  const start = Date.now();
  const { id, attempt, due, receipt, payload } = JSON.parse(line);
  if (payload.id !== id) appendFileSync(log, `corrupt ${id}\n`);
  if (payload.do === 'wait') {
    appendFileSync(log, `began ${id} ${process.pid}\n`);
    while (!existsSync(CHAOS_GATE)) await sleep(20);
  }
  writeSync(log, `${id} ${attempt} ${due} ${start} ${Date.now()} ${receipt} ${CHAOS_RUN}\n`);
  if (pass && !process.stdout.write(`${line}\n`)) await new Promise((go) => process.stdout.once('drain', go));
}
