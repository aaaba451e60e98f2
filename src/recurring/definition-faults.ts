import { idOf, idWord } from '../model/id.js';
import { definitions, fire, put, type Stored } from '../store/every.js';
import type { Store } from '../store/store.js';
import { nextOf, packHeader, startedBy, unpack } from './definition.js';

/**
 * What can be wrong with a recurring job: this version cannot read it, it never occurs again, its next occurrence is
 * missing or too late, or an occurrence has no definition.
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
  const all: Faulty[] = [];
  for await (const one of definitions(store)) all.push(...(await faultOf(store, one)));
  return all;
}

async function faultOf(store: Store, { id, now, text, occurrence, next }: Stored<Buffer>): Promise<Faulty[]> {
  const one = (fault: Fault, mend?: Faulty['mend']) => [{ id: idWord(idOf(id)), fault, mend }];
  if (text === undefined) {
    // Removed in between.
    if (occurrence === undefined) return [];
    const none = { next: Number.POSITIVE_INFINITY, overlap: 'allow', record: '', skipped: 0, jobs: [] } as const;
    return one('undefined', () => fire(store, 0, [{ ...none, id, occurrence, rev: undefined }]));
  }
  const found = unpack(text);
  const definition = found && startedBy(found, now);
  const first = definition && (await nextOf(definition, now).catch(() => undefined));
  if (!definition || first === undefined) return one('unreadable');
  const isNever = next === Number.POSITIVE_INFINITY;
  if (next === undefined || next > first) {
    const { rev: was, payload } = definition;
    const change = { id, was, header: packHeader(definition), payload, next: first };
    return one(next === undefined || isNever ? 'lost' : 'late', () => put(store, change));
  }
  return isNever && !definition.paused ? one('never') : [];
}
