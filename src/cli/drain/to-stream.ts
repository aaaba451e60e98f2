import { type Drained, formatDuration, type HandOff, poll, shellWord } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say, sayInParts, visible } from '../terminal/output.js';
import type { Drain } from './drain.js';

/**
 * Hands due jobs to a stream, in the calls that remove them. Returns false if jobs are left because too many entries are
 * not acked. Throws the first failure.
 */
export async function drainToStream(context: Context, drain: Drain, stream: HandOff): Promise<boolean> {
  const { queues, taking, stop, report } = drain;
  const started = performance.now();
  const enough = new AbortController();
  let isFull = false;
  const tellFull = ({ count, group }: NonNullable<Drained['unacked']>) => {
    const key = shellWord(stream.key);
    const look = `redis-cli XINFO GROUPS ${key}`;
    sayInParts(context, `${stream.key} is full: no more jobs are handed to it, and stay pending (--max-unacked)`, {
      why: group
        ? `the group ${visible(group)} has not acked ${many(count, 'job')}`
        : `it has ${many(count, 'job')}, and no group`,
      next: group
        ? `look: ${look}; XAUTOCLAIM takes over what a dead consumer has`
        : `make one: redis-cli XGROUP CREATE ${key} GROUP 0`,
    });
  };
  const batches = poll(queues, {
    ...taking,
    leaseMs: 0,
    stream,
    signal: AbortSignal.any([stop, enough.signal]),
    onDrained: (queue, drained) => {
      const wasFull = isFull;
      isFull = drained.unacked !== undefined;
      if (drained.unacked && !wasFull) tellFull(drained.unacked);
      if (wasFull && !isFull) say(context, `${stream.key}: goes on`);
      if (isFull && !taking.watch) enough.abort();
      taking.onDrained?.(queue, isFull ? { ...drained, state: 'idle' } : drained);
    },
  });
  try {
    for await (const _ of batches);
  } finally {
    const { taken } = report;
    if (taken > 0)
      report.waiting(`handed ${many(taken, 'job')} to ${stream.key} in ${formatDuration(performance.now() - started)}`);
  }
  return !isFull || taking.watch === true;
}
