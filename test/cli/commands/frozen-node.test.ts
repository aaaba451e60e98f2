import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { Connection, Inspector, Operator, Queue } from '../../../src/index.js';
import { begin, delayq, linesOf } from '../../support/cli.js';
import { Cluster } from '../../support/cluster.js';
import { freshName, key } from '../../support/redis.js';
import type { Server } from '../../support/server.js';
import { until } from '../../support/until.js';

/** More than one time limit of a call, 5 s, and less than two. */
const ONCE_MS = 9_000;

let cluster: Cluster;
let frozen: Server;
let env: Record<string, string>;
/** Queues of the node that freezes, and of others, in the order of their names. */
const [far, near]: [string[], string[]] = [[], []];

beforeAll(async () => {
  // The nodes are not replaced meanwhile, and what is left of the cluster goes on.
  cluster = await Cluster.start({ nodeTimeoutMs: 60_000, args: ['--cluster-require-full-coverage', 'no'] });
  env = { DELAYQ_REDIS_URL: cluster.url };
  const list = await cluster.ownerOf('delayq:queues');
  frozen = cluster.nodes.find((node) => node !== list) as Server;
  const redis = new Connection(cluster.url);
  while (far.length < 60 || near.length < 3) {
    const name = freshName();
    const isFar = (await cluster.ownerOf(key(name, 'pending'))) === frozen;
    if ((isFar ? far.length : near.length) >= (isFar ? 60 : 3)) continue;
    (isFar ? far : near).push(name);
    await new Queue(redis, name).enqueue({ payload: name });
  }
  for (const names of [far, near]) names.sort();
  redis.close();
});
afterAll(() => cluster.stop());

/** How many tests need the node to be frozen now. */
let needed = 0;

async function whileFrozen<T>(act: () => Promise<T>): Promise<{ result: T; ms: number }> {
  if (needed++ === 0) frozen.signal('SIGSTOP');
  try {
    const since = performance.now();
    const result = await act();
    return { result, ms: performance.now() - since };
  } finally {
    if (--needed === 0) frozen.signal('SIGCONT');
  }
}

