import { type Attributes, readAttributes } from '../model/attributes.js';
import { DelayqError } from '../model/errors.js';
import { type Id, idWord, randomWord } from '../model/id.js';
import type { Bytes } from '../model/payload.js';
import { checkId, checkList } from '../model/validate.js';
import type { Connection } from '../redis/connection.js';
import * as scripts from '../store/every.js';
import type { PrefixOption } from '../store/keys.js';
import { known } from '../store/replies.js';
import { Stores } from '../store/store.js';
import { parseRecord } from '../store/stored.js';
import {
  type Definition,
  definitionOf,
  ID_ADVICE,
  type Missed,
  type NewRecurring,
  nextOf,
  packHeader,
  startedBy,
  unpack,
} from './definition.js';
import { occurrencesOf, specOf, specText } from './occurrences.js';

/** How often to repeat a change after losing a race with another one. */
const MAX_TURNS = 10;

/** A recurring job as it is stored. Times and durations are ms, times by Redis's clock. */
export interface RecurringJob {
  readonly id: string;
  /** Its cron expression, or its interval as text: `15m`. */
  readonly when: string;
  /** The zone of the expression; undefined: it is an interval. */
  readonly tz: string | undefined;
  readonly missed: Missed;
  readonly overlap: 'allow' | 'skip';
  readonly paused: boolean;
  /** When it was first put. Intervals count from here. */
  readonly created: number;
  /** Its next occurrence; undefined: none, or paused. */
  readonly next: number | undefined;
  /** The id of the last job that was made. */
  readonly last: string | undefined;
  /** The limits of its jobs, if they have any. */
  readonly tries: number | undefined;
  readonly maxLost: number | undefined;
  readonly ttl: number | undefined;
  readonly onceFor: number | undefined;
  readonly attributes: Attributes;
  readonly payload: Bytes;
}

/** The result of putting a recurring job. `changes`: what is different in one that was replaced. */
export interface Put {
  readonly outcome: 'created' | 'replaced' | 'unchanged';
  readonly changes: readonly (keyof NewRecurring)[];
  readonly job: RecurringJob;
}

/** What is stored under an id. */
interface Found extends scripts.Stored {
  /** Undefined: there is none, or this version cannot read it. */
  readonly definition: Definition | undefined;
  /** The revision, compared by a change; empty: there is no such job. */
  readonly rev: string;
}

/**
 * Puts, lists and removes recurring jobs. The drains of the queue make a job for each occurrence when it is due: one
 * job, however many drains there are.
 */
