import { describe, expect, it } from 'vitest';
import { check, Inspector, metricsText, Operator, problems, Queue } from '../../src/internal.js';
import type { Id } from '../../src/model/id.js';
import { lettersOf } from '../../src/store/answers.js';
import { PartitionMap } from '../../src/store/map.js';
import { run } from '../../src/store/script.js';
import { Store } from '../../src/store/store.js';
import { tagFor } from '../../src/store/tags.js';
import { hold, type Parcel, restore } from '../../src/store/transfer.js';
import { beginSh, delayq, linesOf } from '../support/cli.js';
import { upTo } from '../support/jobs.js';
import { openGrowth } from '../support/partitions.js';
import { admin, connection, freshName, key } from '../support/redis.js';
import { until } from '../support/until.js';

const inspector = new Inspector(connection);
const ids = upTo(60).map((n) => `o:${n}`);

/** A queue whose growth began, took some jobs, and died. Returns the ids of these. */
async function diedGrowing({ agoMs }: { agoMs: number }) {
  const name = freshName();
  const queue = new Queue(connection, name);
  await queue.enqueue(ids.map((id) => ({ id, payload: id })));
  await openGrowth(admin, name, 4);
  const store = Store.of(connection, 'delayq', name);
  await store.look();
  const lease = key(name, 'lease');
  const movers = ids.filter((id) => store.map.ownerOf(id as Id) > 0).slice(0, 20);
  for (const id of movers) {
    const how = {
      states: ['pending', 'dead'],
      receipt: 'dead',
      by: `move:${name}/${store.map.ownerOf(id as Id)}`,
    } as const;
    await hold(connection, store.keys(0), [id as Id], how);
    const words = ((await admin.hget(lease, id)) as string).split(' ');
    words[2] = String(Number(words[2]) - agoMs);
    await admin.hset(lease, id, words.join(' '));
  }
  expect(movers.length).toBeGreaterThan(5);
  return { name, queue, movers };
}

async function takeAll(queue: Queue): Promise<string[]> {
  const taken: string[] = [];
  for (let more = true; more; ) {
    const { jobs } = await queue.drain({ limit: 1_000 });
    taken.push(...jobs.map(({ id }) => id));
    more = jobs.length > 0;
  }
  return taken.sort();
}

