import type { Finding } from '../../internal.js';
import { fold, grouped, type Paint, type Room, shownId, visible } from '../terminal/output.js';

const WIDTH = 'order-close'.length;

/** The most nodes that are named. */
const NAMED = 3;

/** The names of servers: host:port. */
function nodesOf(addresses: readonly string[]): string {
  const names = addresses.slice(0, NAMED).map((address) => address.replace(/^\w+:\/\//, ''));
  const more = addresses.length - NAMED;
  return names.join(', ') + (more > 0 ? ` and ${grouped(more)} more` : '');
}

/** Formats a finding of doctor. `delayq`: how the commands that it suggests begin. */
export function findingLines(
  finding: Finding,
  { delayq, paint, room }: { delayq: string; paint: Paint; room: Room },
): string[] {
  const { level, queue = 'redis', nodes, samples = [], why, next } = finding;
  const what = visible(nodes ? `${nodesOf(nodes)}: ${finding.what}` : finding.what);
  const colour = { ok: paint.green, skip: paint.dim, warn: paint.yellow.bold, fail: paint.red.bold }[level];
  const more = (name: string, text: string) => `${' '.repeat(6)}${paint.dim(`${name}:`.padEnd(5))} ${visible(text)}`;
  const lines = fold(`${colour(level.padEnd(4))}  ${queue.padEnd(WIDTH)}  ${what}`, room, 8 + WIDTH);
  if (samples.length > 0) lines.push(...fold(more('ids', samples.map(shownId).join(', ')), room, 12));
  if (why !== undefined) lines.push(...fold(more('why', why), room, 12));
  // Not broken: it is to be copied. A function, as a $ in the replacement would mean something.
  const copied = next?.replace(/\bdelayq(?= [a-z])/g, () => delayq);
  return copied === undefined ? lines : [...lines, more('next', copied)];
}
