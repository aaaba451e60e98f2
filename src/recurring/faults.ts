import { idOf, idWord } from '../model/id.js';
import type { Reply } from '../redis/connection.js';
import * as scripts from '../store/every.js';
import { SLICE } from '../store/script.js';
import type { Store } from '../store/store.js';
import { nextOf, packHeader, startedBy, unpack } from './definition.js';

/**
 * What can be wrong with a recurring job: this version cannot read it, it never comes again, it has no next occurrence, or
 * one that is too late, or an occurrence has no definition.
 */
export type Fault = 'unreadable' | 'never' | 'lost' | 'late' | 'undefined';

/** A recurring job with a fault. `mend`: repairs it, if it is still as it was; undefined: only its owner can. */
export interface Faulty {
  readonly id: string;
  readonly fault: Fault;
  readonly mend: (() => Promise<unknown>) | undefined;
}

/** Finds the recurring jobs of a queue that have faults. Throws what a call throws. */
export async function faultsOf(store: Store): Promise<Faulty[]> {
  const { redis } = store;
  const { every, occurs } = store.keys(0);
  const [defined, occurring] = (await Promise.all([
    redis.call('HKEYS', every),
    redis.call('ZRANGE', occurs, 0, -1),
  ])) as Reply[][] as [Buffer[], Buffer[]];
  const ids = [...new Map([...defined, ...occurring].map((id) => [id.toString('latin1'), id])).values()];
  const all: Faulty[] = [];
  for (let at = 0; at < ids.length; ) {
    const some = ids.slice(at, at + SLICE);
    const { now, found } = await store.at(0, (keys) => scripts.show(redis, keys, some));
    for (const [i, one] of found.entries()) all.push(...(await faultOf(store, some[i] as Buffer, one, now)));
    at += found.length;
  }
  return all;
}

async function faultOf(store: Store, id: Buffer, { text, next }: scripts.Stored, now: number): Promise<Faulty[]> {
  const one = (fault: Fault, mend?: Faulty['mend']) => [{ id: idWord(idOf(id)), fault, mend }];
  // Removed in between.
  if (text === undefined && next === undefined) return [];
  if (text === undefined) {
    const none = { next: Number.POSITIVE_INFINITY, overlap: 'allow', record: '', skipped: 0, jobs: [] } as const;
    const firing = { ...none, id, occurrence: next as string, rev: undefined };
    return one('undefined', () => store.at(0, (keys) => scripts.fire(store.redis, keys, [firing])));
  }
  const found = unpack(text);
  const definition = found && startedBy(found, now);
  const first = definition && (await nextOf(definition, now).catch(() => undefined));
  if (!definition || first === undefined) return one('unreadable');
  if (next === undefined || scripts.msOf(next) > first) {
    const put = { id, was: definition.rev, header: packHeader(definition), payload: definition.payload, next: first };
    return one(next === undefined || next === 'inf' ? 'lost' : 'late', () =>
      store.at(0, (keys) => scripts.put(store.redis, keys, put)),
    );
  }
  return next === 'inf' && !definition.paused ? one('never') : [];
}
