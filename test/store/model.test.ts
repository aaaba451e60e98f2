import fc from 'fast-check';
import { expect, it } from 'vitest';
import { JsonText, Spread } from '../../src/index.js';
import { readyJob, recordOf } from '../../src/model/job.js';
import { LONGEST_MS } from '../../src/model/time.js';
import { ask, lettersOf } from '../../src/store/answers.js';
import * as acts from '../../src/store/edit.js';
import * as scripts from '../../src/store/jobs.js';
import { timeOf } from '../../src/store/jobs.js';
import { layoutIn, type QueueKeys, queueKeys } from '../../src/store/keys.js';
import { REMOVE } from '../../src/store/remove.js';
import { run } from '../../src/store/script.js';
import { ACK, NACK, RENEW } from '../../src/store/settle.js';
import { type Raw, raw } from '../../src/store/stored.js';
import { restore } from '../../src/store/transfer.js';
import { type Definition, type Firing, type Given, Model } from '../support/model.js';
import { kindsOf, slowRuns } from '../support/property.js';
import { admin, connection, freshName, key, timePasses } from '../support/redis.js';

/** A character for each byte: ASCII, other UTF-8, and bytes that are not UTF-8. */
const id = fc.constantFrom('a', 'b', 'c', '\xc3\xa9', '\xe9');
const bytesOf = (id: string) => Buffer.from(id, 'latin1');
const receiptsOf = (held: readonly { id: string; receipt: string }[]) =>
  held.flatMap(({ id, receipt }) => [bytesOf(id), receipt]);
const asBytes = <J extends { id: string }>(jobs: readonly J[]) =>
  jobs.map((job) => ({ ...job, id: bytesOf(job.id) as unknown as string }));
const ms = fc.constantFrom(0, 1, 500, 1_000, 3_000);
const small = fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined });
const job = {
  id,
  payload: fc.json({ maxDepth: 1 }),
  in: ms,
  tries: small,
  maxLost: small,
  deliveries: fc.option(fc.integer({ min: 1, max: 4 }), { nil: undefined, freq: 1 }),
  ttl: fc.constantFrom(undefined, undefined, 1, 500, 1_000, 3_000, LONGEST_MS),
  created: fc.constantFrom(undefined, undefined, 1_790_000_000_000),
  attributes: fc.oneof(
    { weight: 3, arbitrary: fc.constant({}) },
    fc.record(
      {
        traceparent: fc.constant('00-4bf9'),
        'tenant-7': fc.string({ unit: fc.constantFrom('a', '"', '\\', '/', '\x20') }),
      },
      { requiredKeys: [], noNullPrototype: true },
    ),
  ),
};
const given = fc.record(job);
/** Windows are over when time passes, not while a test waits. */
const window = fc.constantFrom(undefined, 400, 900, 2_900);
const givenOnce = fc.record({ ...job, onceFor: window });
const states = fc.subarray(['pending' as const, 'active' as const, 'dead' as const], { minLength: 1 });
/** Which of the receipts so far, counted from the latest. */
const which = fc.array(fc.nat({ max: 11 }), { minLength: 1, maxLength: 4 });

const consumers = fc.constantFrom('me', 'http:a:1', 'http:b:2');
/** Of whose leases a finish makes acks. */
const by = fc.constantFrom('', 'http:', 'http:a:', 'me', 'm', 'x');

/** Of the stream. */
const group = fc.constantFrom('g', 'h');
const entries = fc.integer({ min: 1, max: 4 });

