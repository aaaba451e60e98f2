import fc from 'fast-check';
import { expect, it } from 'vitest';
import { JsonText, Spread } from '../../src/index.js';
import { readyJob } from '../../src/model/job.js';
import { queueKeys } from '../../src/redis/keys.js';
import * as acts from '../../src/scripts/edit.js';
import * as scripts from '../../src/scripts/jobs.js';
import { type Given, Model } from '../support/model.js';
import { admin, connection, freshName, key, timePasses } from '../support/redis.js';

/** A character for each byte: ASCII, other UTF-8, and bytes that are not UTF-8. */
const id = fc.constantFrom('a', 'b', 'c', '\xc3\xa9', '\xe9');
const bytesOf = (id: string) => Buffer.from(id, 'latin1');
const asBytes = <J extends { id: string }>(jobs: readonly J[]) =>
  jobs.map((job) => ({ ...job, id: bytesOf(job.id) as unknown as string }));
const ms = fc.constantFrom(0, 1, 500, 1_000, 3_000);
const small = fc.option(fc.integer({ min: 1, max: 3 }), { nil: undefined });
const given = fc.record({
  id,
  payload: fc.json({ maxDepth: 1 }),
  in: ms,
  tries: small,
  maxLost: small,
  ttl: fc.option(ms, { nil: undefined }),
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
});
const states = fc.subarray(['pending' as const, 'active' as const, 'dead' as const], { minLength: 1 });
/** Which of the receipts so far, counted from the latest. */
const which = fc.array(fc.nat({ max: 11 }), { minLength: 1, maxLength: 4 });

const step = fc.oneof(
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
    }),
  },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('ack' as const), which }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant('nack' as const),
      which,
      mode: fc.constantFrom('retry' as const, 'retry' as const, 'dead' as const, 'release' as const),
      delayMs: fc.option(ms, { nil: undefined }),
      backoff: fc.constantFrom('', '', '700 2000', 'exponential'),
      jitter: fc.constantFrom(0, 0.25, 0.999),
    }),
  },
  {
    weight: 1,
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
    arbitrary: fc.record({ do: fc.constant('purge' as const), states, limit: fc.integer({ min: 1, max: 3 }) }),
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
);
type Step = typeof step extends fc.Arbitrary<infer S> ? S : never;

it('every script agrees with a simple model, whatever the calls and times (failures 34)', async () => {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { minLength: 1, maxLength: 40, size: 'max' }), async (steps) => {
      const name = freshName();
      const model = new Model();
      const receipts: { id: string; receipt: string }[] = [];
      for (const [n, one] of steps.entries()) {
        await play(name, model, receipts, one, n);
        expect(await contents(name)).toEqual(model.contents());
      }
    }),
    { numRuns: 2_000 },
  );
}, 300_000);

