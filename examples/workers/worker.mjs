// Closes orders: ORDERS=/srv/orders delayq drain --watch --stay -P 4 order-close -- node worker.mjs
import { writeSync } from 'node:fs';
import { appendFile, readFile } from 'node:fs/promises';
import { createInterface } from 'node:readline';

const { ORDERS, DELAYQ_ANSWER_FD } = process.env;
const answer = (...words) => writeSync(Number(DELAYQ_ANSWER_FD), `${words.join(' ')}\n`);

async function close(id) {
  const state = await readFile(`${ORDERS}/${id}`, 'utf8');
  if (state.trim() === 'open') await appendFile(`${ORDERS}/closed`, `${id}\n`);
}

for await (const line of createInterface({ input: process.stdin })) {
  const { ticket, payload } = JSON.parse(line);
  try {
    await close(Number(payload.orderId));
    answer('ok', ticket);
  } catch (error) {
    if (error.code === 'ENOENT') answer('dead', ticket, 'no order', payload.orderId);
    else answer('retry', ticket, '-', error.message.split('\n')[0]);
  }
}
