// A handler of lines: does each job as soon as it has read its line whole. With "pass" it passes the line on, to
// delayq ack.
import { createInterface } from 'node:readline';
import { work } from './task.js';

const pass = process.argv.includes('pass');
// Whoever took the lines has gone: what it has not answered comes again.
process.stdout.on('error', () => process.exit(0));

for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  await work(job, job.payload);
  if (pass && !process.stdout.write(`${line}\n`)) await new Promise((go) => process.stdout.once('drain', go));
}
