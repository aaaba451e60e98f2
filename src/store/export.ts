import { type Id, idOf } from '../model/id.js';
import type { State, StoredJob } from '../model/job.js';
import type { Reply } from '../redis/connection.js';
import { listIn } from './list.js';
import { text } from './replies.js';
import { SLICE } from './script.js';
import type { Store } from './store.js';
import { type Raw, raw, stored } from './stored.js';
import type { Parcel } from './transfer.js';

/** A score as Redis writes it. */
export const SCORE = /^-?(?:\d+(?:\.\d+)?(?:e[-+]?\d+)?|inf)$/;

export interface Exported extends Parcel {
  /** Who held an active job, which is exported in the state it was taken from; undefined for other jobs. */
  readonly held: 'consumer' | 'move' | undefined;
}

/** Some jobs of a queue, and the ids that cannot be exported because they have no payload. */
export interface ExportSlice {
  readonly jobs: readonly Exported[];
  readonly orphans: readonly Id[];
}

/** Which jobs to export: of `states`, with times `from` … `to`, ms, for which `matches` is true; at most `limit`. */
interface Selection {
  readonly states: readonly State[];
  readonly from?: number | undefined;
  readonly to?: number | undefined;
  readonly limit?: number | undefined;
  readonly matches?: ((job: StoredJob) => boolean) | undefined;
}

/** Yields the selected jobs of a queue, byte for byte, in slices. The order: by state, then partition, then time. */
export async function* exportJobs(store: Store, selection: Selection): AsyncGenerator<ExportSlice> {
  const now = await store.redis.now();
  let left = selection.limit ?? Number.POSITIVE_INFINITY;
  for (const state of selection.states) {
    for (let i = 0; i < store.count && left > 0; i++) {
      for await (const slice of exportState(store, i, state, { ...selection, limit: left }, now)) {
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
  { matches, limit, ...range }: Selection & { readonly limit: number },
  now: number,
): AsyncGenerator<ExportSlice> {
  const { redis } = store;
  let left = limit;
  const list = (before: readonly Reply[]) => {
    const listed = store.at(part, (keys) => listIn(redis, keys, state, range, { limit: SLICE, before }));
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
        if (!inState || left <= 0 || matches?.(stored(idOf(id), row)) === false) continue;
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
