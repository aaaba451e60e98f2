import { type Id, idOf, idWord } from '../model/id.js';
import type { DoneJob, State } from '../model/job.js';
import type { Reply } from '../redis/connection.js';
import { STATES } from './answers.js';
import { listAll } from './list.js';
import { known, number, rows, text, time } from './replies.js';
import { run } from './script.js';
import type { Store } from './store.js';
import { parseRecord } from './stored.js';

/** Why a job is dead, as in StoredJob. */
export interface Death {
  readonly reason: string | undefined;
  readonly error: string | undefined;
  readonly attempts: number;
}

/** What is known of an id. */
export interface Look {
  /** Whether the queue keeps jobs that are done. */
  readonly isKept: boolean;
  /** The queue has one partition: nothing moves a job meanwhile. */
  readonly isWhole: boolean;
  /** The state of its job, if there is one. */
  readonly state: State | undefined;
  readonly death: Death | undefined;
  /** How the last job of this id was done. */
  readonly done: DoneJob | undefined;
}

/** Returns what is known of each id. Asks all partitions: a job may have been done before a growth. */
export async function lookUp(store: Store, ids: readonly Id[]): Promise<Look[]> {
  const replies = await store.each((keys) => run(store.redis, 'inspect/finished', keys, [...ids]));
  const parts = replies.map((reply) => rows(reply, 3, 4).map((row, i) => lookIn(ids[i] as Id, row, reply)));
  return ids.map((_, i) => {
    const all = parts.map((part) => part[i] as Omit<Look, 'isWhole'>);
    const live = all.find(({ state }) => state !== undefined);
    const done = all.flatMap((one) => one.done ?? []).sort((a, b) => b.done - a.done)[0];
    const isKept = all.some((one) => one.isKept);
    return { isKept, isWhole: all.length === 1, state: live?.state, death: live?.death, done };
  });
}

function lookIn(
  id: Id,
  [state, at, record, meta]: readonly Reply[],
  [now, keeps, keepMs]: readonly Reply[],
): Omit<Look, 'isWhole'> {
  const isKept = keeps === 1;
  const isThere = isKept && text(at) !== '' && time(at) > number(now) - number(keepMs);
  const is = STATES[text(state)];
  const death = is === 'dead' ? deathIn(text(meta)) : undefined;
  return { isKept, state: is, death, done: isThere ? doneIn(id, time(at), text(record)) : undefined };
}

function deathIn(meta: string): Death {
  const { reason, error, failures, losses } = parseRecord(meta);
  const word = (value: unknown) => (typeof value === 'string' ? value : undefined);
  return { reason: word(reason), error: word(error), attempts: (known(failures) ?? 0) + (known(losses) ?? 0) };
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
    for (const { done } of await lookUp(store, ids.map(idOf))) {
      // What is older than the queue keeps it goes with the next job that is done.
      if (!done) continue;
      if (left-- <= 0) return;
      yield done;
    }
  }
}
