import { formatDuration, type HandOff, poll, queueWord, shellWord } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say, sayInParts } from '../terminal/output.js';
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
  const name = queueWord(queues[0]?.name ?? '');
  const what = `${stream.key} has ${many(stream.maxUnacked, 'job')} that are not acked`;
  const tellFull = () =>
    sayInParts(context, what, {
      why: `no more jobs of ${name} are handed to it (--max-unacked); they stay pending`,
      next: `see how far its groups are: redis-cli XINFO GROUPS ${shellWord(stream.key)}; XAUTOCLAIM takes over what dead consumers left`,
    });
  const batches = poll(queues, {
    ...taking,
    leaseMs: 0,
    stream,
    signal: AbortSignal.any([stop, enough.signal]),
    onDrained: (queue, drained) => {
      const wasFull = isFull;
      isFull = drained.state === 'full';
      if (isFull && !wasFull) tellFull();
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