const plain = [
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('enqueue' as const),
      jobs: fc.array(given, { minLength: 1, maxLength: 4 }),
      mode: fc.constantFrom('keep' as const, 'replace' as const),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant('drain' as const),
      limit: fc.integer({ min: 1, max: 4 }),
      leaseMs: fc.constantFrom(0, 1_000, 1_000, 4_000, undefined),
      by: consumers,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('hand over' as const),
      limit: fc.integer({ min: 1, max: 4 }),
      maxUnacked: fc.integer({ min: 1, max: 5 }),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('read' as const), group, count: entries }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('ack entries' as const), group, count: entries }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('ack' as const), which }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('finish' as const),
      ids: fc.array(id, { minLength: 1, maxLength: 6 }),
      by,
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('swap' as const), other: id, job: given, by }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('nack' as const),
      which,
      mode: fc.constantFrom(...(['retry', 'retry', 'dead', 'release', 'release', 'back'] as const)),
      maxReleases: fc.constantFrom(1, 2, 1_000),
      delayMs: fc.option(ms, { nil: undefined }),
      backoff: fc.constantFrom('', '', '700 2000', 'exponential'),
      jitter: fc.constantFrom(0, 0.25, 0.999),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('renew' as const),
      which,
      leaseMs: fc.constantFrom(1_000, 5_000, undefined),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('requeue' as const),
      ids: fc.uniqueArray(id, { minLength: 1 }),
      stepMs: fc.constantFrom(0, 1_000),
      ttl: fc.constantFrom(undefined, undefined, 2_000, LONGEST_MS),
      deliveries: fc.constantFrom(undefined, undefined, 1, 3),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('edit' as const),
      id,
      payload: fc.constantFrom('7', '"new"'),
      isOld: fc.constantFrom(false, false, true),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant('reschedule' as const),
      ids: fc.uniqueArray(id, { minLength: 1 }),
      in: ms,
      stepMs: fc.constantFrom(undefined, 0, 250, 1000 / 3),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('bury' as const),
      ids: fc.uniqueArray(id, { minLength: 1 }),
      error: fc.constantFrom('', 'why'),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('cancel' as const), ids: fc.uniqueArray(id, { minLength: 1 }), states }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('purge' as const),
      states,
      limit: fc.integer({ min: 1, max: 3 }),
      due: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('pause' as const),
      forMs: fc.constantFrom(500, 2_000, Number.POSITIVE_INFINITY, undefined, undefined),
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('pass' as const), ms }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('configure' as const),
      tries: small,
      maxLost: small,
      ttl: fc.option(ms, { nil: undefined }),
      backoff: fc.constantFrom(undefined, '300', '0 1500'),
      lease: fc.constantFrom(undefined, 2_000),
    }),
  },
] as const;

/** What is kept of what happens. */
const observing = {
  weight: 2,
  arbitrary: fc.record({
    do: fc.constant('observe' as const),
    events: fc.constantFrom(undefined, 1_000, 1_000, 1_000),
    eventTypes: fc.constantFrom(undefined, undefined, ['dead' as const, 'lost' as const, 'acked' as const]),
    keepDone: fc.constantFrom(undefined, 400, 2_900),
    maxDone: fc.constantFrom(undefined, undefined, 2),
  }),
} as const;

/** Of a recurring job. The jobs of some have ids that others have, too. */
const every = fc.constantFrom('every', 'other');
/** Limits, windows and recurring jobs. */
const more = [
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('enqueue' as const),
      jobs: fc.array(givenOnce, { minLength: 1, maxLength: 4 }),
      mode: fc.constantFrom('keep' as const, 'replace' as const, 'back' as const),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({
      do: fc.constant('drain' as const),
      limit: fc.integer({ min: 1, max: 4 }),
      leaseMs: fc.constantFrom(0, 1_000, 4_000, undefined),
      by: consumers,
      start: fc.constantFrom(undefined, 0, 1, 2, '-' as const),
      occurs: fc.boolean(),
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({ do: fc.constant('swap' as const), other: id, job: givenOnce, by }),
  },
  { weight: 5, arbitrary: fc.record({ do: fc.constant('ack' as const), which }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('cancel' as const),
      ids: fc.uniqueArray(id, { minLength: 1 }),
      states,
      keepId: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant('restore' as const),
      job: givenOnce,
      state: fc.constantFrom('pending' as const, 'dead' as const),
      token: fc.boolean(),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant('clock' as const), ms: fc.constantFrom(1, 1_000, 5_000) }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('limit' as const),
      rate: fc.constantFrom(
        undefined,
        { jobs: 1, perMs: 1_000 },
        { jobs: 7, perMs: 3_000 },
        { jobs: 0.3, perMs: 100 },
        { jobs: 40, perMs: 1_000 },
      ),
      burst: fc.constantFrom(undefined, 1, 3),
      maxActive: fc.constantFrom(undefined, undefined, 1, 2),
      onceFor: window,
    }),
  },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('define' as const),
      every,
      payload: fc.constantFrom('{}', '{"a":"\\n"}'),
      overlap: fc.constantFrom('allow' as const, 'skip' as const),
      tries: small,
      onceFor: window,
      in: fc.constantFrom(0, 500, 1_000, Number.POSITIVE_INFINITY),
      stale: fc.boolean(),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('undefine' as const), every }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('fire' as const),
      jobs: fc.array(fc.constantFrom('a', 'b', 'c', 'every@1', 'every@2'), { maxLength: 3 }),
      ago: fc.constantFrom(0, 1_000),
      skipped: fc.nat({ max: 2 }),
      next: fc.constantFrom(0, 500, 1_000, Number.POSITIVE_INFINITY),
      stale: fc.constantFrom(undefined, undefined, undefined, 'rev', 'at', 'twice'),
    }),
  },
] as const;
const anyStep = fc.oneof(...plain, ...more, observing);
type Step = typeof anyStep extends fc.Arbitrary<infer S> ? S : never;

