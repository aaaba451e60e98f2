// A handler of lines: does each job as soon as its line is complete. With "pass" it then prints the line, for
// delayq ack.
import { readSync } from 'node:fs';
import { work } from './task.js';

const pass = process.argv.includes('pass');
// The reader of our lines has gone: jobs that it has not acked are delivered again.
process.stdout.on('error', () => process.exit(0));

/** Reads at most 64 KiB ahead. A stream would read on while a job is being done. */
function* lines() {
  const bytes = Buffer.alloc(64 * 1024);
  let rest = Buffer.alloc(0);
  for (let n = readSync(0, bytes); n > 0; n = readSync(0, bytes)) {
    let text = Buffer.concat([rest, bytes.subarray(0, n)]);
    for (let end = text.indexOf(10); end >= 0; end = text.indexOf(10)) {
      yield text.subarray(0, end).toString();
      text = text.subarray(end + 1);
    }
    rest = Buffer.from(text);
  }
}

for (const line of lines()) {
  const job = JSON.parse(line);
  await work(job, job.payload);
  if (pass && !process.stdout.write(`${line}\n`)) await new Promise((go) => process.stdout.once('drain', go));
}
