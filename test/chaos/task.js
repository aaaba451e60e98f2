// What the handlers in JavaScript share: the log, and what payloads tell them to do.
import { appendFileSync, existsSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

const { CHAOS_LOG, CHAOS_GATE, CHAOS_PAUSE = '0', CHAOS_RUN } = process.env;

/** Appends a line to the log in one write. */
export const note = (...words) => appendFileSync(CHAOS_LOG, `${words.join(' ')}\n`);

/** Does a job and logs it. */
export async function work({ id, attempt, due, receipt }, payload) {
  const start = Date.now();
  // The payload contains its own length. It has no id if the server makes that.
  if ((payload.id !== '' && payload.id !== id) || Number(payload.bytes) !== JSON.stringify(payload).length)
    note('corrupt', id);
  if (payload.do === 'wait') {
    note('began', id, process.pid);
    // Without a log the suite has ended, and nobody will open the gate.
    while (!existsSync(CHAOS_GATE)) {
      await sleep(20);
      if (!existsSync(CHAOS_LOG)) process.exit(1);
    }
  }
  if (CHAOS_PAUSE !== '0') await sleep(Number(CHAOS_PAUSE) * 1_000);
  note(id, attempt, due, start, Date.now(), receipt, CHAOS_RUN, payload.version ?? '');
}

/** What comes out of a job, where its handler can say it. */
export const resultOf = ({ id, attempt }) => `${id} ${attempt}`;