/** A queue, and what it must be. */
interface Played {
  readonly name: string;
  keys: QueueKeys;
  readonly model: Model;
  readonly receipts: { id: string; receipt: string }[];
  /** The last event that was compared. */
  last: string;
}

it.each([
  ['of a plain queue', plain, 2_000],
  ['of one with limits, windows, recurring jobs, events and results', [...plain, observing, ...more], 1_000],
])(
  'every script %s agrees with a simple model, whatever the calls and times (failures 34)',
  async (_, kinds, numRuns) => {
    const step: fc.Arbitrary<Step> = fc.oneof(...kinds);
    const compared = new Set<string>();
    await fc.assert(
      fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40, size: 'max' }), async (steps) => {
        const name = freshName();
        const model = new Model();
        const queue: Played = { name, keys: queueKeys('delayq', name), model, receipts: [], last: '-' };
        for (const [n, one] of steps.entries()) {
          const before = await redisTime();
          if (!isPossible(queue, one)) continue;
          model.left = { now: Number.NEGATIVE_INFINITY, ids: 0 };
          const times = [...model.done.values()];
          if (one.do === 'purge') times.push(...[...model.jobs.values()].map(({ score }) => score));
          try {
            await play(queue, one, n);
            await remembered(queue, before);
            await expectTold(queue);
            await expectFinished(queue, before);
            expect(await contents(name)).toEqual(model.contents());
            await expectUses(queue);
            compared.add(one.do);
          } catch (error) {
            const now = await redisTime();
            // Not every script tells its time: was it before or after the end of this window, or the due time of a job?
            if (times.some((until) => until > before && until <= now)) return;
            throw error;
          }
        }
      }),
      slowRuns(numRuns, 25),
    );
    expect([...compared].sort()).toEqual(kindsOf(kinds));
  },
  600_000,
);

/** Whether there is something that a step can be about. */
function isPossible({ model, receipts }: Played, one: Step): boolean {
  if ('which' in one) return receipts.length > 0;
  // A new id is never the old one.
  if (one.do === 'swap') return one.job.id !== one.other;
  return one.do !== 'fire' || model.every.size > 0;
}

