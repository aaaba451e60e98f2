// Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- node worker.mjs
import { writeSync } from 'node:fs';
import { appendFile, readFile } from 'node:fs/promises';

const { ORDERS, DELAYQ_ANSWER_FD } = process.env;
const answer = (...words) => writeSync(Number(DELAYQ_ANSWER_FD), `${words.join(' ')}\n`);

async function close(id) {
  const state = await readFile(`${ORDERS}/${id}`, 'utf8');
  if (state.trim() === 'open') await appendFile(`${ORDERS}/closed`, `${id}\n`);
}

async function work({ ticket, payload }) {
  const id = payload?.orderId;
  if (!Number.isInteger(id)) return answer('dead', ticket, 'no order id');
  try {
    await close(id);
    answer('ok', ticket);
  } catch (error) {
    if (error.code === 'ENOENT') answer('dead', ticket, 'no order', id);
    else answer('retry', ticket, '-', error.message.split('\n')[0]);
  }
}

// Not by node:readline: from Node 24 on, it takes U+2028 in a payload for the end of a line.
let begun = '';
for await (const text of process.stdin.setEncoding('utf8')) {
  const lines = (begun + text).split('\n');
  begun = lines.pop();
  for (const line of lines) await work(JSON.parse(line));
}
