import type { Cluster, Redis } from 'ioredis';
import type { EventType, JobEvent } from '../../src/index.js';
import { placesOf, tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import type { Log } from './ledger.js';

/** Settings of a queue that tells all that happens, and keeps all that is done: more than any storm does. */
export const TELLING = { events: 10_000_000, keepDone: 3_600_000, maxDone: 10_000_000 };

/** The forms of consumers whose handlers say what came out of a job. */
const SAYING = ['exec', 'stay', 'worker'];

/** What comes out of an attempt at a job, where its handler can say it. */
const resultOf = (id: string, attempt: number) => `${id} ${attempt}`;

/** An event, whoever has read it. */
export type Told = Required<Omit<JobEvent, 'attempt' | 'due' | 'partition'>> & {
  readonly attempt: number | undefined;
  readonly due: number | undefined;
};

/** Returns what a partition, or a command, tells of an event. */
export const toldBy = ({ type, id, at, by = '', attempt, due, reason = '', error = '' }: JobEvent): Told => ({
  ...{ type, id, at, by, attempt, due, reason, error },
});

/** What is kept of a job that is done. */
export interface Done {
  readonly done: number;
  readonly by: string;
  readonly attempts: number;
  readonly result?: string;
}

/** What Redis has of a queue: read without delayq, which is what is tested. */
export interface Stored {
  /** The events of each partition. */
  readonly events: readonly (readonly Told[])[];
  /** Undefined: the queue keeps no jobs that are done. */
  readonly done: ReadonlyMap<string, Done> | undefined;
  /** Where each job stands: `partition state`. */
  readonly places: ReadonlyMap<string, readonly string[]>;
  readonly stats: Readonly<Record<string, number>>;
}

const SLICE = 10_000;

export async function storedOf(client: Redis | Cluster, queue: string): Promise<Stored> {
  const [events, done, stats]: [Told[][], Map<string, Done>, Record<string, number>] = [[], new Map(), {}];
  const keeps = (await client.hexists(key(queue, 'config'), 'keepDone')) === 1;
  for (const tag of await tagsOf(client, queue)) {
    const all: Told[] = [];
    for (let from = '-', isAll = false; !isAll; ) {
      const some = await client.xrange(key(tag, 'events'), from, '+', 'COUNT', SLICE);
      for (const [entry, fields] of some) all.push(toldIn(entry, fields));
      from = `(${some.at(-1)?.[0]}`;
      isAll = some.length < SLICE;
    }
    events.push(all);
    for (const [name, n] of Object.entries(await client.hgetall(key(tag, 'stats'))))
      if (Number.isFinite(Number(n))) stats[name] = (stats[name] ?? 0) + Number(n);
    const records = await client.hgetall(key(tag, 'results'));
    const times = await client.zrange(key(tag, 'finished'), '0', '-1', 'WITHSCORES');
    for (let i = 0; i < times.length; i += 2) {
      const [id, at] = [times[i] as string, Number(times[i + 1])];
      // A job may have been done before a growth, and one of the same id after it.
      if (at >= (done.get(id)?.done ?? 0)) done.set(id, { ...JSON.parse(records[id] ?? '{}'), done: at });
    }
  }
  return { events, done: keeps ? done : undefined, places: await placesOf(client, queue), stats };
}

function toldIn(entry: string, list: readonly string[]): Told {
  const fields: Record<string, string> = {};
  for (let i = 0; i < list.length; i += 2) fields[list[i] as string] = list[i + 1] as string;
  const { type, id = '', by, reason, error, ...numbers } = fields;
  const number = (name: string) => (numbers[name] ? Number(numbers[name]) : undefined);
  return toldBy({
    ...({ type, id, by, reason, error, at: Number(entry.split('-')[0]) } as JobEvent),
    ...({ attempt: number('attempt'), due: number('due') } as Partial<JobEvent>),
  });
}

/** `removed`: it was taken at most once, and may be given back. `restored`: nobody knows whether it is pending or dead. */
type State = 'none' | 'pending' | 'restored' | 'active' | 'removed' | 'dead';

const WAITING: readonly State[] = ['pending', 'restored'];
const ABSENT: readonly State[] = ['none', 'removed'];
const THERE: readonly State[] = [...WAITING, 'active', 'dead'];

/** Each type of event: in which states a job may be before it, and in which it is after it. */
const STEPS: Record<EventType, readonly [before: readonly State[], after: State]> = {
  enqueued: [ABSENT, 'pending'],
  made: [ABSENT, 'pending'],
  adopted: [ABSENT, 'pending'],
  restored: [ABSENT, 'restored'],
  replaced: [THERE, 'pending'],
  delivered: [WAITING, 'active'],
  removed: [WAITING, 'removed'],
  returned: [['active', 'removed'], 'pending'],
  acked: [['active'], 'none'],
  retried: [['active'], 'pending'],
  released: [['active'], 'pending'],
  lost: [['active'], 'pending'],
  dead: [[...WAITING, 'active'], 'dead'],
  expired: [WAITING, 'none'],
  cancelled: [THERE, 'none'],
  purged: [THERE, 'none'],
  requeued: [['dead', 'restored'], 'pending'],
  rescheduled: [WAITING, 'pending'],
  moved: [[...WAITING, 'dead'], 'none'],
};

/** Why a job dies in the hands of its holder, and whether this attempt counts. */
const DEATHS: Readonly<Record<string, number>> = { failed: 1, refused: 1, released: 0 };

/** A job, as its events tell it. */
class Story {
  state: State = 'none';
  /** Its last event, and the last one that says that it is done. */
  last: Told | undefined;
  acked: Told | undefined;
  wasDone = false;
  /** How many failures and losses it has, when it is due, and who holds it. Undefined: its events do not say. */
  #counted: number | undefined = 0;
  #due: number | undefined;
  #by = '';

  /** Goes on. Returns what is wrong with the event, if anything is. */
  tell(event: Told): string | undefined {
    const wrong = this.#wrongIn(event);
    const { type, by, attempt, due, reason } = event;
    const counts = type === 'retried' || type === 'lost' || (this.state === 'active' && DEATHS[reason] === 1);
    const isTaken = type === 'delivered' || type === 'removed';
    // An edit leaves a pending job as it is, except for its payload.
    const isEdited = type === 'replaced' && WAITING.includes(this.state) && due === this.#due;
    if (isTaken && attempt !== undefined) this.#counted = attempt - 1;
    else if (counts) this.#counted = this.#counted === undefined ? undefined : this.#counted + 1;
    else if (type === 'restored' || isEdited) this.#counted = undefined;
    else if (['enqueued', 'made', 'adopted', 'replaced', 'requeued'].includes(type)) this.#counted = 0;
    if (due !== undefined) this.#due = due;
    if (isTaken) this.#by = by;
    if (type === 'acked') this.acked = event;
    this.wasDone ||= type === 'acked';
    // What is kept of an earlier job with its id is forgotten.
    if (STEPS[type][0].includes('none')) this.acked = undefined;
    this.state = STEPS[type][1];
    this.last = event;
    return wrong && `${event.id}: ${wrong}`;
  }

  #wrongIn({ type, at, by, attempt, due, reason }: Told): string | undefined {
    const { state, last } = this;
    const after = `${type} after ${last?.type ?? 'nothing'}`;
    if (!STEPS[type][0].includes(state)) return after;
    if (last && at < last.at) return `${after}, but earlier (${at}, ${last.at})`;
    const isHeld = state === 'active';
    const isTaken = type === 'delivered' || type === 'removed';
    if (type === 'dead' && isHeld !== reason in DEATHS) return `${after}: ${reason}`;
    if (type === 'dead' && (reason === 'lost') !== (last?.type === 'lost')) return `${after}: ${reason}`;
    if ((isTaken || type === 'lost') && this.#due !== undefined && due !== this.#due)
      return `${after}: it was due ${this.#due}, not ${due}`;
    // What is done without a look at the lease names nobody.
    const isAnswer = isHeld && !['replaced', 'cancelled', 'purged'].includes(type);
    if (isAnswer && by !== this.#by) return `${after}: ${this.#by} had it, not ${by}`;
    if (!(isTaken || isAnswer || type === 'dead') || this.#counted === undefined) return undefined;
    const expected = type === 'dead' && !isHeld ? this.#counted : this.#counted + 1;
    return attempt === expected ? undefined : `${after}: attempt ${attempt}, not ${expected}`;
  }
}

/** What others saw of a queue. */
export interface Seen {
  /** Ids whose enqueue was confirmed, and that Redis has not forgotten. */
  readonly confirmed?: readonly string[];
  readonly log?: Log;
  /** A job may be done that no handler has logged: its reader was killed. */
  readonly mayLose?: boolean;
  /** Whether Redis was killed or replaced and may have lost what it did at this time, ms. */
  readonly mayForget?: ((at: number) => boolean) | undefined;
}

/** Counters, and the types of events that they count. `removed` jobs are delivered, too. */
const COUNTERS: Readonly<Record<string, readonly EventType[]>> = {
  delivered: ['delivered', 'removed'],
  ...{ removed: ['removed'], acked: ['acked'], retried: ['retried'], released: ['released'], lost: ['lost'] },
  ...{ expired: ['expired'], cancelled: ['cancelled'], purged: ['purged'], requeued: ['requeued'] },
  ...{ replaced: ['replaced'], rescheduled: ['rescheduled'], moved: ['moved'], restored: ['restored'] },
};

/** Compares the events of a queue with its jobs, its counters, what is done, and what others saw. */
export function judge(queue: string, stored: Stored, seen: Seen = {}) {
  const violations: string[] = [];
  const none = (what: string, list: readonly string[]) => {
    if (list.length > 0) violations.push(`${queue}: ${list.length} ${what}: ${list.slice(0, 5).join(', ')}`);
  };
  const { stories, counts, again, wrong } = read(stored.events);
  none('events that cannot be', wrong);
  const told = new Set(stored.events.flatMap((all) => all.map(({ type, id, attempt }) => `${type} ${id} ${attempt}`)));

  const places = new Map([...stored.places].map(([id, all]) => [id, all.map((one) => one.replace(/.* /, '')).join()]));
  const misplaced = [...new Set([...stories.keys(), ...places.keys()])].flatMap((id) => {
    const { state, last } = stories.get(id) ?? { state: 'none', last: undefined };
    const place = places.get(id) ?? 'none';
    const isRight = state === 'restored' ? place !== 'none' : place === (state === 'removed' ? 'none' : state);
    return isRight ? [] : [`${id} (${place}, after ${last?.type ?? 'nothing'})`];
  });
  none('are not where their last events leave them', misplaced);

  const { enqueued = 0, dead = 0, buried = 0, orphaned = 0 } = stored.stats;
  const sums = Object.entries(COUNTERS).map(([name, types]): [string, number, number] => [
    name,
    stored.stats[name] ?? 0,
    types.reduce((sum, type) => sum + (counts.get(type) ?? 0), 0),
  ]);
  // What is given back after it was removed, is enqueued again.
  sums.push(['enqueued', enqueued, (counts.get('enqueued') ?? 0) + (counts.get('made') ?? 0) + again]);
  sums.push(['dead', dead + buried + orphaned, counts.get('dead') ?? 0]);
  none(
    'counters and events differ',
    sums.flatMap(([name, counted, n]) => (counted === n ? [] : [`${name} ${counted}, told ${n}`])),
  );

  const { confirmed = [], mayLose = false, mayForget = () => false } = seen;
  const isOurs = ({ run }: { readonly run: string }) => run.startsWith(`${queue}/`);
  none(
    'were confirmed, which no event tells',
    confirmed.filter((id) => !told.has(`enqueued ${id} undefined`)),
  );
  // Whoever asks again, because a reply was lost, and finds its lease gone, takes that for an answer.
  const isTold = (what: string) => {
    const others = [what.replace(/^\w+/, 'lost'), what.replace(/^superseded (\S+) \d+$/, 'replaced $1 undefined')];
    // A renewal may find it gone while the reply to its answer is under way.
    for (const type of ['acked', 'retried', 'dead', 'released']) others.push(what.replace(/^lost/, type));
    return [what, ...others].some((one) => told.has(one));
  };
  none(
    'were answered, which no event tells',
    (seen.log?.settled ?? []).filter(isOurs).flatMap(({ at, what }) => (mayForget(at) || isTold(what) ? [] : what)),
  );
  /** By which forms each attempt was handled. */
  const handled = new Map<string, string[]>();
  for (const { id, attempt, run } of seen.log?.handlings.filter(isOurs) ?? []) {
    const which = resultOf(id, attempt);
    handled.set(which, [...(handled.get(which) ?? []), run.split('/')[1] ?? '']);
  }
  const acked = [...stories.values()].flatMap((story) => story.acked ?? []);
  if (seen.log && !mayLose)
    none(
      'are done, and nobody handled them',
      acked.map(({ id, attempt = 0 }) => resultOf(id, attempt)).filter((which) => !handled.has(which)),
    );
  if (stored.done) {
    const { done } = stored;
    const formsOf = ({ id, attempt = 0 }: Told) => seen.log && (handled.get(resultOf(id, attempt)) ?? []);
    none(
      'are done, and kept otherwise, or not',
      acked.flatMap((event) => wronglyKept(event, done.get(event.id), formsOf(event))),
    );
    none(
      'are kept as done, which no event tells',
      // That of an earlier job may have stayed in the partition where it was done.
      [...done.keys()].filter((id) => !stories.get(id)?.wasDone),
    );
  }
  const results = [...(stored.done?.values() ?? [])].filter(({ result }) => result !== undefined).length;
  const events = stored.events.reduce((sum, all) => sum + all.length, 0);
  return { figures: { events, 'done and kept': stored.done?.size ?? 0, 'with a result': results }, violations };
}

/** Follows each job through its events. A growth takes jobs from a partition to a later one only. */
function read(partitions: Stored['events']) {
  const [stories, counts, wrong] = [new Map<string, Story>(), new Map<EventType, number>(), [] as string[]];
  let again = 0;
  for (const event of partitions.flat()) {
    const story = stories.get(event.id) ?? new Story();
    stories.set(event.id, story);
    if (event.type === 'returned' && story.state === 'removed') again += 1;
    counts.set(event.type, (counts.get(event.type) ?? 0) + 1);
    const told = story.tell(event);
    if (told) wrong.push(told);
  }
  return { stories, counts, again, wrong };
}

/** Returns what is wrong with what is kept of a job that is done. `forms`: those that handled this attempt. */
function wronglyKept({ id, by, attempt = 0 }: Told, kept: Done | undefined, forms: readonly string[] | undefined) {
  if (!kept) return `${id} is not kept`;
  if (kept.attempts !== attempt || kept.by !== by) return `${id} (${attempt} ${by}) as ${kept.attempts} ${kept.by}`;
  const [expected, { result }] = [resultOf(id, attempt), kept];
  if (!forms) return [];
  const mayBe = [
    ...(forms.some((form) => SAYING.includes(form)) ? [expected] : []),
    ...(forms.every((form) => SAYING.includes(form)) ? [] : [undefined]),
  ];
  return mayBe.includes(result) ? [] : `${id} (${forms}) with ${result}, not ${mayBe.map(String).join(' or ')}`;
}