export class Recurring {
  readonly #stores: Stores;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
  }

  /**
   * Puts a recurring job, or changes the one with its id, which stays paused if it is. Putting it again unchanged only
   * mends a next occurrence that is wrong because Redis's clock had been ahead. Throws `usage` or `data` before sending
   * anything if a part of it is invalid or its expression never occurs.
   */
  async put(queue: string, job: NewRecurring): Promise<Put> {
    await definitionOf(job, Date.now());
    let outcome: Put['outcome'] = 'unchanged';
    let changes: Put['changes'] = [];
    const put = await this.#change(queue, job.id, async ({ now, rev, next, definition: old }) => {
      const made = await definitionOf(job, now);
      changes = old ? changesFrom(old, made) : [];
      if (old && job.from !== undefined && old.created !== job.from) changes = ['from', ...changes];
      outcome = rev === '' ? 'created' : 'replaced';
      if (!old) return { definition: made, next: await nextOf(made, now) };
      const isMoved = (['when', 'from', 'tz'] as const).some((name) => changes.includes(name));
      const { paused, last, created } = old;
      const definition = startedBy({ ...made, paused, last, created: isMoved ? made.created : created }, now);
      const first = await nextOf(definition, now);
      // Later: Redis's clock had been ahead, or a version that cannot read the job has postponed it.
      const isLost = next === undefined || next > first;
      if (changes.length === 0 && !isLost) {
        outcome = 'unchanged';
        return undefined;
      }
      return { definition, next: isMoved || isLost ? first : undefined };
    });
    await this.#stores.of(queue).list();
    return { outcome, changes, job: put as RecurringJob };
  }

  /** Stops a recurring job from making jobs until it is resumed. Returns it; undefined: there is none. */
  async pause(queue: string, id: string): Promise<RecurringJob | undefined> {
    return this.#setPaused(queue, id, true);
  }

  /** Lets a paused recurring job go on, with the first occurrence from now on. Returns it; undefined: there is none. */
  async resume(queue: string, id: string): Promise<RecurringJob | undefined> {
    return this.#setPaused(queue, id, false);
  }

  async #setPaused(queue: string, id: string, paused: boolean): Promise<RecurringJob | undefined> {
    return this.#change(queue, id, async ({ now, text, definition: old }) => {
      if (text !== undefined && !old) throw unreadable(queue, id);
      if (!old || old.paused === paused) return undefined;
      const definition = startedBy({ ...old, paused }, now);
      return { definition, next: await nextOf(definition, now) };
    });
  }

  /** Removes recurring jobs; jobs that they have made stay. Returns, for each id, whether it was there. */
  async remove(queue: string, ids: readonly Id[]): Promise<boolean[]> {
    if (checkList(ids, 'ids').length === 0) return ids.map(() => false);
    return scripts.remove(this.#stores.of(queue), ids);
  }

  /** Returns one recurring job; undefined: there is none. Throws `config` if this version cannot read it. */
  async show(queue: string, id: Id): Promise<RecurringJob | undefined> {
    const found = await this.#find(queue, id);
    if (found.text !== undefined && !found.definition) throw unreadable(queue, id);
    return recurringOf(String(id), found);
  }

  /** Returns all recurring jobs of a queue, by their next occurrences; paused ones last. */
  async list(queue: string): Promise<RecurringJob[]> {
    return (await this.listed(queue)).jobs;
  }

  /** Returns what list returns, and the ids of those that this version cannot read. @internal */
  async listed(queue: string): Promise<{ jobs: RecurringJob[]; unreadable: Id[] }> {
    const jobs: RecurringJob[] = [];
    const unreadable: Id[] = [];
    for await (const stored of scripts.definitions(this.#stores.of(queue))) {
      const found = recurringOf(String(stored.id), foundIn(stored));
      if (found) jobs.push(found);
      else if (stored.text !== undefined) unreadable.push(stored.id);
    }
    const due = ({ next = Number.POSITIVE_INFINITY }: RecurringJob) => next;
    jobs.sort((a, b) => (due(a) === due(b) ? (a.id < b.id ? -1 : 1) : due(a) - due(b)));
    return { jobs, unreadable };
  }

  async #find(queue: string, id: Id): Promise<Found> {
    return foundIn(await scripts.show(this.#stores.of(queue), id));
  }

  /** Makes the change that `decide` returns for the stored job, if any. Returns what is stored afterwards. */
  async #change(
    queue: string,
    id: string,
    decide: (found: Found) => Promise<{ definition: Definition; next: number | undefined } | undefined>,
  ): Promise<RecurringJob | undefined> {
    for (let turn = 0; turn < MAX_TURNS; turn++) {
      const found = await this.#find(queue, checkId(id, ID_ADVICE));
      const change = await decide(found);
      if (!change) return recurringOf(id, found);
      const definition = { ...change.definition, rev: randomWord(12) };
      const { next } = change;
      const put = { id, was: found.rev, header: packHeader(definition), payload: definition.payload, next };
      if (await scripts.put(this.#stores.of(queue), put))
        return recurringOf(id, { ...found, next: next ?? found.next, definition });
    }
    const next = 'try again';
    throw new DelayqError('temporary', `the recurring job ${id} of ${queue} is being changed by others`, { next });
  }
}

/** Returns the next `n` occurrences of a recurring job that is not paused, ms: from its next one on. */
export async function upcoming({ when, tz = '', created, next }: RecurringJob, n: number): Promise<number[]> {
  const times = await occurrencesOf(specOf(when), tz, created);
  const all: number[] = [];
  for (let at = next; at !== undefined && all.length < n; at = times.after(at)) all.push(at);
  return all;
}

function foundIn(stored: scripts.Stored): Found {
  const { text } = stored;
  return { ...stored, definition: text && unpack(text), rev: text ? revIn(text) : '' };
}

/** The rev of a definition, even if this version cannot read the rest. Must match lua/lib/definition.lua. */
const revIn = (text: Buffer) => /^[^\n]*\n{"rev":"([A-Za-z0-9]+)"[^\n]*\n/.exec(text.toString('latin1'))?.[1] ?? '-';

function unreadable(queue: string, id: Id): DelayqError {
  return new DelayqError('config', `the recurring job ${idWord(id)} of ${queue} cannot be read`, {
    why: 'a newer delayq, or other software, has written it',
    next: 'install a newer delayq on this machine, or put it again, or remove it',
  });
}

/** What is different in a new definition, by the names of the options. */
function changesFrom(old: Definition, made: Definition): (keyof NewRecurring)[] {
  const options = (one: Definition) => {
    const { spec: when, tz, payload, missed, overlap } = one;
    return { when, tz, payload: payload.toString(), missed, overlap, ...limitsOf(one) };
  };
  const [before, after] = [options(old), options(made)];
  const names = Object.keys(before) as (keyof typeof before)[];
  return names.filter((name) => JSON.stringify(before[name]) !== JSON.stringify(after[name]));
}

function limitsOf({ record }: Definition) {
  const fields = parseRecord(record);
  return {
    tries: known(fields.tries),
    maxLost: known(fields.maxLost),
    ttl: known(fields.ttl),
    onceFor: known(fields.once),
    attributes: readAttributes(fields),
  };
}

function recurringOf(id: string, { definition, next }: Pick<Found, 'definition' | 'next'>): RecurringJob | undefined {
  if (!definition) return undefined;
  const { spec, tz, missed, overlap, paused, created, last, payload } = definition;
  return {
    id,
    when: specText(spec),
    tz: tz || undefined,
    missed,
    overlap,
    paused,
    created,
    next: Number.isFinite(next) ? next : undefined,
    last: last || undefined,
    ...limitsOf(definition),
    payload,
  };
}
