import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { begin, delayq, linesOf, sh } from '../../support/cli.js';
import { Cluster } from '../../support/cluster.js';
import { freshName, key } from '../../support/redis.js';
import type { Server } from '../../support/server.js';
import { until, within } from '../../support/until.js';

// They wait for time limits, most of the time.
vi.setConfig({ maxConcurrency: 10 });

/** Much more than one time limit of a call, 5 s, and much less than one for each queue or partition of the node. */
const ONCE_MS = 25_000;

let cluster: Cluster;
let frozen: Server;
let env: Record<string, string>;
let redis: Connection;
/** Queues of the node that freezes, and of others, in the order of their names. */
const [far, near]: [string[], string[]] = [[], []];

beforeAll(async () => {
  // The nodes are not replaced meanwhile, and what is left of the cluster goes on.
  cluster = await Cluster.start({ nodeTimeoutMs: 60_000, args: ['--cluster-require-full-coverage', 'no'] });
  env = { DELAYQ_REDIS_URL: cluster.url };
  const list = await cluster.ownerOf('delayq:queues');
  frozen = cluster.nodes.find((node) => node !== list) as Server;
  redis = new Connection(cluster.url);
  while (far.length < 60 || near.length < 2) {
    const name = freshName();
    const isFar = (await cluster.ownerOf(key(name, 'pending'))) === frozen;
    if ((isFar ? far.length : near.length) >= (isFar ? 60 : 2)) continue;
    (isFar ? far : near).push(name);
    await new Queue(redis, name).enqueue({ payload: name });
  }
  for (const names of [far, near]) names.sort();
});
afterAll(() => {
  redis.close();
  return cluster.stop();
});

/** How many tests need the node to be frozen now, and to be awake. */
const needed = { frozen: 0, awake: 0 };

/** Tests that need the node to be the same go together, and the others wait for their turn. */
async function turn<T>(state: 'frozen' | 'awake', act: () => Promise<T>): Promise<T> {
  const other = state === 'frozen' ? 'awake' : 'frozen';
  while (needed[other] > 0) await until(() => needed[other] === 0, 100_000);
  if (needed[state]++ === 0) frozen.signal(state === 'frozen' ? 'SIGSTOP' : 'SIGCONT');
  try {
    return await act();
  } finally {
    needed[state]--;
  }
}

const whileFrozen = <T>(act: () => Promise<T>) => turn('frozen', act);
const whileAwake = <T>(act: () => Promise<T>) => turn('awake', act);

/** A namespace of its own, whose list of queues is on another node. */
async function namespace(): Promise<{ prefix: string }> {
  let prefix = freshName();
  while ((await cluster.ownerOf(`${prefix}:queues`)) === frozen) prefix = freshName();
  return { prefix };
}

/** Runs the binary to its end, which comes after one time limit. */
const once = (args: string[], own = env) => within(ONCE_MS, args.join(' '), delayq(args, { env: own }));

