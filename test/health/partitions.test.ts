import { describe, expect, it } from 'vitest';
import { Auditor, Operator, Queue } from '../../src/internal.js';
import { Connection } from '../../src/redis/connection.js';
import { Store } from '../../src/store/store.js';
import { afterwards } from '../support/afterwards.js';
import { upTo } from '../support/jobs.js';
import { admin, connection, freshName, key, redisUrl } from '../support/redis.js';

const auditor = new Auditor(connection);
const operator = new Operator(connection);

/** A queue of four partitions with 40 jobs that are due in an hour. */
async function parted(count = 4) {
  const name = freshName();
  for await (const _ of operator.partition(name, count));
  await operator.configure(name, { tries: 3 });
  const queue = new Queue(connection, name);
  await queue.enqueue(upTo(40).map((i) => ({ id: `o:${i}`, payload: i, in: '1h' })));
  const { map } = Store.of(connection, 'delayq', name);
  const at = (i: number, set: string) => key(map.tags[i] || name, set);
  /** An id that belongs to partition `i`. */
  const idOf = (i: number) =>
    upTo(1_000)
      .map((n) => `s:${n}`)
      .find((id) => map.ownerOf(id) === i) as string;
  return { name, queue, map, at, idOf };
}

/** What is not in order, and what was mended. */
async function found(name: string, mend = false) {
  const findings = await auditor.examine(name, { mend, graceMs: 0 });
  return findings.filter(({ level, mended, check }) => (level !== 'ok' || mended) && check !== 'no-drain');
}