describe.concurrent('while one node of a cluster is frozen, with 60 queues,', () => {
  it('inspect shows the queues of the others, and names those that cannot be read', async () => {
    const { result, ms } = await whileFrozen(() => delayq(['inspect'], { env }));
    const lines = linesOf(result.stdout);
    expect(result).toMatchObject({ code: 1, stderr: '' });
    expect(ms).toBeLessThan(ONCE_MS);
    for (const name of near) expect(lines.find((line) => line.startsWith(name))).toMatch(/ 1 +1 /);
    // Above the table, with the node that does not answer.
    const table = lines.findIndex((line) => line.startsWith('queue '));
    const unread = lines.slice(0, table).filter((line) => line.includes(`:${frozen.port}`));
    for (const name of far) expect(unread).toContainEqual(expect.stringContaining(` ${name}: cannot be read: `));
  });

  it('inspect --watch goes on refreshing', async () => {
    const { result } = await whileFrozen(async () => {
      const running = begin(['inspect', '--json', '--watch'], { env });
      // The first look waits for the whole time limit; those after it do not.
      await until(() => linesOf(running.stdout).length >= 1);
      const since = performance.now();
      await until(() => linesOf(running.stdout).length >= 3);
      running.child.kill('SIGTERM');
      await running.ended;
      return performance.now() - since;
    });
    expect(result).toBeLessThan(40_000);
  });

  it('metrics has the queues of the others, and delayq_queue_up 0 for those', async () => {
    const { result, ms } = await whileFrozen(() => delayq(['metrics'], { env }));
    expect(result.code).toBe(1);
    expect(ms).toBeLessThan(ONCE_MS);
    for (const name of near) expect(result.stdout).toContain(`delayq_jobs{queue="${name}",state="pending"} 1\n`);
    expect(result.stdout.match(/^delayq_queue_up\{.*\} 0$/gm)).toHaveLength(60);
    expect(linesOf(result.stderr)).toHaveLength(60);
  });

  it('check is UNKNOWN, and a known problem of the others is worse', async () => {
    const names = [far[0], far[1], near[0]] as string[];
    const { result, ms } = await whileFrozen(() => delayq(['check', ...names], { env }));
    expect(result).toMatchObject({
      code: 3,
      stdout: expect.stringMatching(/^DELAYQ UNKNOWN - .*(no answer|lost the connection|cannot reach)/),
    });
    expect(ms).toBeLessThan(ONCE_MS);
    const late = await whileFrozen(() => delayq(['check', '--max-lag', '0s', ...names], { env }));
    expect(late.result).toMatchObject({ code: 2, stdout: expect.stringContaining(`${near[0]}: `) });
  });

  // These change queues, and need the node again in the end.
  it.sequential('drain delivers the jobs of the others, and ends with the trouble', async () => {
    const [here, there] = [near[1], far[0]] as [string, string];
    const since = performance.now();
    let after = 0;
    const { result } = await whileFrozen(async () => {
      const running = begin(['drain', `${there},${here}`], { env });
      await until(() => running.stdout !== '');
      after = performance.now() - since;
      return running.ended;
    });
    expect(after).toBeLessThan(4_000);
    expect(result).toMatchObject({ code: expect.toBeOneOf([69, 75]), stdout: `"${here}"\n` });
    expect(linesOf(result.stderr)[0]).toContain(`going on without ${there}: `);
    expect(await delayq(['drain', `${there},${here}`], { env })).toMatchObject({ code: 0 });
  });

  it.sequential('drain --watch delivers the jobs of the others all the time, and then those of the node', async () => {
    const [here, there] = [near[2], far[1]] as [string, string];
    const running = begin(['drain', '--watch', `${there},${here}`, '--', 'sh', '-c', 'cat; echo'], { env });
    await until(() => running.stdout.includes(there) && running.stdout.includes(here));
    const waits: number[] = [];
    await whileFrozen(async () => {
      for (let n = 0; n < 30 || !running.stderr.includes('still trying'); n++) {
        const since = performance.now();
        const put = await delayq(['enqueue', here, `"n${n}"`], { env });
        expect(put.code).toBe(0);
        await until(() => running.stdout.includes(`"n${n}"`));
        waits.push(performance.now() - since);
      }
    });
    expect(Math.max(...waits)).toBeLessThan(3_000);
    await delayq(['enqueue', there, '"back"'], { env });
    await until(() => running.stdout.includes('"back"'));
    running.child.kill('SIGTERM');
    expect(await running.ended).toMatchObject({ code: 0 });
  });

  it('inspect shows the partitions of a queue that the others have, and names those of the frozen one', async () => {
    const redis = new Connection(cluster.url);
    // A namespace of its own, whose list of queues is on another node. So is partition 0: who cannot ask it knows of no other.
    let prefix = freshName();
    while ((await cluster.ownerOf(`${prefix}:queues`)) === frozen) prefix = freshName();
    const keyOf = (tag: string) => `${prefix}:{${tag}}:stats`;
    let name = freshName();
    while ((await cluster.ownerOf(keyOf(name))) === frozen) name = freshName();
    const queue = new Queue(redis, name, { prefix });
    for await (const _ of new Operator(redis, { prefix }).partition(name, 9));
    await queue.enqueue(Array.from({ length: 90 }, (_, i) => ({ id: `p${i}`, payload: i, in: i < 45 ? '1h' : 0 })));
    await queue.drain();
    const parts = await new Inspector(redis, { prefix }).partitions(name);
    redis.close();
    const own = { env: { ...env, DELAYQ_PREFIX: prefix } };
    const isGone = await Promise.all(parts.map(async ({ tag }) => (await cluster.ownerOf(keyOf(tag))) === frozen));
    const gone = parts.filter((_, i) => isGone[i]).map(({ index }) => index);
    expect(gone.length).toBeGreaterThan(0);
    const [one, all] = (
      await whileFrozen(() =>
        Promise.all([delayq(['inspect', '--json', '--partitions', name], own), delayq(['inspect'], own)]),
      )
    ).result;
    const { queues, unreadable } = JSON.parse(one.stdout);
    expect({ code: one.code, unreadable: unreadable.map((part: { partition: number }) => part.partition) }).toEqual({
      code: 75,
      unreadable: gone,
    });
    const pending = parts.filter((_, i) => !isGone[i]).reduce((sum, { found }) => sum + (found?.pending ?? 0), 0);
    expect(queues[0].pending).toBe(pending);
    for (const index of gone) expect(all.stderr).toContain(`partition ${index} of ${name} cannot be read: `);
    expect(all).toMatchObject({ code: 75 });
    // Not a second time for each partition.
    expect((await whileFrozen(() => delayq(['inspect', name], own))).ms).toBeLessThan(ONCE_MS);
  });
});
