import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { during } from '../support/afterwards.js';
import { begin as beginCommand, binary, linesOf } from '../support/cli.js';
import { layoutsOf, placesOf, tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';
import { cluster, oneServer } from './deployments.js';
import { GrowthStorm, type GrowthWeather } from './growth.js';
import { jobs, minutes, seed } from './options.js';
import { Random } from './random.js';

const begin = async (weather: Omit<GrowthWeather, 'seed'>) => during(GrowthStorm.begin({ seed, ...weather }));

async function expectExplained(storm: GrowthStorm): Promise<void> {
  const { figures, violations } = await storm.end();
  console.log(figures);
  expect(violations).toEqual([]);
}

describe(`a queue that grows from 1 to 4 to 16 partitions while it is called by id (seed ${seed})`, () => {
  it('answers as one without partitions would, on one server', async () => {
    const storm = await begin({ redis: await oneServer(), waiting: 500 });
    await storm.grow();
    await storm.grow();
    await expectExplained(storm);
  });

  // Not in short runs: the storms have consumers of every form, too.
  if (minutes >= 1) {
    it('and with consumers of every form', async () => {
      const storm = await begin({ redis: await oneServer(), waiting: 500, everyForm: true });
      await storm.grow();
      await storm.grow();
      await expectExplained(storm);
    });
  }

  it('loses nothing that all replicas have, on a cluster whose masters are replaced', async () => {
    const storm = await begin({ redis: await cluster(['grown']), waiting: 500, replicas: 1 });
    const growing = storm.grow();
    await storm.strike('CLUSTER FAILOVER');
    await growing;
    await Promise.all([storm.grow(), storm.strike('kill master')]);
    await expectExplained(storm);
  });
});

it('a growth stops with 75 when the server is full, loses nothing, and goes on later', async () => {
  const server = await during(Server.start());
  const env = { DELAYQ_REDIS_URL: server.url };
  const lines = Array.from({ length: 20_000 }, (_, i) => `{"id":"${i}","in":"1h","payload":${i}}\n`).join('');
  expect(await binary(['enqueue', '-q', '--jobs', 'q', '-'], { input: lines, env })).toMatchObject({ code: 0 });
  const growing = beginCommand(['config', 'q', 'partitions=16'], { env });
  await until(async () => (await movedOf(server)) > 100);
  await server.admin.config('SET', 'maxmemory', '1');
  expect(await growing.ended).toMatchObject({ code: 75, stdout: '' });
  const moved = await movedOf(server);
  expect(moved).toBeLessThan(18_000);
  expect(await binary(['config', 'q', 'partitions=16'], { env })).toMatchObject({ code: 75 });
  expect(await movedOf(server)).toBe(moved);
  // All are there, and what needs no memory works.
  expect((await placesOf(server.admin, 'q')).size).toBe(20_000);
  expect(await binary(['show', '--json', 'q', '19999'], { env })).toMatchObject({ code: 0 });
  await server.admin.config('SET', 'maxmemory', '0');
  expect(await binary(['config', 'q', 'partitions=16'], { env })).toMatchObject({ code: 0 });
  const places = await placesOf(server.admin, 'q');
  expect(places.size).toBe(20_000);
  expect([...places].filter(([, all]) => all.length > 1 || !all[0]?.endsWith(' pending'))).toEqual([]);
  expect(await layoutsOf(server.admin, 'q')).toEqual(Array.from({ length: 16 }, (_, i) => `1 ${i}/16`));
});

/** How many jobs stand in other partitions than the first. */
async function movedOf({ admin }: Server): Promise<number> {
  const [, ...others] = await tagsOf(admin, 'q');
  const counts = await Promise.all(others.map((tag) => admin.zcard(key(tag, 'pending'))));
  return counts.reduce((sum, n) => sum + n, 0);
}

describe(`a queue whose grower is killed (seed ${seed})`, () => {
  const ids = Array.from({ length: 10_000 }, (_, i) => `job-${i}`).sort();

  /** A queue of these jobs, and what grows it and is killed soon. */
  async function filled() {
    const server = await during(Server.start());
    const env = { DELAYQ_REDIS_URL: server.url };
    const input = ids.map((id) => `{"id":"${id}","payload":1}\n`).join('');
    expect(await binary(['enqueue', '-q', '--jobs', 'q', '-'], { input, env })).toMatchObject({ code: 0 });
    const random = new Random(seed);
    const grow = async (count: number) => {
      const growing = beginCommand(['config', 'q', `partitions=${count}`], { env });
      await sleep(random.whole(200, 900));
      growing.child.kill('SIGKILL');
      await growing.ended;
    };
    return { server, env, random, grow };
  }

  it('delivers each job once, although nobody repeats its command', async () => {
    const { server, env, grow } = await filled();
    await grow(16);
    let all: string[] = [];
    await until(async () => {
      const { code, stdout } = await binary(['drain', '-q', '--envelope', 'q'], { env });
      expect(code).toBe(0);
      all = [...all, ...linesOf(stdout).map((line) => JSON.parse(line).id as string)];
      // Also what it had copied, and was about to remove.
      return (await placesOf(server.admin, 'q')).size === 0;
    }, 90_000);
    expect(all.sort()).toEqual(ids);
  });

  // Each act waits up to 15 s for what a dead grower holds.
  it.runIf(minutes >= 1)(
    'acts on all that a filter means, and lists and exports them, or says that it may not have',
    async () => {
      const { server, env, random, grow } = await filled();
      let count = 1;
      /** Runs a command while the queue grows. A grower that died holds jobs for 15 s, and the command waits for that. */
      const whileGrowing = async (...words: string[]) => {
        count += 2;
        const [, ended] = await Promise.all([
          sleep(random.whole(0, 300)).then(() => grow(count)),
          binary([...words, 'q'], { env }),
        ]);
        return ended;
      };
      /** The states of all jobs; a growth leaves each in one place. */
      const statesOf = async () => {
        const places = await placesOf(server.admin, 'q');
        expect([...places.keys()].sort()).toEqual(ids);
        expect([...places].filter(([, all]) => all.length > 1)).toEqual([]);
        return new Set([...places.values()].map(([place]) => place?.split(' ')[1]));
      };
      const shown = async (stdout: string, code: number | null, idOf: (line: string) => string) => {
        if (code === 0) expect(linesOf(stdout).map(idOf).sort()).toEqual(ids);
        else expect(code).toBe(1);
      };
      expect(await whileGrowing('bury', '--all', '--yes')).toMatchObject({ code: 0 });
      expect(await statesOf()).toEqual(new Set(['dead']));
      const listed = await whileGrowing('list', '--dead', '--ids', '-n', '30000');
      await shown(listed.stdout, listed.code, (line) => line);
      expect(await whileGrowing('requeue', '--all', '--yes')).toMatchObject({ code: 0 });
      expect(await statesOf()).toEqual(new Set(['pending']));
      const exported = await whileGrowing('export');
      await shown(exported.stdout, exported.code, (line) => JSON.parse(line).id);
      const rescheduled = await whileGrowing('reschedule', '--all', '--in', '1h', '--yes');
      expect(rescheduled).toMatchObject({ code: 0 });
      expect(await binary(['drain', 'q'], { env }), rescheduled.stderr).toMatchObject({ code: 0, stdout: '' });
      expect(await statesOf()).toEqual(new Set(['pending']));
      expect(await whileGrowing('cancel', '--all', '--yes')).toMatchObject({ code: 0 });
      expect((await placesOf(server.admin, 'q')).size).toBe(0);
    },
  );
});

it('jobs that other software writes into the first partition are delivered, before and after a growth', async () => {
  const server = await during(Server.start());
  const env = { DELAYQ_REDIS_URL: server.url };
  const write = async (ids: readonly string[]) => {
    for (const id of ids)
      await server.admin
        .multi()
        .hset(key('q', 'payload'), id, JSON.stringify(id))
        .zadd(key('q', 'pending'), 1, id)
        .exec();
  };
  const [before, after] = ['before', 'after'].map((when) => Array.from({ length: 20 }, (_, i) => `${when}-${i}`));
  await write(before as string[]);
  expect(await binary(['config', 'q', 'partitions=4'], { env })).toMatchObject({ code: 0 });
  await write(after as string[]);
  // By their ids they are found, too.
  expect(await binary(['show', '--json', 'q', 'after-0'], { env })).toMatchObject({ code: 0 });
  expect(await binary(['cancel', 'q', 'after-1'], { env })).toMatchObject({ code: 0 });
  const { code, stdout } = await binary(['drain', 'q'], { env });
  const all = [...(before as string[]), ...(after as string[])].filter((id) => id !== 'after-1');
  expect({
    code,
    ids: linesOf(stdout)
      .map((line) => JSON.parse(line))
      .sort(),
  }).toEqual({ code: 0, ids: all.sort() });
  expect((await placesOf(server.admin, 'q')).size).toBe(0);
});

if (jobs > 0) {
  it(`a large queue, of ${jobs} jobs, grows from 1 to 16 under all of that (seed ${seed})`, async () => {
    const redis = await cluster(['grown'], 'everysec');
    const large = { waiting: jobs, ids: 200, everyForm: true, replicas: 1, steps: [16], livesMs: 8_000 };
    const storm = await begin({ redis, ...large });
    await sleep(1_000);
    const growing = storm.grow();
    await storm.strike('CLUSTER FAILOVER');
    await storm.strike('kill master');
    const ms = await growing;
    const seconds = `${(ms / 1000).toFixed(1)} s`;
    console.log(`the growth took ${seconds}: ${Math.round((jobs * 15) / 16 / (ms / 1000))} jobs a second`);
    await expectExplained(storm);
  }, 900_000);
}
