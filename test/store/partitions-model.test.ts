import fc from 'fast-check';
import { expect, it } from 'vitest';
import { Connection, Inspector, JsonText, Operator, Queue, Spread } from '../../src/index.js';
import { consumer } from '../../src/model/id.js';
import type { State } from '../../src/model/job.js';
import { afterwards } from '../support/afterwards.js';
import { type Given, Model } from '../support/model.js';
import { kindsOf, slowRuns } from '../support/property.js';
import { admin, freshName, redisUrl, timePasses } from '../support/redis.js';

/*
 * The same model as for the scripts (test/store/model.test.ts), for queues with partitions and through the public API.
 * Redis's clock goes on between two calls: so times are multiples of 10 s, those to live and leases are not, and the model
 * takes over each time that it has checked.
 */

const IDS = ['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'];
const STATES = ['pending', 'active', 'dead'] as const;
const id = fc.constantFrom(...IDS);
const ids = fc.uniqueArray(id, { minLength: 1 });
const ms = fc.constantFrom(0, 10_000, 30_000);
const small = fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined });
const given = fc.record({
  id,
  payload: fc.json({ maxDepth: 1 }),
  in: ms,
  tries: small,
  maxLost: small,
  deliveries: fc.constantFrom(undefined, undefined, 1, 3),
  ttl: fc.constantFrom(undefined, undefined, 15_000),
  onceFor: fc.constantFrom(undefined, undefined, 25_000),
  attributes: fc.constantFrom({}, { tenant: 'x' }),
});
const states = fc.subarray([...STATES], { minLength: 1 });
/** Which of the receipts so far, counted from the latest. */
const which = fc.array(fc.nat({ max: 11 }), { minLength: 1, maxLength: 4 });
const does = <N extends string, R extends object>(name: N, rest: { [K in keyof R]: fc.Arbitrary<R[K]> }) =>
  fc.record({ do: fc.constant(name), ...rest }) as fc.Arbitrary<{ do: N } & R>;

const kinds = [
  {
    weight: 4,
    arbitrary: does('enqueue', {
      jobs: fc.array(given, { minLength: 1, maxLength: 6 }),
      mode: fc.constantFrom('keep' as const, 'replace' as const),
    }),
  },
  { weight: 5, arbitrary: does('drain', { leaseMs: fc.constantFrom(0, 15_000, 15_000, undefined) }) },
  { weight: 2, arbitrary: does('ack', { which }) },
  // Drains of this process hold the leases.
  { weight: 2, arbitrary: does('finish', { ids, by: fc.constantFrom(consumer().slice(0, 4), 'other:') }) },
  { weight: 2, arbitrary: does('swap', { id, job: given, by: fc.constantFrom(consumer(), 'other:') }) },
  {
    weight: 3,
    arbitrary: does('nack', {
      which,
      mode: fc.constantFrom(...(['retry', 'retry', 'dead', 'release', 'release', 'back'] as const)),
      maxReleases: fc.constantFrom(1, 2, 1_000),
      delayMs: fc.option(ms, { nil: undefined }),
    }),
  },
  { weight: 1, arbitrary: does('renew', { which, leaseMs: fc.constantFrom(15_000, 25_000, undefined) }) },
  {
    weight: 2,
    arbitrary: does('requeue', { ids, stepMs: fc.constantFrom(0, 1_000), deliveries: fc.constantFrom(undefined, 2) }),
  },
  { weight: 2, arbitrary: does('reschedule', { ids, in: ms, stepMs: fc.constantFrom(undefined, 0, 1_000, 1000 / 3) }) },
  { weight: 1, arbitrary: does('bury', { ids, error: fc.constantFrom('', 'why') }) },
  { weight: 1, arbitrary: does('cancel', { ids, states, keepId: fc.boolean() }) },
  { weight: 1, arbitrary: does('purge', { states, due: fc.boolean() }) },
  { weight: 1, arbitrary: does('configure', { onceFor: fc.constantFrom(null, 15_000, 35_000) }) },
  { weight: 4, arbitrary: does('pass', { ms: fc.constantFrom(10_000, 20_000) }) },
  {
    weight: 3,
    arbitrary: does('grow', { by: fc.integer({ min: 1, max: 13 }), steps: fc.integer({ min: 1, max: 6 }) }),
  },
] as const;
const step = fc.oneof(...kinds);
/** How the model calls consumers. */
const mineOf = (by: string) => (consumer().startsWith(by) ? 'me' : by);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

