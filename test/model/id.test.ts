import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  Auditor,
  type Id,
  Inspector,
  idOf,
  idWord,
  Operator,
  type Parcel,
  Queue,
  Spread,
  Transfer,
} from '../../src/internal.js';
import { codePoint, runs, slowRuns } from '../support/property.js';
import { admin, connection, freshName, key, timePasses } from '../support/redis.js';

const inspector = new Inspector(connection);
const operator = new Operator(connection);
const transfer = new Transfer(connection);
const auditor = new Auditor(connection);

/** Any bytes, often almost UTF-8: incomplete, overlong, surrogates, above U+10FFFF. */
const piece = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 4 }).map((list) => Buffer.from(list)),
  fc.string({ unit: codePoint, minLength: 1, maxLength: 3 }).map((text) => Buffer.from(text)),
  fc
    .constantFrom(
      'c080',
      'c3',
      'e282',
      'e08080',
      'eda080',
      'eda0bdedb880',
      'f0808080',
      'f48fbfbf',
      'f4908080',
      'f5',
      '00',
    )
    .map((hex) => Buffer.from(hex, 'hex')),
);
const bytes = fc.array(piece, { minLength: 1, maxLength: 4 }).map((pieces) => Buffer.concat(pieces));
const someIds = fc.uniqueArray(bytes, { minLength: 1, maxLength: 8, selector: (id) => id.toString('latin1') });

const canBeGiven = (id: Buffer) => isUtf8(id) && !id.includes(0);
const words = (ids: readonly Buffer[]) => ids.map((id) => idWord(idOf(id))).sort();

/** Writes due jobs as other software does. */
async function put(name: string, ids: readonly Buffer[], due = 1): Promise<void> {
  for (const id of ids)
    await admin.multi().hset(key(name, 'payload'), id, '1').zadd(key(name, 'pending'), due, id).exec();
}

const inSet = (name: string, set: string) => admin.zrangeBuffer(key(name, set), '0', '-1');
const standIn = async (name: string, set: string) => words(await inSet(name, set));

/** A copy of the module: ids from the future would hold on for the other files that this worker runs. */
const COPY = '../../src/model/id.js?copy';
const { newId }: typeof import('../../src/model/id.js') = await import(COPY);

describe('an id made by delayq', () => {
  it('is 13 characters of base62', () => expect(newId()).toMatch(/^[0-9A-Za-z]{13}$/));

  it('sorts by its creation time', () => {
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 1_000_000 }), (ms) => {
        const now = Date.now() + 3_600_000;
        expect(newId(now) < newId(now + ms)).toBe(true);
      }),
      runs(),
    );
  });

  it('is unique, and sorts in creation order within a millisecond and when the clock goes back', () => {
    const now = Date.now();
    const ids = Array.from({ length: 20_000 }, (_, i) => newId(now - Math.floor(i / 1_000)));
    expect(new Set(ids).size).toBe(20_000);
    expect([...ids].sort()).toEqual(ids);
  });
});