describe('a growth whose process has died', () => {
  it.each([
    ['cancel', 'cancelled'],
    ['bury', 'buried'],
  ])('%s --all leaves nothing out', async (command, what) => {
    const { name } = await diedGrowing({ agoMs: 20_000 });
    const { code, stderr } = await delayq([command, '--all', '--yes', name]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining(`60 jobs ${what}`) });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 0, active: 0 });
  });

  it('purge counts what was on its way once, and knows that no handler has it', async () => {
    const { name } = await diedGrowing({ agoMs: 20_000 });
    const { code, stderr } = await delayq(['purge', '--yes', name]);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringMatching(/^delayq: 60 jobs \(60 pending\) removed from \S+\n$/),
    });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 0, active: 0, payload: 0 });
  });

  it.each(['pending', 'active', 'dead'] as const)('purge of what is %s leaves what it holds', async (state) => {
    const { name, queue, movers } = await diedGrowing({ agoMs: 0 });
    const store = Store.of(connection, 'delayq', name);
    const removed = state === 'pending' ? ids.length - movers.length : 0;
    expect(await run(connection, 'edit/purge', store.keys(0), [lettersOf([state]), 100])).toEqual([removed, 0, 0, 0]);
    for await (const _ of new Operator(connection).partition(name, 4));
    expect(await takeAll(queue)).toEqual([...(removed > 0 ? movers : ids)].sort());
  });

  it('purge leaves what is on its way to where it will be, and with it the note that it was brought', async () => {
    const { name, movers } = await diedGrowing({ agoMs: 0 });
    const store = Store.of(connection, 'delayq', name);
    const states = ['pending', 'active', 'dead'] as const;
    const [id] = movers as [string];
    const owner = store.map.ownerOf(id as Id);
    const [receipt, due] = ((await admin.hget(key(name, 'lease'), id)) as string).split(' ') as [string, string];
    // The grower dies once its copy is there.
    const copy = {
      id: Buffer.from(id),
      state: 'pending',
      score: due,
      record: undefined,
      payload: Buffer.from(`"${id}"`),
    };
    await restore(connection, store.keys(owner), [{ ...(copy as Parcel), token: receipt }], 'transferred');
    for (const i of upTo(4)) await run(connection, 'edit/purge', store.keys(i), [lettersOf(states), 100]);
    expect(await inspector.inspect(name)).toMatchObject({ pending: 0, active: movers.length, payload: movers.length });
    await admin.hset(key(name, 'lease'), id, `${receipt} ${due} 1 move:${name}/${owner} p ${receipt}`);
    const { code, stderr } = await delayq(['drain', name]);
    // Those that the grower may still move stay with it; this one was removed.
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 0, active: movers.length - 1 });
  });

  it('an act on a filter finds what was moved between its question and the answer', async () => {
    const { name, movers } = await diedGrowing({ agoMs: 0 });
    const line = `script -qec 'delayq cancel --pending ${name}' /dev/null; echo "ended with $?"`;
    const running = beginSh(line, { input: undefined });
    await until(() => running.stdout.includes(`cancel ${60 - movers.length} jobs of ${name}?`));
    for await (const _ of new Operator(connection).partition(name, 4));
    running.child.stdin?.end('y\n');
    expect((await running.ended).stdout).toContain(`60 jobs cancelled in ${name}`);
    expect(await inspector.inspect(name)).toMatchObject({ pending: 0, active: 0 });
  });

  it('wait ends what it holds, also if nobody drains the queue, and says what goes on', async () => {
    const { name } = await diedGrowing({ agoMs: 20_000 });
    const { stdout } = await delayq(['inspect', name]);
    expect(stdout).toMatch(/moving to partition [123]: \d+ jobs? since/);
    const after = await delayq(['wait', '--timeout', '0s', name]);
    expect(after).toMatchObject({
      code: 1,
      stderr: expect.stringContaining('its growth from 1 to 4 partitions has stopped'),
    });
    expect(after.stderr).toContain(`repeat delayq config ${name} partitions=4`);
    await delayq(['pause', name]);
    expect(await delayq(['wait', '--timeout', '30s', name])).toMatchObject({ code: 0 });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 60, active: 0 });
  });

  it('before it was public is named, and goes on first', async () => {
    const name = freshName();
    await new Queue(connection, name).enqueue(ids.map((id) => ({ id, payload: id })));
    const tags = [1, 2, 3].map((i) => tagFor(name, i));
    for (const [i, tag] of tags.entries())
      await admin.hset(key(tag, 'config'), { layout: `1 ${i + 1}/4 from 1`, partitions: tags.join(' ') });
    for (const how of [[], ['--fix', '--yes']]) {
      const { stdout } = await delayq(['doctor', ...how, name]);
      expect(stdout).toContain('a growth from 1 to 4 partitions has begun, but is not in effect yet');
      expect(stdout).toContain(`delayq config ${name} partitions=4`);
      expect(stdout).not.toContain('lost its layout');
    }
    const { code, stderr } = await delayq(['config', name, 'partitions=2']);
    expect({ code, stderr }).toEqual({
      code: 0,
      stderr: expect.stringContaining(`${name}: a growth to 4 partitions was begun before: it goes on first`),
    });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 60 });
  });

  it('reschedule --all reaches each job', async () => {
    const { name } = await diedGrowing({ agoMs: 20_000 });
    expect(await delayq(['reschedule', '--all', '--yes', '--in', '1h', name])).toMatchObject({ code: 0 });
    expect(await inspector.inspect(name)).toMatchObject({ pending: 60, due: 0, active: 0 });
  });

  it.each([['list', '--ids'], ['list', '--json'], ['export']])(
    '%s %s says what it may have left out',
    async (...words) => {
      const { name } = await diedGrowing({ agoMs: 0 });
      const { code, stdout, stderr } = await delayq([...words, name]);
      expect({ code, stderr }).toMatchObject({ code: 1, stderr: expect.stringMatching(/were growing: .* repeat/) });
      expect(linesOf(stdout).length).toBeLessThanOrEqual(60);
    },
  );

  it('withholds nothing: whoever takes jobs carries on with those that it held', async () => {
    const { queue } = await diedGrowing({ agoMs: 20_000 });
    expect(await takeAll(queue)).toEqual([...ids].sort());
  });

  it('withholds nothing from a drain that ends when all is done', async () => {
    const { name } = await diedGrowing({ agoMs: 20_000 });
    expect(linesOf((await delayq(['drain', name])).stdout)).toHaveLength(60);
  });

  it('keeps what it holds for as long as it may still live', async () => {
    const { queue, movers } = await diedGrowing({ agoMs: 5_000 });
    expect(await takeAll(queue)).toEqual(ids.filter((id) => !movers.includes(id)).sort());
  });

  it.each([
    ['for a while', 60_000, 'its growth from 1 to 4 partitions has stopped 1m ago'],
    ['and has noted nothing', undefined, 'its growth from 1 to 4 partitions has stopped'],
  ])('is told %s', async (_, agoMs, what) => {
    const { name } = await diedGrowing({ agoMs: 0 });
    if (agoMs) await admin.hset(key(name, 'config'), 'growing', (await connection.now()) - agoMs);
    const snapshot = await inspector.inspect(name);
    expect(check(snapshot, { warn: {}, max: {} })).toMatchObject({
      state: 'WARNING',
      says: `${what}: repeat config partitions=4`,
    });
    const line = `delayq config ${name} partitions=4`;
    expect(problems(name, snapshot)).toContainEqual(
      expect.objectContaining({ check: 'growth', level: 'fail', what: `${what}: repeat ${line}`, next: line }),
    );
    expect(metricsText([{ queue: name, snapshot }])).toContain(`delayq_growth_stopped{queue="${name}"} 1\n`);
  });
});