async function play(queue: Played, one: Step, n: number): Promise<void> {
  const { name, keys, model, receipts } = queue;
  const chosen =
    'which' in one
      ? one.which.map((back) => receipts[receipts.length - 1 - (back % receipts.length)] as (typeof receipts)[0])
      : [];
  // No call names a job twice: delayq never does, and queue.test.ts covers it.
  const held = chosen.filter((a, i) => chosen.findIndex((b) => a.id === b.id) === i);
  switch (one.do) {
    case 'enqueue': {
      const ready = one.jobs.map((job) => readyJob({ ...job, id: 'x', payload: JsonText.parse(job.payload) }));
      const jobs = asBytes(ready.map((job, i) => ({ ...job, id: one.jobs[i]?.id as string })));
      const stored: Given[] = one.jobs.map((job, i) => ({ ...job, payload: String(jobs[i]?.json) }));
      const { now, outcomes, begun } = await scripts.enqueue(connection, keys, jobs, one.mode);
      expect({ outcomes, begun }).toEqual(model.enqueue(now, stored, one.mode));
      return;
    }
    case 'drain': {
      const receipt = `r${n}`;
      const { limit, leaseMs, by } = one;
      const [start, occurs] = 'start' in one ? [one.start, one.occurs] : [undefined, true];
      const startable = typeof start === 'number' ? () => start : start;
      const args = { limit, leaseMs, receipt, by, cutoff: undefined, start: startable, occurs };
      const told = { start: typeof start === 'number' ? start : undefined, occurs, by };
      const drained = await scripts.drain(connection, keys, args).catch((error) => {
        expect(String((error as Error).cause)).toContain('LIMITED');
      });
      // What takes jobs that would not count as active is refused.
      const isPlainPipe = start === '-' || leaseMs === 0;
      if (!drained) {
        expect(isPlainPipe && model.config.maxActive !== undefined).toBe(true);
        return;
      }
      const { now } = drained;
      const { state, jobs: expected } = model.drain(now, limit, leaseMs, receipt, told);
      if (isPlainPipe && model.config.maxActive !== undefined) expect(['paused', 'occurs']).toContain(state);
      expect(drained.state).toBe(state);
      if (state === 'paused' || drained.state === 'occurs') return;
      // Seven digits: then the model goes on with what Redis has stored.
      const tokens = model.tokens(now);
      model.bucket = await bucketOf(name);
      expect(model.tokens(now)).toBeCloseTo(tokens, 7);
      expect(
        drained.jobs.map(({ id, payload, receipt, record, keepsResult, ...told }) => ({
          ...{ id: Buffer.from(id).toString('latin1'), payload: String(payload) },
          ...told,
        })),
      ).toEqual(expected);
      for (const job of drained.jobs) expect(job.keepsResult === true).toBe(model.config.keepDone !== undefined);
      if (expected.length > 0) expect(drained.texts).toBe(model.config.text === 1);
      expect(drained.leaseMs).toBe(leaseMs ?? model.config.lease ?? 60_000);
      if (leaseMs !== 0) receipts.push(...expected.map(({ id }) => ({ id, receipt })));
      return;
    }
    case 'hand over': {
      const { limit, maxUnacked } = one;
      const stream = { key: key(name, 'stream'), maxUnacked };
      const args = { limit, leaseMs: 0, receipt: '-', by: 'me', cutoff: undefined, stream };
      const drained = await scripts.drain(connection, keys, args).catch((error) => {
        expect(String((error as Error).cause)).toContain('LIMITED');
      });
      const isRefused = model.config.maxActive !== undefined;
      if (!drained) {
        expect(isRefused).toBe(true);
        return;
      }
      const { state, count, unacked = 0, slowest = '' } = model.handOver(drained.now, limit, maxUnacked);
      expect(drained.state).toBe(state);
      if (state === 'paused' || drained.state === 'occurs') return;
      const tokens = model.tokens(drained.now);
      model.bucket = await bucketOf(name);
      expect(model.tokens(drained.now)).toBeCloseTo(tokens, 7);
      expect(drained.jobs).toEqual([]);
      expect(drained.handedOver).toMatchObject({ count });
      // What had nothing to do does not say it.
      if (count > 0) expect(drained.handedOver).toEqual({ count, unacked, slowest });
      return;
    }
    case 'read': {
      const { group, count } = one;
      await admin.xgroup('CREATE', key(name, 'stream'), group, '0', 'MKSTREAM').catch(() => {});
      await admin.xreadgroup('GROUP', group, 'me', 'COUNT', count, 'STREAMS', key(name, 'stream'), '>');
      model.read(group, count);
      return;
    }
    case 'ack entries': {
      const { group, count } = one;
      const pending = (await admin.xpending(key(name, 'stream'), group, '-', '+', count).catch(() => [])) as string[][];
      if (pending.length > 0) await admin.xack(key(name, 'stream'), group, ...pending.map(([entry = '']) => entry));
      model.ackEntries(group, count);
      return;
    }
    case 'ack': {
      const { answers } = await ask(connection, keys, ACK, receiptsOf(held));
      const now = await redisTime();
      const done = model.sweeping(now, 0, () => held.map(({ id, receipt }) => model.ack(now, id, receipt)));
      expect(answers).toEqual(done);
      return;
    }
    case 'finish': {
      const { ids, by } = one;
      const { answers } = await ask(connection, keys, REMOVE, [by, 'any', '', '', '', '', ...ids.map(bytesOf)]);
      const now = await redisTime();
      expect(answers).toEqual(model.sweeping(now, 0, () => ids.map((which) => model.finish(now, which, by))));
      return;
    }
    case 'swap': {
      const { other, by, job } = one;
      const ready = readyJob({ ...job, id: 'x', payload: JsonText.parse(job.payload) });
      const args = [by, 'any', bytesOf(job.id), ready.json, timeOf(ready), ready.record, bytesOf(other)];
      const { now, answers } = await ask(connection, keys, REMOVE, args);
      const given = { ...job, payload: String(ready.json) };
      expect(answers).toEqual([model.sweeping(now, 0, () => model.swap(now, other, by, given))]);
      return;
    }
    case 'nack': {
      const { mode, delayMs, backoff, jitter, maxReleases } = one;
      const limit = mode === 'release' ? maxReleases : backoff;
      const args = held.flatMap(({ id, receipt }) => [bytesOf(id), receipt, delayMs ?? '', '', '']);
      const { now, answers, rest } = await ask(connection, keys, NACK, [mode, limit, jitter, ...args]);
      expect(answers.map((answer, i) => ({ answer, delayMs: Number(rest[i]) }))).toEqual(
        held.map(({ id, receipt }, i) =>
          model.nack(now, { id, receipt, mode, delayMs, backoff, jitter, maxReleases, place: i + 1 }),
        ),
      );
      return;
    }
    case 'renew': {
      const { now, answers } = await ask(connection, keys, RENEW, [one.leaseMs ?? '', ...receiptsOf(held)]);
      expect(answers).toEqual(held.map(({ id, receipt }) => model.renew(now, id, receipt, one.leaseMs)));
      return;
    }
    case 'requeue': {
      const { ids, stepMs, ttl, deliveries } = one;
      const args = ['+0', stepMs, ttl ?? '', deliveries ?? '', '', ...ids.map(bytesOf)];
      const { now, answers } = await ask(connection, keys, acts.REQUEUE, args);
      let n = 0;
      expect(answers).toEqual(
        ids.map((which) => {
          const answer = model.requeue(which, now + n * stepMs, { ttl, deliveries });
          n += answer === 'requeued' ? 1 : 0;
          return answer;
        }),
      );
      return;
    }
    case 'edit': {
      const which = bytesOf(one.id);
      const [row] = await raw(connection, keys, [which]);
      const mark = acts.markOf(one.isOld ? { ...(row as Raw), payload: Buffer.from('other') } : (row as Raw));
      const { now, answers } = await ask(connection, keys, acts.EDIT, ['+0', 0, '', '', mark, one.payload, which]);
      expect(answers).toEqual([one.isOld ? 'changed' : model.edit(one.id, now, one.payload)]);
      return;
    }
    case 'reschedule': {
      const { ids, stepMs } = one;
      const spread = new Spread({ in: one.in, ...(stepMs === undefined ? {} : { stepMs }) });
      const args = [spread.next, spread.stepMs, ...ids.map(bytesOf)];
      const { now, answers } = await ask(connection, keys, acts.RESCHEDULE, args);
      expect(answers).toEqual(model.reschedule(ids, now + one.in, stepMs ?? 2 ** -10));
      return;
    }
    case 'bury': {
      const { now, answers } = await ask(connection, keys, acts.BURY, [one.error, ...one.ids.map(bytesOf)]);
      expect(answers).toEqual(one.ids.map((which) => model.bury(now, which, one.error)));
      return;
    }
    case 'cancel': {
      const { ids, states } = one;
      const keepId = 'keepId' in one && one.keepId;
      const from = `${lettersOf(states)}${keepId ? 'k' : ''}`;
      const { now, answers } = await ask(connection, keys, acts.CANCEL, [from, ...ids.map(bytesOf)]);
      expect(answers).toEqual(ids.map((which) => model.cancel(now, which, states, keepId)));
      return;
    }
    case 'purge': {
      const { limit } = one;
      const due = one.due && one.states[0] === 'pending';
      const states = due ? ['pending' as const] : one.states;
      const usesBefore = await usesOf(name);
      const args = [lettersOf(states), limit, ...(due ? ['due'] : [])];
      const [pending, active, dead, more] = await run(connection, 'edit/purge', keys, args);
      const now = await redisTime();
      const how = { plain: !usesBefore.includes('windows'), due };
      const expected = model.sweeping(now, 0, () => model.purge(now, states, limit, how));
      expect({ pending, active, dead, more: more === 1 }).toEqual(expected);
      return;
    }
    case 'restore': {
      const { job, state } = one;
      const now = await redisTime();
      const [payload, score] = [JsonText.parse(job.payload).text, now + job.in];
      const record = Buffer.from(recordOf(job));
      const id = bytesOf(job.id);
      const parcel = { id, state, score: String(score), record, payload: Buffer.from(payload) };
      const token = one.token ? `t${n}` : '';
      const [answer] = await restore(connection, keys, [{ ...parcel, token }]);
      expect(answer).toBe(
        model.restore(now, { ...job, payload: parcel.payload.toString('latin1'), state, score }, token),
      );
      return;
    }
    case 'clock':
      await timePasses(name, -one.ms);
      model.pass(-one.ms);
      return;
    case 'limit': {
      const { rate, burst, maxActive, onceFor } = one;
      const text = burst === 3 ? 1 : undefined;
      const settings = { rate: rate && `${rate.jobs} ${rate.perMs}`, burst, maxActive, onceFor, text };
      Object.assign(model.config, { rate, burst, maxActive, onceFor, text });
      await run(
        connection,
        'edit/config',
        keys,
        Object.entries(settings).flatMap(([setting, value]) => [setting, String(value ?? '')]),
      );
      queue.keys = queueKeys('delayq', name, text === 1 ? '1 0/1 texts' : undefined);
      return;
    }
    case 'define': {
      const { payload, overlap, tries, onceFor } = one;
      const old = model.every.get(one.every);
      const next = (await redisTime()) + one.in;
      const given = { tries, onceFor, maxLost: undefined, ttl: undefined, attributes: {} };
      const definition: Definition = { rev: `v${n}`, payload, overlap, given, next, last: old?.last ?? '' };
      const rev = one.stale ? 'v-1' : (old?.rev ?? '');
      const [done] = await run(connection, 'every/put', keys, [
        ...[one.every, rev, headerOf(definition), Buffer.from(payload, 'latin1'), scoreOf(next)],
      ]);
      expect(done).toBe(one.stale ? 0 : 1);
      if (!one.stale) model.every.set(one.every, definition);
      return;
    }
    case 'undefine':
      expect(await run(connection, 'every/remove', keys, [one.every])).toEqual([Number(model.every.delete(one.every))]);
      return;
    case 'fire': {
      const now = await redisTime();
      const firings = [...model.every].map(
        ([id, { rev, next: at, overlap }]): Firing => ({
          id,
          rev: one.stale === 'rev' ? 'v-1' : rev,
          at: one.stale === 'at' ? at - 1 : at,
          next: now + one.next,
          // Several jobs of missed occurrences would overlap: definitions that skip have one at a time.
          jobs: [...new Set(one.jobs)]
            .slice(0, overlap === 'skip' ? 1 : undefined)
            .map((job) => ({ id: job, due: now - one.ago })),
          skipped: one.skipped,
        }),
      );
      const args = firings.flatMap(({ id, rev, at, next, jobs, skipped }) => {
        const { overlap, given } = model.every.get(id) as Definition;
        const list = jobs.flatMap((job) => [job.due, job.id]);
        return [id, rev, scoreOf(at), scoreOf(next), overlap, recordOf(given), skipped, jobs.length, ...list];
      });
      for (let left = one.stale === 'twice' ? 2 : 1; left > 0; left--) {
        const reply = await run(connection, 'every/fire', keys, args);
        expect(reply).toEqual(model.fire(await redisTime(), firings));
      }
      return;
    }
    case 'observe': {
      const { events, eventTypes, keepDone, maxDone } = one;
      const settings = { events, eventTypes: eventTypes && ` ${eventTypes.join(' ')} `, keepDone, maxDone };
      const change = Object.entries(settings).flatMap(([setting, value]) => [setting, String(value ?? '')]);
      await run(connection, 'edit/config', keys, change);
      if (events === undefined) queue.last = '-';
      model.observe(JSON.parse(JSON.stringify({ events, eventTypes, keepDone, maxDone })));
      return;
    }
    case 'pause': {
      const how = one.forMs === undefined ? '' : `+${one.forMs}`.replace('+Infinity', 'inf');
      const until = String((await run(connection, 'edit/pause', keys, [how]))[2]);
      expect(until === '').toBe(one.forMs === undefined);
      model.pausedUntil = until === '' ? undefined : Number(until.replace('inf', 'Infinity'));
      return;
    }
    case 'pass':
      await timePasses(name, one.ms);
      model.pass(one.ms);
      return;
    case 'configure': {
      const { tries, maxLost, ttl, backoff, lease } = one;
      const config = JSON.parse(JSON.stringify({ tries, maxLost, ttl, backoff, lease }));
      const { rate, burst, maxActive, onceFor, text, events, eventTypes, keepDone, maxDone } = model.config;
      model.config = { ...config, rate, burst, maxActive, onceFor, text, events, eventTypes, keepDone, maxDone };
      const change = ['tries', 'maxLost', 'ttl', 'backoff', 'lease'].flatMap((name) => [
        name,
        String(config[name] ?? ''),
      ]);
      await run(connection, 'edit/config', keys, change);
    }
  }
}

