import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';

/** The name by which Redis knows a script: what a call of it holds. */
export function scriptHash(
  name: 'enqueue' | 'drain' | 'ack' | 'nack' | 'renew' | 'restore' | 'hold' | 'finish',
): string {
  const read = (file: string) => readFileSync(new URL(`../../lua/${file}.lua`, import.meta.url), 'utf8');
  return createHash('sha1').update(['prelude', 'records', name].map(read).join('\n')).digest('hex');
}
