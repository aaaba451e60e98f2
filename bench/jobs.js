// The jobs that all contenders get: payloads of 115 bytes.
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';

const TEXT = 'close the order unless it was paid meanwhile, and tell the user so';

/** @param {number} n which job it is @param {number} at when it is due, ms */
export function data(n, at = 1_800_000_000_000) {
  return { orderId: 1e7 + n, at, text: TEXT };
}

/** @param {number} n @param {number} [at] when they are due, ms; left out: now */
export function jobs(n, at) {
  return Array.from({ length: n }, (_, i) => ({ data: data(i, at), at }));
}

/** @param {string} file @param {number} n */
export async function writeLines(file, n) {
  const stream = createWriteStream(file);
  for (let i = 0; i < n; i += 1_000) {
    let text = '';
    for (let j = i; j < Math.min(i + 1_000, n); j += 1) text += `${JSON.stringify(data(j))}\n`;
    if (!stream.write(text)) await once(stream, 'drain');
  }
  stream.end();
  await once(stream, 'finish');
}
