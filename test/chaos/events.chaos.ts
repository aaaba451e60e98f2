import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { DelayqError, type EventType, Inspector, type JobEvent, Operator, Queue, Spread } from '../../src/index.js';
import { readEvents } from '../../src/store/events.js';
import { Stores } from '../../src/store/store.js';
import { begin, binary } from '../support/cli.js';
import { admin, connection, freshName, key } from '../support/redis.js';
import { until, within } from '../support/until.js';
import { type Done, judge, type Seen, storedOf, TELLING, type Told, toldBy } from './events.js';
import { outOfPlace } from './follower.js';
import type { Handling } from './ledger.js';
import { minutes, seed } from './options.js';
import { Random } from './random.js';

/** What must stand with events: with these, those that name their holder, and those that say when a job is due. */
const HELD = ['delivered', 'returned', 'acked', 'retried', 'released', 'lost'];
const DUE = ['enqueued', 'replaced', 'delivered', 'returned', 'retried', 'released', 'lost', 'requeued', 'rescheduled'];

/** Events of one job: `type attempt reason`. */
function story(...lines: string[]): Told[] {
  return lines.map((line, at) => {
    const [, type = '', attempt, reason] = /^(\w+) ?(\d+)? ?(\w+)?$/.exec(line) ?? [];
    const isHeld = HELD.includes(type) || ['refused', 'failed', 'released', 'lost'].includes(reason ?? '');
    const event = {
      type: type as EventType,
      id: 'a',
      at,
      ...(isHeld ? { by: 'me' } : {}),
      ...(reason ? { reason } : {}),
    };
    return toldBy({
      ...event,
      ...(attempt ? { attempt: Number(attempt) } : {}),
      ...(DUE.includes(type) ? { due: 7 } : {}),
    });
  });
}

/** Judges a job's events, its place, and counters that agree with its events. */
function violationsOf(events: readonly Told[], place = '', more: Seen & { done?: Done; stats?: object } = {}) {
  const stats: Record<string, number> = {};
  const count = (name: string) => {
    stats[name] = (stats[name] ?? 0) + 1;
  };
  for (const { type } of events) count(type === 'made' ? 'enqueued' : type);
  for (const { type } of events) if (type === 'removed') count('delivered');
  const { done, ...seen } = more;
  const places = new Map(place ? [['a', [`0 ${place}`]]] : []);
  const stored = { events: [events], done: done && new Map([['a', done]]), places, stats: { ...stats, ...more.stats } };
  return judge('q', stored, seen).violations;
}

const TAKEN = ['enqueued', 'delivered 1'];

it.each<[string[], string]>([
  [['enqueued'], 'pending'],
  [[...TAKEN, 'acked 1'], ''],
  [
    [...TAKEN, 'lost 1', 'delivered 2', 'retried 2', 'delivered 3', 'released 3', 'delivered 3', 'returned 3'],
    'pending',
  ],
  [[...TAKEN, 'retried 1', 'delivered 2', 'dead 2 refused', 'requeued', 'delivered 1'], 'active'],
  [[...TAKEN, 'lost 1', 'dead 1 lost'], 'dead'],
  [
    ['enqueued', 'dead 0 buried', 'replaced', 'delivered 1', 'replaced', 'delivered 1', 'acked 1', 'enqueued'],
    'pending',
  ],
  [['enqueued', 'rescheduled', 'expired'], ''],
  [['enqueued', 'moved'], ''],
  [['made', 'cancelled'], ''],
])('events that can be are told: %j', (lines, place) => {
  expect(violationsOf(story(...lines), place)).toEqual([]);
});

const ACKED = story(...TAKEN, 'acked 1');
const DONE: Done = { done: 1, by: 'me', attempts: 1, result: 'a 1' };
const log = (run: string, more: Partial<Handling> = {}, what = 'acked a 1') => ({
  handlings: [{ id: 'a', attempt: 1, due: 7, start: 8, end: 9, receipt: 'r', run, ...more }],
  ...{ corrupt: [], failures: [], settled: [{ what, at: 9, run }] },
});

it.each<[string, Seen & { done?: Done }]>([
  ['a handler that says what came out', { confirmed: ['a'], log: log('q/exec/1'), done: DONE }],
  ['one that does not', { log: log('q/pipe/1'), done: { done: 1, by: 'me', attempts: 1 } }],
])('and what is done is kept, by %s', (_, more) => {
  expect(violationsOf(ACKED, '', more)).toEqual([]);
});

const changed = (events: readonly Told[], at: number, change: Partial<Told>) =>
  events.map((event, i) => (i === at ? { ...event, ...change } : event));

