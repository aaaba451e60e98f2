// A handler that stays: delayq drain --stay Q -- stayer.js. With CHAOS_WILD, it crashes, stalls, answers twice and eats
// memory, each with this probability.
import { writeSync } from 'node:fs';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { note, resultOf, work } from './task.js';

const wild = Number(process.env.CHAOS_WILD ?? 0);
const happens = (times = 1) => Math.random() < wild * times;
const answer = (...words) => writeSync(Number(process.env.DELAYQ_ANSWER_FD), `${words.join(' ')}\n`);
const kept = [];

for await (const line of createInterface({ input: process.stdin })) {
  const { ticket, ...job } = JSON.parse(line);
  const { payload } = job;
  if (payload.do === 'refuse' || (payload.do === 'fail' && job.attempt === 1)) {
    note('failed', job.id, job.attempt);
    answer(payload.do === 'fail' ? 'retry' : 'dead', ticket, 'no such order');
    continue;
  }
  if (payload.do === 'slow') await sleep(3_000);
  if (happens()) process.exit(1);
  if (happens()) await sleep(600_000);
  await work({ ...job, receipt: ticket }, payload);
  if (happens()) process.kill(process.pid, 'SIGKILL');
  if (happens(10)) kept.push(Buffer.alloc(4 * 1024 * 1024, 1));
  answer('ok', ticket, resultOf(job));
  if (happens(10)) answer(...(happens(50) ? ['what', 'now'] : ['ok', ticket]));
}
