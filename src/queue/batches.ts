import type { Enqueued, NewJob } from '../model/job.js';
import { jsonOf } from '../model/payload.js';
import { MAX_CALL } from '../redis/script.js';

/** Payload bytes (UTF-16 units, to be exact) from which on a batch is sent although it has room for more jobs. */
const BATCH_UNITS = 1024 * 1024;

/** Batches that may be on their way at once: enough to keep Redis busy while the next one is put together. */
const IN_FLIGHT = 8;

/** And of their payloads so much, however many more batches are let go at once: all must be sent before a deadline. */
const UNITS_IN_FLIGHT = 4 * BATCH_UNITS;

/** What became of one batch of {@link inBatches}. */
export type BatchResult<J> =
  | { readonly batch: readonly J[]; readonly enqueued: Enqueued[] }
  | { readonly batch: readonly J[]; readonly error: unknown };

/**
 * Cuts the jobs of groups of any size anew into batches, sends several of them at once, and yields what became of each,
 * in order.
 */
export async function* inBatches<J extends NewJob>(
  groups: AsyncIterable<readonly J[]>,
  send: (batch: readonly J[]) => Promise<Enqueued[]>,
  inFlight = IN_FLIGHT,
): AsyncGenerator<BatchResult<J>> {
  const source = groups[Symbol.asyncIterator]();
  const pull = () => source.next().then((turn) => ({ turn }));
  let next: ReturnType<typeof pull> | undefined = pull();
  const waiting: J[] = [];
  /** How many of them were sent: to take batch after batch off the front of a long list would move all the rest each time. */
  let sent = 0;
  const nextBatch = () => firstBatch(waiting.slice(sent, sent + MAX_CALL), unitsOf);
  let ahead = nextBatch();
  const flying: Promise<{ result: BatchResult<J>; units: number }>[] = [];
  let inAir = 0;
  while (next || sent < waiting.length || flying.length > 0) {
    while (sent < waiting.length && flying.length < inFlight && inAir < UNITS_IN_FLIGHT) {
      const { size, units, full } = ahead;
      // A batch with room waits for more jobs, but not while nothing is on its way: a source may trickle.
      if (!full && next && flying.length > 0) break;
      const batch = waiting.slice(sent, sent + size);
      sent += size;
      ahead = nextBatch();
      inAir += units;
      flying.push(
        send(batch).then(
          (enqueued) => ({ result: { batch, enqueued }, units }),
          (error: unknown) => ({ result: { batch, error }, units }),
        ),
      );
    }
    const ready = await Promise.race([...(next && !ahead.full ? [next] : []), ...(flying[0] ? [flying[0]] : [])]);
    if ('result' in ready) {
      flying.shift();
      inAir -= ready.units;
      yield ready.result;
    } else if (ready.turn.done) next = undefined;
    else {
      waiting.splice(0, sent);
      sent = 0;
      for (const job of ready.turn.value) {
        const payload = jsonOf(job.payload);
        waiting.push(payload === job.payload ? job : { ...job, payload });
      }
      ahead = nextBatch();
      next = pull();
    }
  }
}

const unitsOf = ({ payload }: NewJob) => jsonOf(payload).text.length;

/** How many of the jobs, with so many `units` of payload, make the next batch, how large it is, and whether it is full. */
export function firstBatch<J>(
  jobs: readonly J[],
  unitsOf: (job: J) => number,
): { size: number; units: number; full: boolean } {
  let units = 0;
  for (const [i, job] of jobs.entries()) {
    units += unitsOf(job);
    if (i + 1 === MAX_CALL || units >= BATCH_UNITS) return { size: i + 1, units, full: true };
  }
  return { size: jobs.length, units, full: false };
}
