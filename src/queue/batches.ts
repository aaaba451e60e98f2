import type { Enqueued, NewJob } from '../model/job.js';
import { jsonOf, RawPayload } from '../model/payload.js';
import { MAX_CALL } from '../store/script.js';

/** A batch of this size is full, even if it has few jobs. UTF-16 units: cheaper to count than bytes. */
const BATCH_UNITS = 1024 * 1024;

/** Most batches in flight: enough to keep Redis busy while the next one is prepared. */
const IN_FLIGHT = 8;

/** Most units in flight, whatever the number of batches: all of it must be sent within the time limit of a call. */
const UNITS_IN_FLIGHT = 4 * BATCH_UNITS;

/** The result of one batch. */
export type BatchResult<J> =
  | { readonly batch: readonly J[]; readonly enqueued: Enqueued[] }
  | { readonly batch: readonly J[]; readonly error: unknown };

/**
 * Collects items into batches of at most `max` items (default: {@link MAX_CALL}) and about 1 MiB of payloads and
 * attributes.
 */
export class Batches<T> {
  readonly #full: { items: T[]; units: number }[] = [];
  #last: { items: T[]; units: number } = { items: [], units: 0 };

  add(item: T, units: number, max = MAX_CALL): void {
    this.#last.items.push(item);
    this.#last.units += units;
    if (this.#last.items.length >= max || this.#last.units >= BATCH_UNITS) this.#flush();
  }

  #flush(): void {
    this.#full.push(this.#last);
    this.#last = { items: [], units: 0 };
  }

  get hasFull(): boolean {
    return this.#full.length > 0;
  }

  get isEmpty(): boolean {
    return this.#full.length === 0 && this.#last.items.length === 0;
  }

  /** Removes and returns the next full batch, or, with `partial`, the last one. Undefined if there is none. */
  take(partial: boolean): { readonly items: T[]; readonly units: number } | undefined {
    if (partial && this.#full.length === 0 && this.#last.items.length > 0) this.#flush();
    return this.#full.shift();
  }
}

/**
 * How many jobs with given ids to send together, for each partition. Hashes spread the ids, so a partition hardly ever
 * gets more than {@link MAX_CALL} of them.
 */
const PER_PARTITION = 200;

/** Most jobs in one batch: with small payloads, the jobs themselves take most of the memory. */
const MAX_BATCH = 12_800;

/** Regroups jobs into batches, sends up to `inFlight` of them at once, and yields their results in order. */
export async function* inBatches<J extends NewJob>(
  groups: AsyncIterable<readonly J[]>,
  send: (batch: readonly J[]) => Promise<Enqueued[]>,
  { inFlight = IN_FLIGHT, partitions = () => 1 }: { inFlight?: number | undefined; partitions?: () => number } = {},
): AsyncGenerator<BatchResult<J>> {
  const source = groups[Symbol.asyncIterator]();
  const pull = () => source.next().then((turn) => ({ turn }));
  let next: ReturnType<typeof pull> | undefined = pull();
  const waiting = new Batches<J>();
  const sent: Promise<{ result: BatchResult<J>; units: number }>[] = [];
  let unitsSent = 0;
  while (next || !waiting.isEmpty || sent.length > 0) {
    while (sent.length < inFlight && unitsSent < UNITS_IN_FLIGHT) {
      // A batch with room waits for more jobs while others are in flight. Otherwise it goes: the source may be slow.
      const batch = waiting.take(!next || sent.length === 0);
      if (!batch) break;
      const { items, units } = batch;
      unitsSent += units;
      sent.push(
        send(items).then(
          (enqueued) => ({ result: { batch: items, enqueued }, units }),
          (error: unknown) => ({ result: { batch: items, error }, units }),
        ),
      );
    }
    const ready = await Promise.race([...(next && !waiting.hasFull ? [next] : []), ...(sent[0] ? [sent[0]] : [])]);
    if ('result' in ready) {
      sent.shift();
      unitsSent -= ready.units;
      yield ready.result;
    } else if (ready.turn.done) next = undefined;
    else {
      for (const job of ready.turn.value) {
        // Jobs without an id get ids of one partition.
        const max =
          job?.id === undefined ? MAX_CALL : Math.min(MAX_BATCH, Math.max(MAX_CALL, PER_PARTITION * partitions()));
        waiting.add(...withJson(job), max);
      }
      next = pull();
    }
  }
}

/** A job with its payload as JSON, and the size of payload and attributes. Does not check them: sending does. */
function withJson<J extends NewJob>(job: J): [job: J, units: number] {
  try {
    const attributes = job.attributes ? Object.entries(job.attributes).join().length : 0;
    if (job.payload instanceof RawPayload) return [job, job.payload.bytes.length + attributes];
    const payload = jsonOf(job.payload);
    return [payload === job.payload ? job : { ...job, payload }, payload.text.length + attributes];
  } catch {
    return [job, 0];
  }
}