describe.concurrent('while one node of a cluster is frozen, with 60 queues,', () => {
  // These come first, as they need the node to be awake before.
  it('drain --watch delivers the jobs of the others all the time, and then those of the node', async () => {
    const { here, there, running } = await whileAwake(async () => {
      const space = await namespace();
      const [here, there] = [near[0], far[0]].map((name = '') => new Queue(redis, name, space)) as [Queue, Queue];
      const options = { env: { ...env, DELAYQ_PREFIX: space.prefix } };
      const running = begin(['drain', '--watch', `${there.name},${here.name}`, '--', 'sh', '-c', 'cat; echo'], options);
      for (const queue of [here, there]) await queue.enqueue({ payload: queue.name });
      await until(() => running.stdout.includes(there.name) && running.stdout.includes(here.name));
      return { here, there, running };
    });
    await whileFrozen(async () => {
      const deliver = async () => {
        for (let n = 0; n < 30 || !running.stderr.includes('still trying'); n++) {
          await here.enqueue({ payload: `n${n}` });
          await until(() => running.stdout.includes(`"n${n}"`));
        }
      };
      // If each of them waited for a call to the node, they would take several times as long.
      await within(40_000, 'to deliver 30 jobs', deliver());
    });
    await whileAwake(async () => {
      await there.enqueue({ payload: 'back' });
      await until(() => running.stdout.includes('"back"'));
      running.child.kill('SIGTERM');
      expect(await running.ended).toMatchObject({ code: 0 });
    });
  });

  it('drain delivers the jobs of the others at once, and ends with the trouble', async () => {
    const [here, there] = [near[0], far[0]] as [string, string];
    const own = await whileAwake(async () => {
      const space = await namespace();
      for (const name of [here, there]) await new Queue(redis, name, space).enqueue({ payload: name });
      return { env: { ...env, DELAYQ_PREFIX: space.prefix } };
    });
    // One stream has all that it prints in its order.
    const { stdout } = await whileFrozen(() => sh(`delayq drain ${there},${here} 2>&1; echo "ended with $?"`, own));
    const [job, trouble] = linesOf(stdout);
    expect({ job, trouble }).toEqual({
      job: `"${here}"`,
      trouble: expect.stringContaining(`going on without ${there}: `),
    });
    expect(stdout).toMatch(/\nended with (69|75)\n$/);
    expect(await whileAwake(() => delayq(['drain', `${there},${here}`], own))).toMatchObject({
      code: 0,
      stdout: `"${there}"\n`,
    });
  });

  it('inspect shows the partitions of a queue that the others have, and names those of the frozen one', async () => {
    const { own, name, parts } = await whileAwake(async () => {
      const space = await namespace();
      const keyOf = (tag: string) => key(tag, 'stats');
      // So is partition 0: who cannot ask it knows of no other.
      let name = freshName();
      while ((await cluster.ownerOf(keyOf(name))) === frozen) name = freshName();
      const queue = new Queue(redis, name, space);
      for await (const _ of new Operator(redis, space).partition(name, 33));
      await queue.enqueue(Array.from({ length: 200 }, (_, i) => ({ id: `p${i}`, payload: i, in: i < 100 ? '1h' : 0 })));
      await queue.drain();
      const found = await new Inspector(redis, space).partitions(name);
      const parts = await Promise.all(
        found.map(async (part) => ({ ...part, isGone: (await cluster.ownerOf(keyOf(part.tag))) === frozen })),
      );
      return { own: { ...env, DELAYQ_PREFIX: space.prefix }, name, parts };
    });
    const gone = parts.filter(({ isGone }) => isGone).map(({ index }) => index);
    expect(gone.length).toBeGreaterThan(0);
    const [one, all] = await whileFrozen(() =>
      Promise.all([once(['inspect', '--json', '--partitions', name], own), once(['inspect'], own)]),
    );
    const { queues, unreadable } = JSON.parse(one.stdout);
    expect({ code: one.code, unreadable: unreadable.map((part: { partition: number }) => part.partition) }).toEqual({
      code: 75,
      unreadable: gone,
    });
    const pending = parts.filter(({ isGone }) => !isGone).reduce((sum, { found }) => sum + (found?.pending ?? 0), 0);
    expect(queues[0].pending).toBe(pending);
    for (const index of gone) expect(all.stderr).toContain(`partition ${index} of ${name} cannot be read: `);
    expect(all).toMatchObject({ code: 75 });
    await whileFrozen(() => once(['inspect', name], own));
  });

  it('inspect shows the queues of the others, and names those that cannot be read', async () => {
    const result = await whileFrozen(() => once(['inspect']));
    const lines = linesOf(result.stdout);
    expect(result).toMatchObject({ code: 1, stderr: '' });
    for (const name of near) expect(lines.find((line) => line.startsWith(name))).toMatch(/ 1 +1 /);
    // Above the table, with the node that does not answer.
    const table = lines.findIndex((line) => line.startsWith('queue '));
    const unread = lines.slice(0, table).filter((line) => line.includes(`:${frozen.port}`));
    for (const name of far) expect(unread).toContainEqual(expect.stringContaining(` ${name}: cannot be read: `));
  });

  it('inspect --watch goes on refreshing', async () => {
    await whileFrozen(async () => {
      const running = begin(['inspect', '--json', '--watch'], { env });
      for (const looks of [1, 2, 3]) await until(() => linesOf(running.stdout).length >= looks, ONCE_MS);
      running.child.kill('SIGTERM');
      await running.ended;
    });
  });

  it('metrics has the queues of the others, and delayq_queue_up 0 for those', async () => {
    const result = await whileFrozen(() => once(['metrics']));
    expect(result.code).toBe(1);
    for (const name of near) expect(result.stdout).toContain(`delayq_jobs{queue="${name}",state="pending"} 1\n`);
    expect(result.stdout.match(/^delayq_queue_up\{.*\} 0$/gm)).toHaveLength(60);
    expect(linesOf(result.stderr)).toHaveLength(60);
  });

  it('check is UNKNOWN', async () => {
    const names = [far[0], far[1], near[0]] as string[];
    const result = await whileFrozen(() => once(['check', ...names]));
    expect(result).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/^DELAYQ UNKNOWN - .*(no answer|lost the connection|cannot reach)/),
    });
  });

  it('check is worse than UNKNOWN if the others have a known problem', async () => {
    const names = [far[0], far[1], near[0]] as string[];
    const result = await whileFrozen(() => once(['check', '--max-lag', '0s', ...names]));
    expect(result).toMatchObject({ code: 2, stdout: expect.stringContaining(`${near[0]}: `) });
  });
});