/** The queue, seen over two connections: what one learns, the other does not know. */
class Played {
  readonly name = freshName();
  readonly model = new Model();
  readonly receipts: { id: string; receipt: string }[] = [];
  readonly #connections: readonly Connection[];
  #turn = 0;

  constructor(connections: readonly Connection[]) {
    this.#connections = connections;
  }

  get redis(): Connection {
    return this.#connections[this.#turn % this.#connections.length] as Connection;
  }

  async grow(count: number, steps = Number.POSITIVE_INFINITY): Promise<void> {
    let left = steps;
    // Broken off, it is as if its process were gone: the next call goes on.
    for await (const { active } of new Operator(this.redis).partition(this.name, count)) {
      left -= 1;
      if (left <= 0 || active > 0) return;
    }
  }

  /** The tags of the partitions, as Redis has them. */
  async tags(): Promise<string[]> {
    const stored = (await admin.hget(`delayq:{${this.name}}:config`, 'partitions')) ?? '';
    return [this.name, ...stored.split(' ').filter(Boolean)];
  }

  /** Id and score of each job of one state, in the order of their times: without delayq. */
  async inSet(state: State): Promise<[id: string, score: number][]> {
    const all: [string, number][] = [];
    for (const tag of await this.tags()) {
      const list = await admin.zrange(`delayq:{${tag}}:${state}`, '0', '-1', 'WITHSCORES');
      for (let n = 0; n < list.length; n += 2) all.push([list[n] as string, Number(list[n + 1])]);
    }
    return all.sort(([a, x], [b, y]) => x - y || Buffer.compare(Buffer.from(a), Buffer.from(b)));
  }

  /** Compares everything, and sets the clock of the model. */
  async check(): Promise<void> {
    const { model, name } = this;
    const inspector = new Inspector(this.redis);
    const snapshot = await inspector.inspect(name);
    for (const state of STATES) {
      const found = await this.inSet(state);
      const expected = [...model.jobs].filter(([, job]) => job.state === state);
      expect(found.map(([id]) => id).sort(), state).toEqual(expected.map(([id]) => id).sort());
      const listed: unknown[] = [];
      for await (const some of inspector.ids(name, { states: [state] })) listed.push(...some);
      expect(listed, `list of ${state}`).toEqual(found.map(([id]) => id));
      expect(await inspector.count(name, { states: [state] })).toBe(expected.length);
      expect(snapshot[state]).toBe(expected.length);
      for (const [id, score] of found) {
        const job = model.jobs.get(id);
        if (!job) continue;
        expect(Math.abs(job.score - score), `time of ${id}`).toBeLessThan(4_000);
        job.score = score;
        if (state === 'pending') job.due = score;
      }
    }
    await this.#remembered();
    const shown = await inspector.show(name, IDS);
    for (const [i, id] of IDS.entries()) {
      const [job, is] = [model.jobs.get(id), shown[i]];
      expect({ id, state: is?.state }).toEqual({ id, state: job?.state });
      if (!job || !is) continue;
      const { state, failures, losses, error, reason, given } = job;
      const { tries, maxLost, deliveries, ttl, attributes } = given;
      const expected = { state, failures, losses, error, reason, tries, maxLost, deliveries, ttl, attributes };
      expect(is).toMatchObject({ ...expected, payload: Buffer.from(job.payload) });
    }
    expect(snapshot.payload).toBe(model.jobs.size);
    // Lateness is measured by Redis's clock. A job that is kept because it is active elsewhere is not counted.
    const counters = ({ kept: _, ...stats }: Readonly<Record<string, number>>) =>
      Object.fromEntries(Object.entries(stats).filter(([counter]) => !/^(late:.*|drained)$/.test(counter)));
    expect(counters(snapshot.stats)).toEqual(counters(model.stats));
  }

