import {
  countOf,
  DelayqError,
  formatDuration,
  grouped,
  type HandedOver,
  Leases,
  poll,
  type StreamTarget,
} from '../../internal.js';
import type { Context } from '../host/context.js';
import { complain, say } from '../terminal/output.js';
import type { Drain } from './drain.js';

/**
 * Moves due jobs into a stream. Returns false if jobs stayed pending because a group of the stream has not acked enough.
 * Throws the first failure.
 */
export async function drainToStream(context: Context, drain: Drain, stream: StreamTarget): Promise<boolean> {
  const { queues, taking, stop, report } = drain;
  const leases = new Leases();
  // There is nothing to give back.
  stop.addEventListener('abort', () => leases.giveUpAfter(0));
  let stuckSince: number | undefined;
  const jobs = poll(queues, {
    ...taking,
    leaseMs: 0,
    stream,
    signal: stop,
    leases,
    ahead: true,
    onDrained: (queue, drained) => {
      taking.onDrained?.(queue, drained);
      report.handedOver(queue, stream, drained);
      // As long as a run that watches moves some, it waits for nothing but its turn.
      const waits = drained.state === 'unacked' && report.taken !== taking.limit;
      if (waits && stuckSince === undefined && (!taking.watch || countOf(drained) === 0)) {
        stuckSince = performance.now();
        complain(context, tooMany(queue.name, stream, drained.handedOver as HandedOver));
      } else if (!waits && stuckSince !== undefined) {
        const after = formatDuration(performance.now() - stuckSince);
        say(context, `all due jobs of ${queue.name} are in ${stream.key} after ${after}`);
        stuckSince = undefined;
      }
    },
  });
  try {
    // Yields no job, because they are in the stream.
    await jobs.next();
  } finally {
    leases.close();
    report.summary();
  }
  return stuckSince === undefined;
}

function tooMany(queue: string, { key }: StreamTarget, { unacked, slowest }: HandedOver): DelayqError {
  const what = `jobs of ${queue} stay pending: ${key} has as many unacked entries as --max-unacked allows`;
  const entries = unacked === 1 ? '1 entry' : `${grouped(unacked)} entries`;
  if (slowest === '') {
    const next = `let workers read them: XGROUP CREATE ${key} GROUP 0`;
    return new DelayqError('temporary', what, { why: `it has ${entries} and no group`, next });
  }
  return new DelayqError('temporary', what, {
    why: `the group ${slowest} has not acked ${entries}`,
    next:
      `look with XINFO GROUPS ${key}; XAUTOCLAIM takes over what a dead consumer has left, XGROUP DESTROY removes a ` +
      'group that is not used any more',
  });
}