const scoreOf = (ms: number) => (ms === Number.POSITIVE_INFINITY ? 'inf' : String(ms));

const headerOf = ({ rev, overlap, given }: Definition) =>
  JSON.stringify({ rev, spec: 'every 1000', missed: 'once', overlap, created: 0, record: recordOf(given) });

async function redisTime(): Promise<number> {
  const [seconds = 0, micros = 0] = ((await admin.time()) as unknown as string[]).map(Number);
  return seconds * 1_000 + Math.floor(micros / 1_000);
}

async function bucketOf(name: string): Promise<Model['bucket']> {
  const [tokens, at] = (await admin.hget(key(name, 'stats'), 'bucket'))?.split(' ').map(Number) ?? [];
  return tokens === undefined || at === undefined ? undefined : { tokens, at };
}

/**
 * Compares what is remembered, of a call that was made after `before`. Not every script tells its time, and what is over
 * may be there or not: the model takes over both.
 */
async function remembered({ name, model }: Played, before: number): Promise<void> {
  const list = (await admin.zrangeBuffer(key(name, 'done'), '0', '-1', 'WITHSCORES')).map(latin1);
  const now = await redisTime();
  const found = new Map(Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], Number(list[2 * i + 1])]));
  for (const [id, until] of model.done) {
    const is = found.get(id);
    if (is === undefined && until <= now) model.done.delete(id);
    else if (is !== undefined && is < until && is >= until - (now - before)) model.done.set(id, is);
  }
  expect(Object.fromEntries(found)).toEqual(Object.fromEntries(model.done));
  // Calls that add nothing remove up to 100, others more than they add.
  const over = [...found.values()].filter((until) => until <= model.left.now).length;
  expect(over).toBeLessThanOrEqual(model.left.ids);
}