  /** Compares what is remembered. While a queue grows, an id may be remembered at two places: the later time holds. */
  async #remembered(): Promise<void> {
    const found = new Map<string, number>();
    for (const tag of await this.tags()) {
      const list = await admin.zrange(`delayq:{${tag}}:done`, '0', '-1', 'WITHSCORES');
      for (let n = 0; n < list.length; n += 2) {
        const [id = '', until] = [list[n], Number(list[n + 1])];
        found.set(id, Math.max(until, found.get(id) ?? 0));
      }
    }
    const now = Date.now();
    const { done } = this.model;
    for (const [id, until] of found) {
      if (until <= now) continue;
      expect(Math.abs(until - (done.get(id) ?? 0)), `${id} is remembered`).toBeLessThan(4_000);
      done.set(id, until);
    }
    expect([...done].filter(([id, until]) => until > now && !found.has(id)).map(([id]) => id)).toEqual([]);
  }

  /** Whether a growth has begun and is not done. */
  async isGrowing(): Promise<boolean> {
    return / from /.test((await admin.hget(`delayq:{${this.name}}:config`, 'layout')) ?? '');
  }

  async play(one: Step): Promise<void> {
    this.#turn += 1;
    const { model, receipts, name, redis } = this;
    const [queue, operator] = [new Queue(redis, name), new Operator(redis)];
    const now = Date.now();
    const chosen =
      'which' in one
        ? one.which.map((back) => receipts[receipts.length - 1 - (back % receipts.length)] as (typeof receipts)[0])
        : [];
    const held = chosen.filter((a, i) => chosen.findIndex((b) => a.id === b.id) === i);
    switch (one.do) {
      case 'enqueue': {
        const jobs = one.jobs.map((job) => ({ ...job, payload: JsonText.parse(job.payload) }));
        const stored: Given[] = one.jobs.map((job, i) => ({ ...job, payload: String(jobs[i]?.payload.text) }));
        const enqueued = await queue.enqueue(jobs, { ifExists: one.mode });
        expect(enqueued.map(({ outcome }) => outcome)).toEqual(model.enqueue(now, stored, one.mode).outcomes);
        return;
      }
      case 'drain': {
        const taken: { id: string; receipt: string; attempt: number; payload: string }[] = [];
        for (;;) {
          const { jobs, state } = await queue.drain({ limit: 3, leaseMs: one.leaseMs });
          const receipt = jobs[0]?.receipt ?? '';
          // All that a call found may have expired.
          if (jobs.length === 0 && state !== 'more') break;
          taken.push(...jobs.map(({ id, attempt, payload }) => ({ id, receipt, attempt, payload: String(payload) })));
        }
        const receiptOf = new Map(taken.map(({ id, receipt }) => [id, receipt]));
        const { jobs: expected } = model.drain(Date.now(), 1_000, one.leaseMs, '');
        const row = ({ id, attempt, payload }: { id: string; attempt: number; payload: string }) =>
          `${id} ${attempt} ${payload}`;
        expect(taken.map(row).sort()).toEqual(expected.map(row).sort());
        if (one.leaseMs === 0) return;
        for (const { id } of expected) {
          const [job, receipt] = [model.jobs.get(id), receiptOf.get(id) as string];
          if (job) job.receipt = receipt;
          receipts.push({ id, receipt });
        }
        return;
      }
      case 'ack':
        expect(await queue.ack(held)).toEqual(held.map(({ id, receipt }) => model.ack(now, id, receipt)));
        return;
      case 'finish': {
        const answers = await queue.finish(one.ids, { by: one.by });
        expect(answers).toEqual(one.ids.map((which) => model.finish(now, which, mineOf(one.by))));
        return;
      }
      case 'swap': {
        const { id: _, ...job } = { ...one.job, payload: JsonText.parse(one.job.payload) };
        const { id } = await queue.swap(one.id, job, { by: one.by });
        model.swap(now, one.id, mineOf(one.by), { ...one.job, id, payload: job.payload.text });
        return;
      }
      case 'nack': {
        const { mode, delayMs, maxReleases } = one;
        const given = held.map((job) => ({ ...job, ...(delayMs === undefined ? {} : { delayMs }) }));
        const answers = await queue.nack(given, { mode, maxReleases, backoff: [10_000, 20_000] });
        const how = { mode, delayMs, maxReleases, backoff: '10000 20000', jitter: 0 };
        const expected = held.map(({ id, receipt }, i) => model.nack(now, { id, receipt, place: i + 1, ...how }));
        expect(answers).toEqual(expected);
        return;
      }
      case 'renew': {
        const answers = await queue.renew(held, one.leaseMs);
        expect(answers).toEqual(held.map(({ id, receipt }) => model.renew(now, id, receipt, one.leaseMs)));
        return;
      }
      case 'requeue': {
        const { ids, stepMs, deliveries } = one;
        const answers = await operator.requeue(name, ids, new Spread({ stepMs }), { deliveries });
        let n = 0;
        const expected = ids.map((which) => {
          const answer = model.requeue(which, now + n * stepMs, { deliveries });
          n += answer === 'requeued' ? 1 : 0;
          return answer;
        });
        expect(answers).toEqual(expected);
        await this.#spaced(
          ids.filter((_, i) => answers[i] === 'requeued'),
          stepMs,
        );
        return;
      }
      case 'reschedule': {
        const { ids, stepMs } = one;
        const before = (await this.inSet('pending')).map(([id]) => id).filter((id) => ids.includes(id));
        const spread = new Spread({ in: one.in, ...(stepMs === undefined ? {} : { stepMs }) });
        const answers = await operator.reschedule(name, ids, spread);
        expect(answers).toEqual(model.reschedule(ids, now + one.in, stepMs ?? 2 ** -10));
        await this.#spaced(before, stepMs ?? 2 ** -10);
        return;
      }
      case 'bury': {
        const answers = await operator.bury(name, one.ids, { reason: one.error });
        expect(answers).toEqual(one.ids.map((which) => model.bury(now, which, one.error)));
        return;
      }
      case 'cancel': {
        const { states, keepId } = one;
        const isGrowing = await this.isGrowing();
        const asleep = one.ids.filter((which) => isGrowing && !keepId && model.remembers(now, which));
        // Somebody who sleeps could bring back what is freed.
        for (const which of asleep)
          await expect(operator.cancel(name, [which], states)).rejects.toMatchObject({ code: 'temporary' });
        const ids = one.ids.filter((which) => !asleep.includes(which));
        const answers = await operator.cancel(name, ids, states, { keepId });
        expect(answers).toEqual(ids.map((which) => model.cancel(now, which, states, keepId)));
        return;
      }
      case 'purge': {
        const removed = { pending: 0, active: 0, dead: 0 };
        const due = one.due && one.states.join() === 'pending';
        for await (const some of operator.purge(name, one.states, { due }))
          for (const state of STATES) removed[state] += some[state];
        expect({ ...removed, more: false }).toEqual(model.purge(now, one.states, 1_000, { plain: false, due }));
        return;
      }
      case 'configure': {
        const { onceFor } = one;
        await operator.configure(name, { onceFor });
        model.config = onceFor === null ? {} : { onceFor };
        return;
      }
      case 'pass':
        for (const tag of await this.tags()) await timePasses(tag, one.ms);
        model.pass(one.ms);
        return;
      case 'grow': {
        const has = (await this.tags()).length;
        await this.grow(Math.min(16, has + one.by), one.steps);
      }
    }
  }

  /** Checks that each of these jobs is due `stepMs` after the one before it. */
  async #spaced(line: readonly string[], stepMs: number): Promise<void> {
    const due = new Map(await this.inSet('pending'));
    const first = due.get(line[0] as string) as number;
    for (const [n, id] of line.entries()) expect((due.get(id) as number) - first, id).toBeCloseTo(n * stepMs, 3);
  }
}

it.each([
  ['3 partitions', 3, 100],
  ['16 partitions', 16, 100],
  ['a number of partitions that grows between calls', 1, 120],
])(
  'a queue with %s agrees with the model of one without',
  async (_, partitions, numRuns) => {
    const grows = partitions === 1;
    const compared = new Set<string>();
    const connections = [new Connection(redisUrl), new Connection(redisUrl)];
    afterwards(() => {
      for (const one of connections) one.close();
    });
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40, size: 'max' }), async (steps) => {
        const played = new Played(connections);
        await played.grow(partitions);
        for (const one of steps) {
          if (!grows && one.do === 'grow') continue;
          if ('which' in one && played.receipts.length === 0) continue;
          await played.play(one);
          await played.check();
          compared.add(one.do);
        }
      }),
      slowRuns(numRuns, 20),
    );
    expect([...compared].sort()).toEqual(kindsOf(kinds).filter((kind) => grows || kind !== 'grow'));
  },
  600_000,
);
