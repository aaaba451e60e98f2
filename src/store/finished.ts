import { type Id, idOf, idWord } from '../model/id.js';
import type { DoneJob, State } from '../model/job.js';
import type { Reply } from '../redis/connection.js';
import { STATES } from './answers.js';
import { listAll } from './list.js';
import { known, number, rows, text, time } from './replies.js';
import { run } from './script.js';
import type { Store } from './store.js';
import { parseRecord } from './stored.js';

/** What is known of an id: the state of its job, if there is one, and how the last one was done. */
export interface Known {
  readonly state: State | undefined;
  readonly done: DoneJob | undefined;
}

/**
 * Returns what is known of each id, and whether the queue keeps jobs that are done. Asks all partitions: a job may have
 * been done before a growth.
 */
export async function lookUp(store: Store, ids: readonly Id[]): Promise<{ isKept: boolean; found: Known[] }> {
  const replies = await store.each((keys) => run(store.redis, 'inspect/finished', keys, [...ids]));
  const parts = replies.map((reply) => rows(reply, 3, 3).map((row, i) => knownIn(ids[i] as Id, row, reply)));
  const found = ids.map((_, i) =>
    parts
      .map((part) => part[i] as Known)
      .reduce((a, b) => ({
        state: a.state ?? b.state,
        done: (a.done?.done ?? 0) >= (b.done?.done ?? 0) ? a.done : b.done,
      })),
  );
  return { isKept: replies.some((reply) => reply[1] === 1), found };
}

function knownIn(id: Id, [state, at, record]: readonly Reply[], [now, isKept, keepMs]: readonly Reply[]): Known {
  const isThere = isKept === 1 && text(at) !== '' && time(at) > number(now) - number(keepMs);
  return { state: STATES[text(state)], done: isThere ? doneIn(id, time(at), text(record)) : undefined };
}

function doneIn(id: Id, done: number, record: string): DoneJob {
  const { due, by, attempts, took, result } = parseRecord(record);
  const word = idWord(id);
  return {
    id: word,
    ...(word === id ? {} : { idBase64: Buffer.from(id as string).toString('base64') }),
    done,
    due: known(due),
    by: typeof by === 'string' ? by : '',
    attempts: known(attempts) ?? 1,
    tookMs: known(took) ?? 0,
    result: typeof result === 'string' ? result : undefined,
  };
}

/** Yields the jobs that were done at times `from` … `to`, ms, and are kept, in the order of these times, at most `limit`. */
export async function* listDone(
  store: Store,
  range: { readonly from?: number | undefined; readonly to?: number | undefined },
  limit = Number.POSITIVE_INFINITY,
): AsyncGenerator<DoneJob> {
  let left = limit;
  for await (const ids of listAll(store, 'finished', range, Number.POSITIVE_INFINITY)) {
    const { found } = await lookUp(store, ids.map(idOf));
    for (const { done } of found) {
      // What is older than the queue keeps it goes with the next job that is done.
      if (!done) continue;
      if (left-- <= 0) return;
      yield done;
    }
  }
}
