import { type Id, idOf } from '../model/id.js';
import type { State } from '../model/job.js';
import type { Reply } from '../redis/connection.js';
import * as looks from '../store/inspect.js';
import { text } from '../store/replies.js';
import { SLICE } from '../store/script.js';
import type { Store } from '../store/store.js';
import { type Raw, raw, stored } from '../store/stored.js';
import type * as moves from '../store/transfer.js';
import { containsText, type Filter } from './inspector.js';

/** A score as Redis writes it. */
export const SCORE = /^-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)$/;

export interface Exported extends moves.Parcel {
  /** Who held an active job, which is exported in the state it was taken from; undefined for other jobs. */
  readonly held: 'consumer' | 'move' | undefined;
}

/** Some jobs of a queue, and the ids that cannot be exported because they have no payload. */
export interface ExportSlice {
  readonly jobs: readonly Exported[];
  readonly orphans: readonly Id[];
}

/** Yields the selected jobs of a queue, byte for byte; see {@link Transfer.export}. */
export async function* exportJobs(store: Store, filter: Filter): AsyncGenerator<ExportSlice> {
  const now = await store.redis.now();
  let left = filter.limit ?? Number.POSITIVE_INFINITY;
  for (const state of filter.states) {
    for (let i = 0; i < store.count && left > 0; i++) {
      for await (const slice of exportState(store, i, state, { ...filter, limit: left }, now)) {
        left -= slice.jobs.length + slice.orphans.length;
        yield slice;
      }
    }
  }
}

/** Yields the selected jobs of one state in one partition. */
async function* exportState(
  store: Store,
  part: number,
  state: State,
  filter: Filter & { readonly limit: number },
  now: number,
): AsyncGenerator<ExportSlice> {
  const { redis } = store;
  let left = filter.limit;
  const list = (before: readonly Reply[]) => {
    const listed = store.at(part, (keys) => looks.list(redis, keys, state, filter, { limit: SLICE, before }));
    listed.catch(() => {});
    return listed;
  };
  let next = list([]);
  for (let found = await next; found.length > 0 && left > 0; found = await next) {
    // Ask for the next slice while this one is read and written.
    next = list(found);
    const ids = found.filter((_, i) => i % 2 === 0) as Buffer[];
    for (let at = 0; at < ids.length && left > 0; ) {
      const rows = await store.at(part, (keys) => raw(redis, keys, ids.slice(at)));
      const jobs: Exported[] = [];
      const orphans: Id[] = [];
      for (const [i, row] of rows.entries()) {
        const id = ids[at + i] as Buffer;
        const letter = text(row.state);
        const inState = letter !== '' && state.startsWith(letter);
        const matches = filter.text === undefined || containsText(stored(idOf(id), row), filter.text);
        if (!inState || !matches || left <= 0) continue;
        left -= 1;
        if (row.payload) jobs.push(exported(id, state, row, now));
        else orphans.push(idOf(id));
      }
      at += rows.length;
      yield { jobs, orphans };
    }
  }
}

/** A job in its state, or, if it is active, in the state it was taken from. */
function exported(id: Buffer, state: string, row: Raw, now: number): Exported {
  const record = (row.record as Buffer | null) ?? undefined;
  const payload = row.payload as Buffer;
  if (state !== 'active') {
    return { id, state: state as 'pending' | 'dead', score: text(row.score), record, payload, held: undefined };
  }
  const { moving } = stored('', row);
  const due = text(row.held).split(' ')[1] ?? '';
  // An unreadable due time means due now, as it does when a lease is taken back.
  const score = SCORE.test(due) ? due : String(now);
  return { id, state: moving?.from ?? 'pending', score, record, payload, held: moving ? 'move' : 'consumer' };
}