it.each<[string, readonly Told[], string, RegExp, (Seen & { done?: Done; stats?: object })?]>([
  ['a delivery is not told', story('enqueued', 'acked 1'), '', /acked after enqueued/],
  ['it is told twice', story(...TAKEN, 'delivered 1'), 'active', /delivered after delivered/],
  ['an end is not told', story(...TAKEN, 'delivered 2'), 'active', /delivered after delivered/],
  ['it is done twice', story(...TAKEN, 'acked 1', 'acked 1'), '', /acked after acked/],
  ['an attempt is left out', story(...TAKEN, 'lost 1', 'delivered 1'), 'active', /attempt 1, not 2/],
  ['a release counts', story(...TAKEN, 'released 1', 'delivered 2'), 'active', /attempt 2, not 1/],
  ['an ack has another attempt', story(...TAKEN, 'acked 2'), '', /attempt 2, not 1/],
  ['a death has another attempt', story(...TAKEN, 'dead 0 refused'), 'dead', /attempt 0, not 1/],
  ['it dies as lost, and was not', story('enqueued', 'dead 0 lost'), 'dead', /dead after enqueued: lost/],
  ['somebody else acks', changed(ACKED, 2, { by: 'you' }), '', /me had it, not you/],
  ['it is due at another time', changed(ACKED, 1, { due: 8 }), '', /was due 7, not 8/],
  ['a later event is earlier', changed(ACKED, 2, { at: 0 }), '', /but earlier/],
  ['it is there, and done', ACKED, 'pending', /where their last events leave them: a \(pending, after acked/],
  ['it is gone, and not done', story(...TAKEN), '', /a \(none, after delivered/],
  ['it is there, and nothing was told', [], 'dead', /a \(dead, after nothing/],
  ['it was counted and not told', ACKED, '', /retried 1, told 0/, { stats: { retried: 1 } }],
  ['a death was not counted', story('enqueued', 'dead 0 buried'), 'dead', /dead 0, told 1/, { stats: { dead: 0 } }],
  ['a confirmed job was not told', ACKED, '', /confirmed, which no event tells: b/, { confirmed: ['b'] }],
  ['an answer was not', ACKED, '', /answered, .*: dead a 1/, { log: log('q/exec/1', {}, 'dead a 1') }],
  ['nobody handled what is done', ACKED, '', /nobody handled them: a 1/, { log: log('q/exec/1', { attempt: 2 }) }],
  ['another attempt is kept', ACKED, '', /kept otherwise/, { done: { ...DONE, attempts: 2 } }],
  [
    'another result is kept',
    ACKED,
    '',
    /with a 2, not a 1/,
    { log: log('q/exec/1'), done: { ...DONE, result: 'a 2' } },
  ],
  ['a result is made up', ACKED, '', /with a 1, not undefined/, { log: log('q/pipe/1'), done: DONE }],
  ['what is kept was not told', story(...TAKEN), 'active', /kept as done, which no event tells: a/, { done: DONE }],
])('it is found out when %s', (_, events, place, said, more) => {
  expect(violationsOf(events, place, more).join('\n')).toMatch(said);
});

it('a follower may print events again, but in their order, and none may be missing', () => {
  const all = ['a', 'b', 'c', 'd'];
  expect(outOfPlace(all, [['a', 'b'], [], ['b', 'c'], ['d']])).toBeUndefined();
  expect(outOfPlace(all, [['a', 'b'], ['d']])).toMatch('d in place of c, after 0');
  expect(outOfPlace(all, [['a', 'c', 'b', 'd']])).toMatch('c in place of b, after 1');
  expect(outOfPlace(all, [['a', 'b', 'c']])).toMatch('missed 1 of 4 events: d');
});

it('a group that began before a growth misses nothing in the new partitions', async () => {
  const queue = new Queue(connection, freshName());
  const operator = new Operator(connection);
  await operator.configure(queue.name, TELLING);
  const events = new Inspector(connection).events(queue.name, { follow: true, group: 'g' });
  const first = events.next();
  await until(() => admin.call('XINFO', 'GROUPS', key(queue.name, 'events')).catch(() => false));
  // From now on its reader looks again only when it is asked.
  await queue.enqueue({ id: 'first', payload: 1 });
  expect((await first).value).toMatchObject({ id: 'first' });
  expect(await binary(['config', queue.name, 'partitions=4'])).toMatchObject({ code: 0 });
  const ids = Array.from({ length: 20 }, (_, i) => `id-${i}`);
  await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
  const read: JobEvent[] = [];
  while (read.length < ids.length)
    read.push((await within(20_000, 'a further event', events.next())).value as JobEvent);
  await events.return(undefined);
  expect(read.map(({ id }) => id).sort()).toEqual(ids.sort());
});

it('a partition that fails makes no events of others come twice', async () => {
  const queue = new Queue(connection, freshName());
  await new Operator(connection).configure(queue.name, TELLING);
  expect(await binary(['config', queue.name, 'partitions=4'])).toMatchObject({ code: 0 });
  const ids = Array.from({ length: 40 }, (_, i) => `id-${i}`);
  await queue.enqueue(ids.map((id) => ({ id, payload: 1 })));
  const store = new Stores(connection).of(queue.name);
  await store.look();
  const at = store.at.bind(store);
  const [failed, delayed] = [1, 2];
  const struck = new Set<number>();
  store.at = async (i, act) => {
    const isFirst = !struck.has(i);
    struck.add(i);
    if (isFirst && i === failed) throw new DelayqError('temporary', 'the first call fails');
    const found = await at(i, act);
    // Meanwhile all are asked again, if nobody waits for this answer.
    if (isFirst && i === delayed) await sleep(300);
    if (isFirst && i === delayed) setImmediate(() => queue.enqueue({ id: 'last', payload: 1 }));
    return found;
  };
  const read: string[] = [];
  for await (const { events } of readEvents(store, { follow: true })) {
    read.push(...events.map(({ id }) => id));
    if (read.includes('last')) break;
  }
  expect(read.sort()).toEqual([...ids, 'last'].sort());
});

it(`all that operators do is told, and what they move is told by both queues (seed ${seed})`, async () => {
  const random = new Random(seed);
  const [operator, names] = [new Operator(connection), [freshName(), freshName()]];
  const queues = names.map((name) => new Queue(connection, name));
  const ids = Array.from({ length: 60 }, (_, i) => `id-${i}`);
  for (const name of names) await operator.configure(name, { ...TELLING, lease: 100, maxLost: 3 });
  const end = performance.now() + Math.min(10_000, 15_000 * minutes);
  const some = () => random.shuffled(ids).slice(0, random.whole(1, 10));
  const spread = () => new Spread({ in: random.whole(0, 50), stepMs: 1 });

  const edit = async () => {
    const [queue, few] = [random.pick(queues), some()];
    const { name } = queue;
    const enqueue = (ifExists: 'keep' | 'replace') =>
      queue.enqueue(
        few.map((id) => ({ id, payload: 1, in: random.whole(0, 50) })),
        { ifExists },
      );
    const acts: [number, () => unknown][] = [
      [5, () => enqueue('keep')],
      [1, () => enqueue('replace')],
      [1, () => operator.cancel(name, few.slice(0, 2))],
      [1, () => operator.bury(name, few)],
      [1, () => operator.requeue(name, few, spread())],
      [1, () => operator.reschedule(name, few, spread())],
      [1, () => operator.edit(name, few[0] as string, () => 2)],
      [0.2, () => operator.purge(name, ['dead']).next()],
    ];
    const [, act] = random.pickByWeight(acts, ([weight]) => weight);
    await act();
  };
  const consume = async () => {
    const queue = random.pick(queues);
    const { jobs } = await queue.drain({ limit: random.whole(1, 8) });
    await sleep(random.whole(0, 20));
    const mode = random.pick(['retry', 'release', 'dead'] as const);
    const delayMs = mode === 'dead' ? undefined : 5;
    if (random.chance(0.4)) await queue.ack(random.chance(0.5) ? jobs : [...jobs, ...jobs]);
    // The leases of others end.
    else if (random.chance(0.6))
      await queue.nack(
        jobs.map((job) => ({ ...job, delayMs })),
        { mode },
      );
  };
  const move = async () => {
    const [from = '', to = ''] = random.shuffled(names);
    const state = random.pick(['--dead', '--pending']);
    const { child, ended } = begin(['move', from, '--into', to, '--yes', state], { input: '' });
    const timer = random.chance(0.5) ? setTimeout(() => child.kill('SIGKILL'), random.whole(80, 300)) : undefined;
    await ended;
    clearTimeout(timer);
  };
  const repeat = async (act: () => Promise<void>) => {
    while (performance.now() < end) await act();
  };
  await Promise.all([edit, edit, consume, consume, move].map(repeat));
  // Ends what a killed one had begun.
  for (const [from = '', to = ''] of [names, [...names].reverse()])
    expect(await binary(['move', from, '--into', to])).toMatchObject({ code: expect.toBeOneOf([0, 1, 3]) });

  const told: Record<string, number> = {};
  for (const name of names) {
    const stored = await storedOf(admin, name);
    expect(judge(name, stored).violations).toEqual([]);
    for (const { type } of stored.events.flat()) told[type] = (told[type] ?? 0) + 1;
  }
  console.log(told);
});