/** Compares the events since the last step: those of each job in their order. */
async function expectTold(queue: Played): Promise<void> {
  const { name, model } = queue;
  const from = queue.last === '-' ? '-' : `(${queue.last}`;
  const entries = await admin.xrangeBuffer(key(name, 'events'), from, '+');
  queue.last = entries.at(-1)?.[0].toString() ?? queue.last;
  const told = entries.map(([, fields]) => {
    const words = fields.map(latin1);
    const { due, attempt, ...rest } = Object.fromEntries(
      words.flatMap((word, i) => (i % 2 ? [[words[i - 1], word]] : [])),
    );
    const numbers = Object.entries({ due, attempt }).filter(([, text]) => text !== '');
    const texts = Object.entries(rest).filter(([field, text]) => text !== '' || field === 'id');
    return Object.fromEntries([...texts, ...numbers.map(([field, text]) => [field, Number(text)])]);
  });
  const inOrder = (list: readonly { id?: unknown }[]) =>
    [...list].sort((a, b) => (String(a.id) < String(b.id) ? -1 : a.id === b.id ? 0 : 1));
  expect(inOrder(told)).toEqual(inOrder(JSON.parse(JSON.stringify(model.told()))));
}

/**
 * Compares the jobs that are done, and kept. Not every script tells its time, and what is kept too long or is too much
 * goes with a later call: the model takes over both.
 */