describe('the audit of a queue with partitions', () => {
  it('finds nothing in one that is in order', async () => {
    const { name } = await parted();
    expect(await found(name)).toEqual([]);
    const whats = (await auditor.examine(name)).map(({ what }) => what);
    expect(whats).toContain('40 jobs, each in one state and, unless it is dead, with its payload');
    expect(whats).toContain('4 partitions, with the same layout and settings');
  });

  it('looks at each partition, names it, and mends there', async () => {
    const { name, at, idOf } = await parted();
    for (const i of [2, 3]) await admin.hset(at(i, 'payload'), idOf(i), '1');
    await admin.expire(at(1, 'pending'), 1_000);
    expect((await found(name)).map(({ what }) => what)).toEqual([
      'partition 2: 1 job in no state: only their payload exists',
      'partition 3: 1 job in no state: only their payload exists',
      `partition 1: ${at(1, 'pending')} will be deleted by Redis: EXPIRE was set`,
    ]);
    expect((await found(name, true)).filter(({ level }) => level !== 'ok')).toMatchObject([{ check: 'dead' }]);
    expect(await admin.zcard(at(2, 'dead'))).toBe(1);
    expect(await admin.zcard(at(3, 'dead'))).toBe(1);
    expect(await admin.ttl(at(1, 'pending'))).toBe(-1);
  });

  it('finds and mends a partition 0 that has lost its layout, also for a caller who knows of no partitions', async () => {
    const { name, at, queue } = await parted();
    await admin.del(at(0, 'config'));
    const redis = new Connection(redisUrl);
    afterwards(() => redis.close());
    const stranger = new Auditor(redis);
    const lost = (await stranger.examine(name, { graceMs: 0 })).find(({ check }) => check === 'partition-layout');
    expect(lost?.what).toContain('4 partitions');
    const mended = (await stranger.examine(name, { mend: true, graceMs: 0 })).find(
      ({ check }) => check === 'partition-layout',
    );
    expect(mended).toMatchObject({ level: 'ok', mended: 1 });
    expect(await admin.hget(at(0, 'config'), 'layout')).toBe('1 0/4');
    expect(await queue.counts()).toMatchObject({ pending: 40 });
  });

  it('fails while a growth is open, and says how to finish it', async () => {
    const { name, queue } = await parted(2);
    await queue.enqueue(upTo(30).map((i) => ({ id: `due:${i}`, payload: 1 })));
    for (let n = 0; n < 4; n++) await queue.drain({ limit: 30 });
    for await (const { active } of operator.partition(name, 5)) if (active > 0) break;
    const [first, ...others] = await found(name);
    expect(first).toMatchObject({
      level: 'fail',
      check: 'growth',
      what: 'a growth from 2 to 5 partitions is not done',
      next: `delayq config ${name} partitions=5`,
    });
    expect(others).toEqual([]);
  });

  it('keeps the marks of transfers, however old they are, until the growth is done', async () => {
    const { name, queue, at } = await parted(1);
    await queue.enqueue(upTo(30).map((i) => ({ id: `due:${i}`, payload: 1 })));
    const { jobs } = await queue.drain({ limit: 30 });
    for await (const { active } of operator.partition(name, 2)) if (active > 0) break;
    const { map } = Store.of(connection, 'delayq', name);
    const lease = key(map.tags[1] as string, 'lease');
    await admin.hset(lease, 'token due:1', '1795266000000', 'other due:2', '1');
    await found(name, true);
    expect(await admin.hlen(lease)).toBe(2);
    await queue.ack(jobs);
    for await (const _ of operator.partition(name, 2));
    await found(name, true);
    expect(await admin.hexists(lease, 'other due:2')).toBe(0);
    expect(await admin.hlen(at(0, 'lease'))).toBe(0);
  });

  it('finds a partition with another layout, other tags, or none, and mends it', async () => {
    const { name, map, at } = await parted();
    await admin.hset(at(1, 'config'), 'layout', '1 1/4 from 2');
    await admin.hset(at(2, 'config'), 'partitions', 'x y z');
    await admin.del(at(3, 'config'));
    expect((await found(name)).filter(({ check }) => check === 'partition-layout')).toHaveLength(3);
    await found(name, true);
    expect(await found(name)).toEqual([]);
    for (const i of [1, 2, 3]) {
      const config = await admin.hgetall(at(i, 'config'));
      expect(config).toEqual({ layout: `${map.layoutOf(i)} uses settings`, partitions: map.packed, tries: '3' });
    }
  });

  it('finds partitions with other settings or another pause, and gives them those of partition 0', async () => {
    const { name, at } = await parted();
    await admin.hset(at(0, 'config'), 'lease', '90000');
    await admin.hset(at(2, 'config'), 'paused', 'inf');
    const [finding] = await found(name);
    expect(finding).toMatchObject({
      level: 'fail',
      check: 'partition-settings',
      what: 'partitions 1, 2, 3 have other settings than partition 0, or another pause',
      next: `delayq doctor --fix ${name}`,
    });
    await found(name, true);
    expect(await found(name)).toEqual([]);
    for (const i of [0, 1, 2, 3]) {
      const { lease, paused, tries } = await admin.hgetall(at(i, 'config'));
      expect([lease, paused, tries]).toEqual(['90000', undefined, '3']);
    }
  });

  it('finds ids that belong elsewhere: normal in partition 0, a fault in others; mends by a transfer', async () => {
    const { name, at, idOf } = await parted();
    const stray = async (i: number, id: string) => {
      await admin.hset(at(i, 'payload'), id, '1');
      await admin.zadd(at(i, 'pending'), Date.now() + 3_600_000, id);
    };
    await stray(0, idOf(1));
    expect(await found(name)).toEqual([]);
    expect(await auditor.examine(name)).toContainEqual(
      expect.objectContaining({ level: 'ok', check: 'stray', count: 1, samples: [idOf(1)], mendable: true }),
    );
    await stray(3, idOf(2));
    expect(await found(name)).toMatchObject([
      { level: 'fail', check: 'stray', count: 1, samples: [idOf(2)], next: `delayq doctor --fix ${name}` },
    ]);
    expect(await found(name, true)).toMatchObject([
      { level: 'ok', what: 'partition 0: 1 job that belongs to other partitions: moved there', mended: 1 },
      { level: 'ok', what: 'partition 3: 1 job that belongs to other partitions: moved there', mended: 1 },
    ]);
    expect(await found(name)).toEqual([]);
    for (const i of [1, 2]) expect(await admin.zscore(at(i, 'pending'), idOf(i))).not.toBe(null);
  });

  it('leaves a stray where it is if another job has its id where it belongs', async () => {
    const { name, at, map } = await parted();
    const id = upTo(40)
      .map((i) => `o:${i}`)
      .find((one) => map.ownerOf(one) === 1) as string;
    await admin.hset(at(2, 'payload'), id, '"another"');
    await admin.zadd(at(2, 'pending'), Date.now() + 3_600_000, id);
    for (const mend of [true, false])
      expect(await found(name, mend)).toMatchObject([{ level: 'fail', check: 'stray' }]);
    expect(await admin.hget(at(2, 'payload'), id)).toBe('"another"');
    expect(await admin.hget(at(1, 'payload'), id)).not.toBe('"another"');
  });

  it('does not advise to mend once more what waits for its handler', async () => {
    const { name, at, idOf } = await parted();
    const id = idOf(2);
    const end = Date.now() + 3_600_000;
    await admin.hset(at(3, 'payload'), id, '1');
    await admin.zadd(at(3, 'active'), end, id);
    await admin.hset(at(3, 'lease'), id, `R ${end} ${Date.now()} host:1`);
    expect(await found(name)).toMatchObject([{ check: 'stray', next: `delayq doctor --fix ${name}` }]);
    const next = `when no handler has it any more: delayq doctor --fix ${name}`;
    expect(await found(name, true)).toMatchObject([{ check: 'stray', level: 'fail', next }]);
  });

  it('tells of what an unfinished transfer holds, and mends it', async () => {
    const { name, at, map, idOf } = await parted();
    const held = idOf(3);
    const since = Date.now() - 120_000;
    // As a repair that was killed between its first two steps.
    await admin.hset(at(2, 'payload'), held, '1');
    await admin.zadd(at(2, 'active'), 'inf', held);
    const owner = map.ownerOf(held);
    await admin.hset(at(2, 'lease'), held, `receipt 1795266000000 ${since} move:${name}/${owner} p token`);
    const holds = (await found(name)).filter(({ check }) => check === 'unfinished-move');
    expect(holds).toMatchObject([{ next: `delayq doctor --fix ${name}`, samples: [held] }]);
    await found(name, true);
    expect(await admin.zcard(at(2, 'active'))).toBe(0);
    expect(await admin.hget(at(owner, 'payload'), held)).toBe('1');
  });

  it('finds a queue with partitions once, under its name', async () => {
    const { name } = await parted();
    const { queues, odd } = await auditor.queues();
    expect(queues.filter((one) => one.includes(name))).toEqual([name]);
    expect(odd.filter((one) => one.includes(name))).toEqual([]);
  });
});