async function play(
  name: string,
  model: Model,
  receipts: { id: string; receipt: string }[],
  one: Step,
  n: number,
): Promise<void> {
  const keys = queueKeys('delayq', name);
  const chosen =
    'which' in one && receipts.length > 0
      ? one.which.map((back) => receipts[receipts.length - 1 - (back % receipts.length)] as (typeof receipts)[0])
      : [];
  if ('which' in one && chosen.length === 0) return;
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
      const { limit, leaseMs } = one;
      const drained = await scripts.drain(connection, keys, { limit, leaseMs, receipt, by: 'me', cutoff: undefined });
      const expected = model.drain(drained.now, limit, leaseMs, receipt);
      expect(
        drained.jobs.map(({ id, due, attempt, failures, tries, payload, attributes }) => ({
          ...{ id: Buffer.from(id).toString('latin1'), due, attempt, failures, tries, payload: String(payload) },
          attributes,
        })),
      ).toEqual(expected);
      expect(drained.leaseMs).toBe(leaseMs ?? model.config.lease ?? 60_000);
      if (leaseMs !== 0) receipts.push(...expected.map(({ id }) => ({ id, receipt })));
      return;
    }
    case 'ack': {
      const { answers } = await scripts.ack(connection, keys, asBytes(held));
      expect(answers).toEqual(held.map(({ id, receipt }) => model.ack(id, receipt)));
      return;
    }
    case 'nack': {
      const { mode, delayMs, backoff, jitter } = one;
      const { now, answers } = await scripts.nack(
        connection,
        keys,
        asBytes(held).map((job) => ({ ...job, delayMs })),
        { mode, backoff, jitter },
      );
      expect(answers).toEqual(
        held.map(({ id, receipt }, i) =>
          model.nack(now, { id, receipt, mode, delayMs, backoff, jitter, place: i + 1 }),
        ),
      );
      return;
    }
    case 'renew': {
      const { now, answers } = await scripts.renew(connection, keys, asBytes(held), one.leaseMs);
      expect(answers).toEqual(held.map(({ id, receipt }) => model.renew(now, id, receipt, one.leaseMs)));
      return;
    }
    case 'requeue': {
      const { ids, stepMs } = one;
      const spread = new Spread({ stepMs });
      const { now, answers } = await acts.requeue(connection, keys, ids.map(bytesOf), spread);
      let n = 0;
      expect(answers).toEqual(
        ids.map((which) => {
          const answer = model.requeue(which, now + n * stepMs);
          n += answer === 'requeued' ? 1 : 0;
          return answer;
        }),
      );
      return;
    }
    case 'reschedule': {
      const { ids, stepMs } = one;
      const spread = new Spread({ in: one.in, ...(stepMs === undefined ? {} : { stepMs }) });
      const { now, answers } = await acts.reschedule(connection, keys, ids.map(bytesOf), spread);
      expect(answers).toEqual(model.reschedule(ids, now + one.in, stepMs ?? 2 ** -10));
      return;
    }
    case 'bury': {
      const { now, answers } = await acts.bury(connection, keys, one.ids.map(bytesOf), one.error);
      expect(answers).toEqual(one.ids.map((which) => model.bury(now, which, one.error)));
      return;
    }
    case 'cancel': {
      const { answers } = await acts.cancel(connection, keys, one.ids.map(bytesOf), one.states);
      expect(answers).toEqual(one.ids.map((which) => model.cancel(which, one.states)));
      return;
    }
    case 'purge':
      expect(await acts.purge(connection, keys, one.states, one.limit)).toEqual(model.purge(one.states, one.limit));
      return;
    case 'pause': {
      const { until } = await acts.pause(connection, keys, one.forMs);
      expect(until === undefined).toBe(one.forMs === undefined);
      model.pausedUntil = until;
      return;
    }
    case 'pass':
      await timePasses(name, one.ms);
      model.pass(one.ms);
      return;
    case 'configure': {
      const { tries, maxLost, ttl, backoff, lease } = one;
      const config = JSON.parse(JSON.stringify({ tries, maxLost, ttl, backoff, lease }));
      const unset = ['tries', 'maxLost', 'ttl', 'backoff', 'lease'].filter((name) => !(name in config));
      model.config = config;
      if (unset.length > 0) await admin.hdel(key(name, 'config'), ...unset);
      for (const [field, value] of Object.entries(config)) await admin.hset(key(name, 'config'), field, String(value));
    }
  }
}

const latin1 = (bytes: Buffer) => bytes.toString('latin1');

/** The contents of Redis, in the form of {@link Model.contents}. */
async function contents(name: string) {
  const set = async (which: string) => {
    const list = (await admin.zrangeBuffer(key(name, which), '0', '-1', 'WITHSCORES')).map(latin1);
    return Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], Number(list[2 * i + 1])]);
  };
  const hash = async (which: string): Promise<Record<string, string>> => {
    const list = ((await admin.callBuffer('HGETALL', key(name, which))) as Buffer[]).map(latin1);
    return Object.fromEntries(
      Array.from({ length: list.length / 2 }, (_, i) => [list[2 * i], list[2 * i + 1] as string]),
    );
  };
  const [pending, active, dead, payload, meta, lease, stats] = await Promise.all([
    set('pending'),
    set('active'),
    set('dead'),
    hash('payload'),
    hash('meta'),
    hash('lease'),
    hash('stats'),
  ]);
  // Samples depend on the clock; trend.test.ts covers them.
  const counters = Object.entries(stats).filter(([name]) => !/^(drained|sampled|configured|at:\d+)$/.test(name));
  return {
    pending,
    active,
    dead,
    payload,
    meta: Object.fromEntries(Object.entries(meta).map(([job, text]) => [job, JSON.parse(text)])),
    lease: Object.entries(lease)
      .map(([field, value]) => {
        const [receipt, due] = value.split(' ');
        return due === undefined ? field : `${field} ${receipt} ${Number(due)}`;
      })
      .sort(),
    stats: Object.fromEntries(counters.map(([counter, value]) => [counter, Number(value)])),
  };
}