describe('ids of any bytes', () => {
  it('are delivered byte for byte if they are UTF-8 without NUL; the first drain moves others to dead (failures 40)', async () => {
    await fc.assert(
      fc.asyncProperty(someIds, fc.constantFrom(0, 60_000), async (ids, leaseMs) => {
        const queue = new Queue(connection, freshName());
        const good = ids.filter(canBeGiven);
        const bad = ids.filter((id) => !canBeGiven(id));
        await put(queue.name, ids);
        const { jobs, died, state } = await queue.drain({ leaseMs });
        expect(words(jobs.map(({ id }) => Buffer.from(id)))).toEqual(words(good));
        expect(words(died.map(({ id }) => Buffer.from(id as string)))).toEqual(words(bad));
        expect({ reasons: new Set(died.map(({ reason }) => reason)), state }).toEqual({
          reasons: new Set(bad.map(() => 'bad id')),
          state: 'idle',
        });
        if (leaseMs > 0) expect(await queue.ack(jobs)).toEqual(good.map(() => 'held'));
        expect(await standIn(queue.name, 'dead')).toEqual(words(bad));
        const { stats, payload, meta, lease } = await queue.counts();
        expect(stats.dead ?? 0).toBe(bad.length);
        expect(stats.delivered ?? 0).toBe(good.length);
        expect({ payload, meta, lease }).toEqual({ payload: bad.length, meta: bad.length, lease: 0 });
      }),
      slowRuns(300),
    );
  });

  it('work with every command in the form in which they are listed (failures 40)', async () => {
    await fc.assert(
      fc.asyncProperty(someIds, async (ids) => {
        const [name, other] = [freshName(), freshName()];
        const all = words(ids);
        const listed = async (which: string, state: 'pending' | 'active' | 'dead') => {
          const found: Id[] = [];
          for await (const some of inspector.ids(which, { states: [state] })) found.push(...some);
          const jobs = [];
          for await (const job of inspector.list(which, { states: [state] })) jobs.push(job);
          expect(jobs.map(({ id }) => id)).toEqual(found.map(idWord));
          // Ids that do not fit on a line are given as bytes.
          for (const [i, job] of jobs.entries())
            expect(job.idBase64).toBe(
              idWord(found[i] as Id) === found[i] ? undefined : Buffer.from(found[i] as string).toString('base64'),
            );
          expect(await inspector.show(which, found)).toEqual(jobs);
          return found;
        };
        await put(name, ids, 5);
        const found = await listed(name, 'pending');
        expect(found.map(idWord).sort()).toEqual(all);
        for (const id of found) {
          const grepped: Id[] = [];
          if (typeof id === 'string')
            for await (const some of inspector.ids(name, { states: ['pending'], text: id })) grepped.push(...some);
          expect(grepped.length > 0).toBe(typeof id === 'string');
        }
        // Enough for several calls, whose order is then looked up first.
        const many = Array.from({ length: 120 }, () => found).flat();
        expect(new Set(await operator.reschedule(name, many, new Spread({ in: 3_600_000, stepMs: 1 })))).toEqual(
          new Set(['rescheduled']),
        );
        expect((await inSet(name, 'pending')).map((id) => idWord(idOf(id)))).toEqual(found.map(idWord));
        const { upcoming } = await inspector.inspect(name, ids.length);
        expect(upcoming.map(({ id }) => id)).toEqual(found.map(idWord));
        expect(await transfer.move(name, found, { to: other })).toEqual(found.map(() => 'moved'));
        expect(await standIn(other, 'pending')).toEqual(all);
        expect(await operator.bury(other, await listed(other, 'pending'), { reason: 'later' })).toEqual(
          found.map(() => 'buried'),
        );
        const parcels: Parcel[] = [];
        for await (const { jobs } of transfer.export(other)) parcels.push(...jobs);
        expect(await transfer.restore(name, parcels)).toEqual(parcels.map(() => 'created'));
        const dead = await listed(name, 'dead');
        const requeued = dead.map((id) => (typeof id === 'string' ? 'requeued' : 'bad-id'));
        expect(await operator.requeue(name, dead)).toEqual(requeued);
        expect(await operator.cancel(name, dead, ['dead'])).toEqual(
          dead.map((id) => (typeof id === 'string' ? 'missing' : 'dead')),
        );
        expect(await operator.cancel(other, await listed(other, 'dead'))).toEqual(found.map(() => 'dead'));
        expect((await inspector.inspect(other)).payload).toBe(0);
      }),
      slowRuns(60),
    );
  });

  it('are found by doctor, and mended before a drain meets them (failures 40)', async () => {
    await fc.assert(
      fc.asyncProperty(someIds, async (ids) => {
        const queue = new Queue(connection, freshName());
        const bad = ids.filter((id) => !canBeGiven(id));
        await put(queue.name, ids, Date.now() - 1_000);
        const counted = async (mend: boolean) =>
          (await auditor.examine(queue.name, { mend, graceMs: 0 })).find(({ check }) => check === 'bad-id');
        expect((await counted(false))?.count).toBe(bad.length || undefined);
        expect((await counted(true))?.mended).toBe(bad.length || undefined);
        expect(await standIn(queue.name, 'dead')).toEqual(words(bad));
        expect(await counted(false)).toBe(undefined);
        expect(await queue.drain()).toMatchObject({ died: [], jobs: { length: ids.length - bad.length } });
      }),
      slowRuns(60),
    );
  });
});

it('adopt leaves a job with an invalid id where it is, and names it by its bytes (failures 40)', async () => {
  const [name, zset, hash] = [freshName(), freshName(), freshName()];
  const id = Buffer.from([0xff]);
  await admin.zadd(zset, Date.now(), id);
  await admin.hset(hash, id, '1', Buffer.from([0xfe]), '1');
  const left = [];
  for await (const slice of transfer.adopt(name, { zset, hash, unit: 'ms' })) left.push(...slice.left);
  expect(left).toEqual([{ id: 'base64:/w==', reason: 'id' }]);
  expect(await transfer.foreignRest({ zset, hash, unit: 'ms' })).toMatchObject({ strays: ['base64:/g=='] });
  expect(await admin.zscore(zset, id)).not.toBe(null);
});

it('a job with an invalid id that an older drain has taken dies when its lease expires (failures 40)', async () => {
  const queue = new Queue(connection, freshName());
  const id = Buffer.from([0xff]);
  await admin.hset(key(queue.name, 'payload'), id, '1');
  await admin.zadd(key(queue.name, 'active'), Date.now() + 60_000, id);
  await admin.hset(key(queue.name, 'lease'), id, `receipt 5 ${Date.now()} host:1`);
  expect(await auditor.examine(queue.name, { graceMs: 0 })).not.toContainEqual(
    expect.objectContaining({ level: 'fail' }),
  );
  await timePasses(queue.name, 61_000);
  expect(await queue.drain()).toMatchObject({ jobs: [], lost: 1, died: [{ id, reason: 'bad id' }] });
  const [job] = await inspector.show(queue.name, [id]);
  expect(job).toMatchObject({ state: 'dead', reason: 'bad id', losses: 1, id: 'base64:/w==', idBase64: '/w==' });
});