async function expectFinished({ name, model }: Played, before: number): Promise<void> {
  const { keepDone = 0, maxDone = 10_000 } = model.config;
  const list = (await admin.zrangeBuffer(key(name, 'finished'), '0', '-1', 'WITHSCORES')).map(latin1);
  const records = (await admin.callBuffer('HGETALL', key(name, 'results'))) as Buffer[];
  const byId = new Map(records.map(latin1).flatMap((text, i, all) => (i % 2 ? [[all[i - 1], JSON.parse(text)]] : [])));
  const now = await redisTime();
  const found = Array.from(
    { length: list.length / 2 },
    (_, i) => [list[2 * i] as string, Number(list[2 * i + 1])] as const,
  );
  // Each that is added makes room.
  if (model.hasKept) {
    expect(found.length).toBeLessThanOrEqual(maxDone);
    for (const [id, at] of found) expect(at, id).toBeGreaterThan(before - keepDone);
  }
  model.hasKept = false;
  expect([...byId.keys()].sort()).toEqual(found.map(([id]) => id).sort());
  const expected = new Map(model.finished);
  for (const [id, at] of found) {
    const kept = expected.get(id);
    expect(kept, id).toBeDefined();
    if (!kept) continue;
    if (at < kept.at && at >= kept.at - (now - before)) kept.at = at;
    const { took, ...rest } = byId.get(id);
    expect({ at, ...rest }).toEqual(kept);
    expect(took).toBeGreaterThanOrEqual(0);
    expected.delete(id);
  }
  // What is left was removed: it was too old, or too many were younger.
  for (const [id, { at }] of expected) {
    const younger = found.filter(([, other]) => other >= at).length;
    expect(at <= now - keepDone || younger >= maxDone, id).toBe(true);
    model.finished.delete(id);
  }
}