it('what it has moved counts until it is done, also when a partition confirms its layout', async () => {
  const { name } = await diedGrowing({ agoMs: 0 });
  const store = Store.of(connection, 'delayq', name);
  await admin.hset(key(name, 'config'), { carried: 5, growing: 1, returned: 1 });
  const { map } = store;
  await store.advance(0, map.layoutOf(0) as string, map, { must: true });
  const fields = () => admin.hmget(key(name, 'config'), 'carried', 'growing', 'returned');
  expect(await fields()).toEqual(['5', '1', null]);
  await store.advance(0, map.layoutOf(0) as string, new PartitionMap(map.count, undefined, map.tags));
  expect(await fields()).toEqual([null, null, null]);
});

it('a growth that goes on says so in the queue, and nobody warns of it', async () => {
  const name = freshName();
  const queue = new Queue(connection, name);
  await queue.enqueue(ids.map((id) => ({ id, payload: id })));
  const { jobs } = await queue.drain({ limit: 60 });
  for await (const { active } of new Operator(connection).partition(name, 4)) {
    if (active === 0) continue;
    const snapshot = await inspector.inspect(name);
    expect(Number(snapshot.config.growing)).toBeGreaterThan(0);
    expect(check(snapshot, { warn: {}, max: {} }).state).toBe('OK');
    expect(metricsText([{ queue: name, snapshot }])).toContain(`delayq_growth_stopped{queue="${name}"} 0\n`);
    await queue.ack(jobs);
  }
  expect((await inspector.inspect(name)).config).not.toHaveProperty('growing');
});
