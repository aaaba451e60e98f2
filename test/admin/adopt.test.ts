import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type AdoptedSlice, Connection, Queue, Transfer } from '../../src/index.js';
import type { DelayqError } from '../../src/model/errors.js';
import { Cluster } from '../support/cluster.js';
import { freshName, key } from '../support/redis.js';

let cluster: Cluster;
let redis: Connection;

beforeAll(async () => {
  cluster = await Cluster.start();
  redis = new Connection(cluster.url);
});
afterAll(async () => {
  redis.close();
  await cluster.stop();
});

/** A connection of a process that is killed before its call of this number. */
class Killed extends Connection {
  calls = 0;
  readonly #at: number;

  constructor(url: string, at: number) {
    super(url);
    this.#at = at;
  }

  override call(...args: Parameters<Connection['call']>) {
    this.calls += 1;
    return this.calls > this.#at ? Promise.reject(new Error('killed')) : super.call(...args);
  }
}

/** A connection before whose call of this number something happens elsewhere. */
class Interrupted extends Connection {
  calls = 0;
  readonly #at: number;
  readonly #act: () => Promise<unknown>;

  constructor(url: string, at: number, act: () => Promise<unknown>) {
    super(url);
    this.#at = at;
    this.#act = act;
  }

  override async call(...args: Parameters<Connection['call']>) {
    this.calls += 1;
    if (this.calls === this.#at) await this.#act();
    return super.call(...args);
  }
}

/** Where values are: in a hash, or each in a string key, whose name is that of the hash and the id. */
type Kind = 'hash' | 'strings';

/** Keys of other software, each on another node than the queue; string keys are everywhere. */
async function apart(kind: Kind = 'hash') {
  for (;;) {
    const name = freshName();
    const [zset, hash] = [`later:${name}`, `data:${name}`];
    const owners = new Set(await Promise.all([zset, hash, key(name, 'pending')].map((one) => cluster.ownerOf(one))));
    if (owners.size === 3) return { name, zset, hash, kind, queue: new Queue(redis, name) };
  }
}

type Apart = Awaited<ReturnType<typeof apart>>;

async function put({ zset, hash, kind }: Apart, id: string, time: number, value: string): Promise<void> {
  await (kind === 'hash' ? cluster.admin.hset(hash, id, value) : cluster.admin.set(`${hash}:${id}`, value));
  await cluster.admin.zadd(zset, String(time), id);
}

async function adopt(
  { name, zset, hash, kind }: Apart,
  over: Connection,
  ifExists?: 'replace',
): Promise<AdoptedSlice[]> {
  const values = kind === 'hash' ? { hash } : { stringKeys: `${hash}:{id}` };
  const options = { zset, ...values, unit: 'ms', ifExists } as const;
  const slices: AdoptedSlice[] = [];
  for await (const slice of new Transfer(over).adopt(name, options)) slices.push(slice);
  return slices;
}

/** Jobs that are due here, and that are still there: `id value`. */
async function drained({ queue }: Apart): Promise<string[]> {
  const { jobs } = await queue.drain();
  await queue.ack(jobs);
  return jobs.map(({ id, payload }) => `${id} ${payload}`);
}

async function there({ zset, hash, kind }: Apart): Promise<string[]> {
  const ids = await cluster.admin.zrange(zset, '0', '-1');
  const heldBy = (id: string) => (kind === 'hash' ? cluster.admin.hget(hash, id) : cluster.admin.get(`${hash}:${id}`));
  return Promise.all(ids.map(async (id) => `${id} ${await heldBy(id)}`));
}

/**
 * Adopts two jobs again and again, each time killed one call later, until a run was not killed; `then` looks at what each
 * has left. Returns how many were killed.
 */
async function killedBeforeEach(kind: Kind, then: (all: Apart, told: string) => Promise<unknown>): Promise<number> {
  for (let at = 0; ; at++) {
    const all = await apart(kind);
    for (const id of ['a', 'b']) await put(all, id, 1_700_000_000_000, '"old"');
    const dying = new Killed(cluster.url, at);
    const over = await adopt(all, dying).then(
      () => true,
      (error: Error) => {
        expect(error.message).toContain('killed');
        return false;
      },
    );
    dying.close();
    await then(all, `killed before call ${at + 1}`);
    if (over) return at;
  }
}

/**
 * Adopts a job again and again, each time with `act` before a later call, until all was `over` before that; then repeats
 * it. `then` looks at the jobs that have come from both.
 */
async function interruptedBeforeEach(
  act: (all: Apart) => Promise<unknown>,
  then: (all: Apart, seen: string[], told: string, over: boolean) => unknown,
): Promise<void> {
  for (let at = 1, over = false; !over; at++) {
    const all = await apart();
    await put(all, 'a', 1_700_000_000_000, '"old"');
    const interrupted = new Interrupted(cluster.url, at, () => act(all));
    await adopt(all, interrupted);
    over = interrupted.calls < at;
    interrupted.close();
    const first = await drained(all);
    await adopt(all, redis);
    await then(all, [...first, ...(await drained(all))], `before call ${at}`, over);
  }
}

describe('adopt, with the queue and both keys on different nodes of a cluster,', () => {
  it('takes over each job whole, and says what it leaves', async () => {
    const all = await apart();
    await put(all, 'a', 1_700_000_000_000, '{"a":1}');
    await put(all, 'b', 4_000_000_000_000, ' 2 ');
    await put(all, 'other', 4_000_000_000_000, '3');
    await put(all, 'same', 4_000_000_000_000, '4');
    await all.queue.enqueue({ id: 'other', payload: 5, at: 4_000_000_000_000 });
    await all.queue.enqueue({ id: 'same', payload: 4, at: 4_000_000_000_000 });
    await cluster.admin.zadd(all.zset, '1700000000000', 'half');
    const [slice] = await adopt(all, redis);
    expect(slice).toMatchObject({ adopted: 2, kept: 1, left: [{ id: 'half' }, { id: 'other', reason: 'exists' }] });
    expect(await there(all)).toEqual(['half null', 'other 3']);
    const due = await cluster.admin.zrange(key(all.name, 'pending'), '0', '-1', 'WITHSCORES');
    expect(due.slice(0, 4)).toEqual(['a', '1700000000000', 'b', '4000000000000']);
    expect(await all.queue.counts()).toMatchObject({ pending: 4, stats: { adopted: 2 } });
    expect(await cluster.admin.hgetall(all.hash)).toEqual({ other: '3' });
    expect(await adopt(all, redis, 'replace')).toMatchObject([{ adopted: 0, replaced: 1, left: [{ id: 'half' }] }]);
    expect(await there(all)).toEqual(['half null']);
    expect(await all.queue.counts()).toMatchObject({ pending: 4, payload: 4 });
  });

  it.each(['hash', 'strings'] as const)('is finished by a repeat, whenever it is killed (%s)', async (kind) => {
    const then = async (all: Apart, told: string) => {
      await adopt(all, redis);
      expect((await drained(all)).sort(), told).toEqual(['a "old"', 'b "old"']);
      expect(await there(all)).toEqual([]);
    };
    expect(await killedBeforeEach(kind, then)).toBeGreaterThan(5);
  });

  it('loses nothing if what has arrived is done before the repeat: that may come twice', async () => {
    await killedBeforeEach('hash', async (all, told) => {
      const before = await drained(all);
      await adopt(all, redis);
      const seen = new Set([...before, ...(await drained(all))]);
      expect([...seen].sort(), told).toEqual(['a "old"', 'b "old"']);
      expect(await there(all)).toEqual([]);
    });
  });

  it.each(['hash', 'strings'] as const)(
    'shares no job with a consumer that takes it before any of its calls, or deletes only its value (%s)',
    async (kind) => {
      for (let at = 1, over = false; !over; at++) {
        const all = await apart(kind);
        await put(all, 'a', 1_700_000_000_000, '"old"');
        let taken = 0;
        const interrupted = new Interrupted(cluster.url, at, async () => {
          taken = await cluster.admin.zrem(all.zset, 'a');
          await (kind === 'hash' ? cluster.admin.hdel(all.hash, 'a') : cluster.admin.del(`${all.hash}:a`));
        });
        const slices = await adopt(all, interrupted).catch((error: DelayqError) => {
          expect(error.code).toBe('missing');
          return [];
        });
        over = interrupted.calls < at;
        interrupted.close();
        expect(await drained(all), `before call ${at}`).toEqual(taken === 1 ? [] : ['a "old"']);
        expect(slices.flatMap(({ left }) => left)).toEqual([]);
      }
    },
  );

  it('takes over a job that its producer enqueues anew before any of its calls', async () => {
    const act = (all: Apart) => put(all, 'a', 1_700_000_000_001, '"new"');
    await interruptedBeforeEach(act, async (all, seen, told, over) => {
      const wanted = over ? ['a "old"'] : ['a "new"'];
      // What was copied by then is another job.
      expect([wanted, ['a "old"', ...wanted]], told).toContainEqual(seen);
      expect(await there(all)).toEqual([]);
    });
  });

  it('leaves a job there if the queue gets another one of its id before any of its calls', async () => {
    const act = (all: Apart) => all.queue.enqueue({ id: 'a', payload: 'other' });
    await interruptedBeforeEach(act, (_, seen, told) => {
      expect(
        seen.filter((one) => one === 'a "old"'),
        `${told}: ${seen}`,
      ).toHaveLength(1);
    });
  });

  it('loses nothing if two run at once', async () => {
    const all = await apart();
    const wanted = Array.from({ length: 300 }, (_, n) => `j${n} ${n}`);
    for (const job of wanted)
      await put(all, job.split(' ')[0] as string, 1_700_000_000_000, job.split(' ')[1] as string);
    const seen: string[] = [];
    let busy = true;
    const consumer = (async () => {
      for (let last = false; ; last = !busy) {
        const some = await drained(all);
        seen.push(...some);
        if (last && some.length === 0) return;
      }
    })();
    await Promise.all([adopt(all, redis), adopt(all, redis), adopt(all, redis)]);
    await adopt(all, redis);
    busy = false;
    await consumer;
    expect([...new Set(seen)].sort()).toEqual([...wanted].sort());
    expect(await cluster.admin.hgetall(all.hash)).toEqual({});
  });
});