const usesOf = async (name: string) => layoutIn((await admin.hget(key(name, 'config'), 'layout')) ?? '').uses;

/** Compares which features the queue says that it uses. It may say windows while there are records: one could have one. */
async function expectUses({ name, model }: Played): Promise<void> {
  const { tries, maxLost, ttl, backoff, lease, rate, maxActive, onceFor, text, events, keepDone } = model.config;
  const isSet = (...values: unknown[]) => values.some((value) => value !== undefined);
  const jobs = [...model.jobs.values()];
  const hasWindows = isSet(onceFor) || model.done.size > 0 || jobs.some(({ given }) => isSet(given.onceFor));
  const expected = {
    settings: isSet(tries, maxLost, ttl, backoff, lease, model.pausedUntil),
    rate: isSet(rate),
    maxActive: isSet(maxActive),
    recurring: model.every.size > 0,
    texts: text === 1,
    events: isSet(events),
    results: isSet(keepDone),
  };
  const uses = await usesOf(name);
  const words = Object.entries(expected).flatMap(([word, isUsed]) => (isUsed ? [word] : []));
  expect(uses.filter((word) => word !== 'windows')).toEqual(words);
  if (hasWindows) expect(uses).toContain('windows');
}

const latin1 = (bytes: Buffer) => bytes.toString('latin1');

/** The contents of Redis, in the form of {@link Model.contents}. */
async function contents(name: string) {
  const set = async (which: string) => {
    const list = (await admin.zrangeBuffer(key(name, which), '0', '-1', 'WITHSCORES')).map(latin1);
    const score = (text = '') => (text === 'inf' ? Number.POSITIVE_INFINITY : Number(text));
    return Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], score(list[2 * i + 1])]);
  };
  const hash = async (which: string): Promise<Record<string, string>> => {
    const list = ((await admin.callBuffer('HGETALL', key(name, which))) as Buffer[]).map(latin1);
    return Object.fromEntries(
      Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1] as string]),
    );
  };
  const stream = (await admin.xrangeBuffer(key(name, 'stream'), '-', '+')).map(([, fields]) => {
    const words = fields.map(latin1);
    const entry = Object.fromEntries(words.flatMap((word, i) => (i % 2 ? [[words[i - 1], word]] : [])));
    const { id, queue, due, payload, attributes = '{}', ...more } = entry;
    expect({ queue, ...more }).toEqual({ queue: name });
    return { id, due: Number(due), payload, attributes: JSON.parse(attributes) };
  });
  const [pending, active, dead, payload, meta, lease, stats, every, occurs] = await Promise.all([
    set('pending'),
    set('active'),
    set('dead'),
    hash('payload'),
    hash('meta'),
    hash('lease'),
    hash('stats'),
    hash('every'),
    set('occurs'),
  ]);
  // Samples depend on the clock; trend.test.ts covers them.
  const isCounter = (counter: string) => !/^(drained|sampled|configured|bucket|failures|at:\d+)$/.test(counter);
  const counters = Object.entries(stats).filter(([counter]) => isCounter(counter));
  const { by, ...failures } = JSON.parse(stats.failures ?? '{}');
  return {
    pending,
    active,
    dead,
    payload,
    meta: Object.fromEntries(Object.entries(meta).map(([job, text]) => [job, JSON.parse(text)])),
    lease: Object.entries(lease)
      .map(([field, value]) => {
        const [receipt, due] = value.split(' ');
        return due === undefined || due === 'moved' ? field : `${field} ${receipt} ${Number(due)}`;
      })
      .sort(),
    every: Object.fromEntries(
      Object.entries(every).map(([job, text]) => {
        const [last = '', header = '', payload = ''] = text.split('\n');
        return [job, { last, rev: JSON.parse(header).rev, payload }];
      }),
    ),
    occurs: Object.fromEntries(occurs.map(([job, at]) => [job, at])),
    stream,
    stats: Object.fromEntries(counters.map(([counter, value]) => [counter, Number(value)])),
    failures: stats.failures === undefined ? undefined : failures,
  };
}
