import { describe, expect, it } from 'vitest';
import { Auditor, Queue } from '../../../src/index.js';
import { queueKeys } from '../../../src/store/keys.js';
import { hold } from '../../../src/store/transfer.js';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';
import { until } from '../../support/until.js';

interface Told {
  level: string;
  check: string;
  queue?: string;
  what: string;
  why?: string;
  next?: string;
  count?: number;
  samples?: string[];
  mended?: number;
}

/** What doctor finds of a queue, as programs read it. */
async function findings(name: string, ...more: string[]): Promise<Told[]> {
  const { stdout, stderr } = await delayq(['doctor', '--json', ...more, name]);
  expect(stderr).toBe('');
  return (JSON.parse(stdout).findings as Told[]).filter(({ queue }) => queue === name);
}
/** Those that are not in order, as 'level check count'. */
const faults = (told: Told[]) =>
  told.filter(({ level }) => level !== 'ok').map(({ level, check, count = 0 }) => `${level} ${check} ${count}`);

const state = async (name: string, id: string) => {
  const sets = ['pending', 'active', 'dead'];
  const scores = await Promise.all(sets.map((set) => admin.zscore(key(name, set), id)));
  return sets.filter((_, i) => scores[i] !== null).join('+') || 'nowhere';
};
const reason = async (name: string, id: string) =>
  JSON.parse((await admin.hget(key(name, 'meta'), id)) ?? '{}').reason as string | undefined;

/** A queue with two sound jobs that wait. */
async function soundQueue(): Promise<Queue> {
  const queue = freshQueue();
  await queue.enqueue([
    { payload: 1, id: 'sound1', in: '1h' },
    { payload: 2, id: 'sound2', in: '1h', tries: 3 },
  ]);
  return queue;
}

const soon = () => Date.now() + 3_600_000;
/** A job as other software makes one. */
const put = (name: string, set: string, id: string, score: number | string) =>
  admin.multi().hset(key(name, 'payload'), id, '{}').zadd(key(name, set), score, id).exec();
const held = (by = 'host:1', since = Date.now()) => `receipt ${soon()} ${since} ${by}`;

/** Each kind of damage: how it is done, what doctor calls it, and how it is in order afterwards. */
const DAMAGES: {
  check: string;
  level: 'warn' | 'fail';
  harm(name: string): Promise<unknown>;
  after(name: string): Promise<unknown>;
  is: unknown;
}[] = [
  {
    check: 'no-payload',
    level: 'fail',
    harm: (name) => admin.zadd(key(name, 'pending'), soon(), 'x'),
    after: async (name) => [await state(name, 'x'), await reason(name, 'x')],
    is: ['dead', 'orphaned'],
  },
  {
    check: 'no-payload',
    level: 'fail',
    harm: (name) => admin.multi().zadd(key(name, 'active'), soon(), 'x').hset(key(name, 'lease'), 'x', held()).exec(),
    after: async (name) => [await state(name, 'x'), await reason(name, 'x'), await admin.hkeys(key(name, 'lease'))],
    is: ['dead', 'orphaned', ['receipt x']],
  },
  {
    check: 'no-payload',
    level: 'fail',
    harm: (name) => admin.zadd(key(name, 'dead'), 1_700_000_000_000, 'x'),
    after: async (name) => [await admin.zscore(key(name, 'dead'), 'x'), await reason(name, 'x')],
    is: ['1700000000000', 'orphaned'],
  },
  {
    check: 'no-id',
    level: 'fail',
    harm: (name) => admin.hset(key(name, 'payload'), 'x', '{"n":12345678901234567890}'),
    after: async (name) => [
      await state(name, 'x'),
      await reason(name, 'x'),
      await admin.hget(key(name, 'payload'), 'x'),
    ],
    is: ['dead', 'found', '{"n":12345678901234567890}'],
  },
  {
    check: 'two-sets',
    level: 'fail',
    harm: async (name) => {
      await put(name, 'pending', 'x', soon());
      await admin.multi().zadd(key(name, 'active'), soon(), 'x').hset(key(name, 'lease'), 'x', held()).exec();
    },
    after: async (name) => [await state(name, 'x'), await admin.hkeys(key(name, 'lease'))],
    is: ['pending', ['receipt x']],
  },
  {
    check: 'two-sets',
    level: 'fail',
    harm: async (name) => {
      await put(name, 'pending', 'x', soon());
      await admin.zadd(key(name, 'dead'), Date.now(), 'x');
    },
    after: (name) => state(name, 'x'),
    is: 'pending',
  },
  {
    check: 'two-sets',
    level: 'fail',
    harm: async (name) => {
      await put(name, 'active', 'x', soon());
      await admin.multi().zadd(key(name, 'dead'), Date.now(), 'x').hset(key(name, 'lease'), 'x', held()).exec();
    },
    after: async (name) => [await state(name, 'x'), await admin.hkeys(key(name, 'lease'))],
    is: ['active', ['x']],
  },
  {
    check: 'never-due',
    level: 'fail',
    harm: (name) => put(name, 'pending', 'x', 'inf'),
    after: async (name) => [
      await state(name, 'x'),
      await reason(name, 'x'),
      await admin.hget(key(name, 'payload'), 'x'),
    ],
    is: ['dead', 'bad due', '{}'],
  },
  {
    check: 'never-due',
    level: 'fail',
    harm: (name) => put(name, 'pending', 'x', Date.now() * 1_000),
    after: (name) => state(name, 'x'),
    is: 'dead',
  },
  {
    check: 'early-due',
    level: 'fail',
    harm: (name) => put(name, 'pending', 'x', Math.floor(soon() / 1_000)),
    after: async (name) => [await state(name, 'x'), await reason(name, 'x')],
    is: ['dead', 'bad due'],
  },
  {
    check: 'early-due',
    level: 'fail',
    harm: (name) => put(name, 'pending', 'x', '-inf'),
    after: async (name) => [await state(name, 'x'), await reason(name, 'x')],
    is: ['dead', 'bad due'],
  },
  {
    check: 'endless-lease',
    level: 'fail',
    harm: async (name) => {
      await put(name, 'active', 'x', 'inf');
      await admin.hset(key(name, 'lease'), 'x', held());
    },
    after: async (name) => Number(await admin.zscore(key(name, 'active'), 'x')) <= Date.now(),
    is: true,
  },
  {
    check: 'no-lease',
    level: 'fail',
    harm: (name) => put(name, 'active', 'x', soon()),
    after: (name) => state(name, 'x'),
    is: 'pending',
  },
  {
    check: 'no-lease',
    level: 'fail',
    harm: async (name) => {
      await put(name, 'active', 'x', soon());
      await admin.hset(key(name, 'lease'), 'x', 'garbage');
    },
    after: async (name) => [await state(name, 'x'), await admin.hkeys(key(name, 'lease'))],
    is: ['pending', []],
  },
  {
    check: 'stray-lease',
    level: 'warn',
    harm: (name) => admin.hset(key(name, 'lease'), 'sound1', held()),
    after: (name) => admin.hkeys(key(name, 'lease')),
    is: ['receipt sound1'],
  },
  {
    check: 'stray-lease',
    level: 'warn',
    harm: (name) => admin.hset(key(name, 'lease'), 'gone', held()),
    after: (name) => admin.hkeys(key(name, 'lease')),
    is: [],
  },
  {
    check: 'old-superseded',
    level: 'warn',
    harm: (name) => admin.hset(key(name, 'lease'), 'old x', Date.now() - 90_000_000, 'young x', Date.now() - 3_600_000),
    after: (name) => admin.hkeys(key(name, 'lease')),
    is: ['young x'],
  },
  {
    check: 'old-move',
    level: 'warn',
    harm: (name) =>
      admin.hset(
        key(name, 'lease'),
        ...['old x', `${Date.now() - 90_000_000} moved`, 'young x', `${Date.now() - 3_600_000} moved`],
      ),
    after: (name) => admin.hkeys(key(name, 'lease')),
    is: ['young x'],
  },
  {
    // A killed move held it when it was cancelled.
    check: 'old-move',
    level: 'warn',
    async harm(name) {
      await new Queue(connection, name).enqueue({ id: 'held', payload: 1 });
      const by = 'move:elsewhere';
      await hold(connection, queueKeys('delayq', name), ['held'], { states: ['pending'], receipt: 'R', by });
      await delayq(['cancel', name, 'held']);
      const marks = await admin.hgetall(key(name, 'lease'));
      expect(marks['R held']).toMatch(/^\d+ moved$/);
      await admin.hset(key(name, 'lease'), 'R held', `${Date.now() - 90_000_000} moved`);
    },
    after: (name) => admin.hkeys(key(name, 'lease')),
    is: [],
  },
  {
    check: 'stray-record',
    level: 'warn',
    harm: (name) => admin.hset(key(name, 'meta'), 'gone', '{"failures":2}'),
    after: (name) => admin.hkeys(key(name, 'meta')),
    is: ['sound2'],
  },
  {
    check: 'bad-record',
    level: 'warn',
    harm: (name) => admin.hset(key(name, 'meta'), 'sound1', 'garbage'),
    after: (name) => admin.hkeys(key(name, 'meta')),
    is: ['sound2'],
  },
  {
    check: 'expiring-key',
    level: 'fail',
    harm: (name) => admin.expire(key(name, 'payload'), 1_000),
    after: (name) => admin.ttl(key(name, 'payload')),
    is: -1,
  },
  {
    check: 'unlisted',
    level: 'warn',
    harm: (name) => admin.srem('delayq:queues', name),
    after: (name) => admin.sismember('delayq:queues', name),
    is: 1,
  },
];

describe('damage by other software', () => {
  it.each(DAMAGES)('$check ($level) is found, mended, and gone', async ({ check, level, harm, after, is }) => {
    const { name } = await soundQueue();
    await harm(name);
    const found = (await findings(name)).filter((one) => one.check === check);
    expect(found).toMatchObject([{ level, why: expect.any(String), next: expect.any(String) }]);
    expect((await delayq(['doctor', name])).code).toBe(level === 'fail' ? 2 : 1);

    const mended = await findings(name, '--fix', '--yes');
    expect(mended.filter((one) => one.check === check)).toMatchObject([{ level: 'ok', mended: 1 }]);
    expect(await after(name)).toEqual(is);
    expect(
      (await findings(name)).filter((one) => one.level !== 'ok' && !['dead', 'no-drain'].includes(one.check)),
    ).toEqual([]);
    expect(await admin.hmget(key(name, 'payload'), 'sound1', 'sound2')).toEqual(['1', '2']);
    expect(await admin.zcard(key(name, 'pending'))).toBeGreaterThanOrEqual(2);
  });

  it('of many kinds at once is counted by kind, with a few ids, the worst first', async () => {
    const { name } = await soundQueue();
    for (const i of [1, 2, 3, 4, 5]) await put(name, 'pending', `never${i}`, 'inf');
    await admin.zadd(key(name, 'pending'), soon(), 'ghost', 'inf', 'never-and-ghost');
    await admin.hset(key(name, 'meta'), 'gone', '{}');
    const found = await findings(name);
    expect(faults(found)).toEqual(['fail no-payload 2', 'fail never-due 5', 'warn stray-record 1']);
    expect(found.find(({ check }) => check === 'never-due')?.samples).toHaveLength(3);
    await findings(name, '--fix', '--yes');
    expect(faults(await findings(name))).toEqual(['warn dead 7']);
    // Nothing was lost: what has a payload can be requeued.
    expect((await delayq(['requeue', '--all', '--yes', '-q', name])).code).toBe(1);
    expect(await admin.zcard(key(name, 'pending'))).toBe(7);
  });

  it('of thousands of ids is found and mended in small calls', async () => {
    const { name } = await soundQueue();
    const ids = Array.from({ length: 5_000 }, (_, i) => `ghost${i}`);
    await admin.zadd(key(name, 'pending'), ...ids.flatMap((id) => [soon(), id]));
    // Large enough that not all of a slice can be read at once.
    for (const i of ids.slice(0, 1_000).keys()) await admin.hset(key(name, 'payload'), `lost${i}`, 'x'.repeat(10_000));
    expect(faults(await findings(name))).toEqual(['fail no-payload 5000', 'fail no-id 1000']);
    const mended = await findings(name, '--fix', '--yes');
    expect(mended).toMatchObject([
      { check: 'no-payload', level: 'ok', mended: 5_000 },
      { check: 'no-id', level: 'ok', mended: 1_000 },
      { check: 'dead' },
    ]);
    expect(faults(await findings(name))).toEqual(['warn dead 6000']);
  });

  it('by ids that are no text is mended all the same, and nothing of them reaches a terminal raw', async () => {
    const { name } = await soundQueue();
    const id = Buffer.from([0xff, 0x1b, 0x5b, 0x32, 0x4a]);
    await admin.zadd(key(name, 'pending'), soon(), id);
    const { stdout } = await delayq(['doctor', name]);
    expect(stdout).toContain('1 job without a payload');
    expect(stdout).not.toContain('\x1b');
    await findings(name, '--fix', '--yes');
    expect(await admin.zscore(key(name, 'dead'), id)).not.toBe(null);
  });

  it('that cannot be mended is told: ids that cannot be named, counters, settings', async () => {
    const { name } = await soundQueue();
    await put(name, 'pending', 'two words', soon());
    await admin.hset(key(name, 'stats'), 'acked', 'x');
    await admin.hset(
      key(name, 'config'),
      'layout',
      '1 0/1 uses settings',
      'tries',
      'many',
      'backoff',
      'soon',
      'paused',
      'yes',
      'lease',
      '5000',
    );
    const told = ['warn odd-id 1', 'warn bad-counter 0', ...Array(3).fill('warn bad-setting 0')];
    expect(faults(await findings(name))).toEqual(told);
    const found = await findings(name, '--fix', '--yes');
    expect(faults(found)).toEqual(told);
    // Each says what to do; those that are commands of ours do it.
    for (const { next } of found.filter(({ check }) => check === 'bad-setting'))
      expect((await sh(String(next))).code).toBe(0);
    expect(faults(await findings(name))).toEqual(told.slice(0, 2));
  });

  it('by names that a shell would run is told with commands that do what they say, and no more', async () => {
    const prefix = freshName();
    const evil = `x'; echo $(echo pwned) >&2; '`;
    await admin.sadd(`${prefix}:queues`, evil, 'q');
    await admin.hset(`${prefix}:{q}:stats`, evil, 'x', 'acked', '-3', 'enqueued', '1');
    const look = async () =>
      JSON.parse((await delayq(['doctor', '--json', '--prefix', prefix])).stdout).findings as Told[];
    const told = (await look()).filter(({ check }) => ['odd-name', 'bad-counter'].includes(check));
    expect(told.map(({ check }) => check)).toEqual(['odd-name', 'bad-counter', 'bad-counter']);
    for (const { next = '' } of told)
      expect(await sh(next.replace(/^.*: (?=redis-cli)/, ''))).toMatchObject({ code: 0, stdout: '1\n', stderr: '' });
    expect(faults(await look()).filter((one) => /odd-name|bad-counter/.test(one))).toEqual([]);
  });

  it('is not what others mean: due in the last century, or at the end of time', async () => {
    const { name } = await soundQueue();
    await delayq(['enqueue', '-q', name, '--at', '1999-01-01T00:00:00Z', '1']);
    await delayq(['enqueue', '-q', name, '--at', '9999-12-31T23:59:59Z', '1']);
    expect(faults(await findings(name)).filter((one) => /due/.test(one))).toEqual([]);
  });

  it('that leaves a queue unreadable is told, whether it is named or not', async () => {
    const prefix = freshName();
    await admin.hset(`${prefix}:{newer}:config`, 'layout', '2');
    await admin.set(`${prefix}:{mixed}:stats`, 'x');
    await admin.sadd(`${prefix}:queues`, 'two words');
    const { code, stdout } = await delayq(['doctor', '--prefix', prefix]);
    expect(code).toBe(2);
    expect(stdout).toMatch(/^fail {2}newer +cannot be read: LAYOUT [\s\S]*newer delayq/m);
    expect(stdout).toMatch(/^fail {2}mixed +cannot be read: WRONGTYPE /m);
    expect(stdout).toMatch(/^warn {2}redis +"two words" is not a valid queue name/m);
    expect((await delayq(['doctor', '--prefix', prefix, 'newer'])).code).toBe(2);
  });

  it('by a payload in two commands is none: the job is whole a moment later', async () => {
    const { name } = await soundQueue();
    await admin.hset(key(name, 'payload'), 'x', '1');
    let looks = 0;
    const found = await new Auditor(connection).examine(name, {
      mend: true,
      // Two jobs in pending, three payloads: that one has been seen alone when its producer comes to the second command.
      progress: async (looked) => {
        if (looked < 5) return;
        looks += 1;
        await admin.zadd(key(name, 'pending'), soon(), 'x');
      },
    });
    expect(found).toMatchObject([{ level: 'ok', check: 'jobs' }]);
    expect([looks > 0, await state(name, 'x')]).toEqual([true, 'pending']);
  });

  it('by thousands of payloads ahead of their ids, in one pipeline, is none either', async () => {
    const { name } = await soundQueue();
    const ids = Array.from({ length: 3_000 }, (_, i) => `p${i}`);
    await admin.hset(key(name, 'payload'), Object.fromEntries(ids.map((id) => [id, '1'])));
    const examined = new Auditor(connection).examine(name, {
      mend: true,
      graceMs: 1_000,
      progress: async (looked) => {
        // All payloads but the last were seen without their id.
        if (looked >= 3_000) await admin.zadd(key(name, 'pending'), ...ids.flatMap((id) => [soon(), id]));
      },
    });
    expect(await examined).toMatchObject([{ level: 'ok', check: 'jobs' }]);
    expect(await admin.zcard(key(name, 'dead'))).toBe(0);
  });
});

describe('a move that was not finished', () => {
  const hold = async (name: string, since: number) => {
    await put(name, 'active', 'x', 'inf');
    await admin.hset(key(name, 'lease'), 'x', `${held('move:other p token', since)}`);
  };

  it('is told with the command that finishes it, and not mended', async () => {
    const { name } = await soundQueue();
    await hold(name, Date.now() - 3_600_000);
    const [found] = (await findings(name, '--fix', '--yes')).filter(({ check }) => check === 'unfinished-move');
    expect(found).toMatchObject({
      level: 'warn',
      samples: ['x'],
      next: expect.stringContaining(`delayq move ${name} --into other`),
    });
    expect(await state(name, 'x')).toBe('active');
  });

  it('but goes on is none', async () => {
    const { name } = await soundQueue();
    await hold(name, Date.now());
    expect(faults(await findings(name))).toEqual([]);
  });
});

describe('a sound queue', () => {
  it('is said to be in order, whatever its jobs have been through', async () => {
    const queue = await soundQueue();
    await queue.enqueue(Array.from({ length: 6 }, (_, i) => ({ payload: i, id: `j${i}`, ttl: '1d' })));
    const { jobs } = await queue.drain({ limit: 4 });
    await queue.ack(jobs.slice(0, 1));
    await queue.nack(jobs.slice(1, 2), { error: 'later' });
    await queue.enqueue({ payload: 'new', id: jobs[2]?.id, in: '1h' }, { ifExists: 'replace' });
    const found = await findings(queue.name);
    expect(faults(found)).toEqual([]);
    expect(found).toMatchObject([
      { level: 'ok', check: 'jobs', what: '7 jobs, each in one state and, unless it is dead, with its payload' },
    ]);
    expect(await findings(queue.name, '--fix', '--yes')).toEqual(found);
  });

  it('that is busy is never said to be broken, and loses nothing to --fix', async () => {
    const { name } = freshQueue();
    let over = false;
    let made = 0;
    let done = 0;
    const MAX_BEHIND = 500;
    const worker = () => new Queue(connection, name);
    const produce = async () => {
      const queue = worker();
      while (!over) {
        await until(() => made - done < MAX_BEHIND);
        await queue.enqueue(Array.from({ length: 50 }, (_, i) => ({ payload: i, tries: 2 + (i % 3) })));
        made += 50;
      }
    };
    const consume = async () => {
      const queue = worker();
      while (!over || (await queue.counts()).pending > 0) {
        const { jobs } = await queue.drain({ limit: 100 });
        const failing = jobs.filter(({ attempt }) => attempt === 1).slice(0, 10);
        await queue.nack(failing, { backoff: [1] });
        await queue.ack(jobs.filter((job) => !failing.includes(job)));
        done += jobs.length - failing.length;
      }
    };
    const busy = [produce(), consume(), consume()];
    const runs: Told[][] = [];
    try {
      await until(() => done > 0);
      for (const more of [[], ['--fix', '--yes'], [], ['--fix', '--yes'], []]) runs.push(await findings(name, ...more));
    } finally {
      over = true;
      await Promise.all(busy);
    }
    for (const run of runs) expect(run.filter(({ check }) => check !== 'jobs' && check !== 'lag')).toEqual([]);
    expect(done).toBe(made);
    expect(await admin.hlen(key(name, 'payload'))).toBe(0);
  });
});

describe('what somebody should look after', () => {
  it('is told: no drain, leases run out, dead jobs, a pause', async () => {
    const queue = freshQueue();
    const { name } = queue;
    await queue.enqueue([
      { payload: 1, id: 'a' },
      { payload: 2, id: 'b' },
      { payload: 3, id: 'c' },
    ]);
    await queue.nack((await queue.drain({ limit: 1 })).jobs, { mode: 'dead' });
    expect(faults(await findings(name))).toEqual(['warn dead 1']);
    await admin.hset(key(name, 'stats'), 'drained', Date.now() - 61_000);
    // As cron leaves it just before it comes again.
    expect(faults(await findings(name))).toEqual(['warn dead 1']);
    await admin.hset(key(name, 'stats'), 'drained', Date.now() - 47 * 60_000);
    await admin.zadd(key(name, 'pending'), Date.now() - 130_000, 'b');
    const [told] = (await findings(name)).filter(({ check }) => check === 'no-drain');
    expect(told?.what).toMatch(/^no drain for 4[78]m.*: 2 jobs are due, the oldest for \dm/);
    await admin.hset(key(name, 'stats'), 'drained', Date.now());
    await admin.zadd(key(name, 'pending'), Date.now() - 720_000, 'b');
    expect(faults(await findings(name))).toEqual(['fail lag 0', 'warn dead 1']);
    await admin.hset(key(name, 'config'), 'layout', '1 0/1 uses settings', 'paused', 'inf');
    const paused = await findings(name);
    expect(faults(paused)).toEqual(['fail paused 0', 'warn dead 1']);
    expect(paused.find(({ check }) => check === 'paused')?.next).toBe(`delayq resume ${name}`);
  });
});

describe('delayq doctor', () => {
  it('needs somebody to be asked, or --yes, before it mends', async () => {
    const { name } = await soundQueue();
    await admin.zadd(key(name, 'pending'), soon(), 'ghost');
    expect(await delayq(['doctor', '--fix', name])).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('--yes'),
    });
    const ask = (answer: string) => onTerminal(`delayq doctor --fix ${name}`, { typed: `${answer}\n` });
    expect(await ask('n')).toContain('nothing repaired');
    expect(await state(name, 'ghost')).toBe('pending');
    const stdout = await ask('y');
    expect(stdout).toMatch(/repair 1 job without a payload\? \[y\/N\]/);
    expect(stdout).toContain('1 job without a payload: moved to dead (orphaned)');
    expect(await state(name, 'ghost')).toBe('dead');
  });

  it('writes text into a pipe, without colour, and with --quiet only what is not in order', async () => {
    const { name } = await soundQueue();
    const { stdout } = await delayq(['doctor', name]);
    expect(linesOf(stdout).every((line) => /^(ok {2}|warn|fail|skip) {2}\S|^ {6}(why|next|ids): /.test(line))).toBe(
      true,
    );
    expect(stdout).not.toContain('\x1b');
    expect(stdout).toMatch(new RegExp(`^ok {4}${name} +2 jobs, each`, 'm'));
    expect((await delayq(['doctor', '-q', name])).stdout).not.toMatch(/^ok/m);
    const coloured = await sh(`script -qec 'delayq doctor ${name}' /dev/null`, { env: { TERM: 'xterm-256color' } });
    expect(coloured.stdout).toContain('\x1b[32mok');
  });

  it('on a terminal breaks lines between words, but for the command to run next', async () => {
    const { name } = await soundQueue();
    await admin.zadd(key(name, 'pending'), soon(), 'ghost');
    const lines = linesOf(await onTerminal(`delayq doctor ${name}`, { columns: 60 }));
    expect(lines.filter((line) => line.length > 60 && !line.startsWith('      next:'))).toEqual([]);
    expect(lines).toContainEqual('      why:  there is nothing to deliver: other software');
    expect(lines).toContainEqual('            deleted the payload, or never wrote it');
    expect(lines).toContainEqual(`      next: delayq doctor --fix ${name}`);
    expect((await delayq(['doctor', name])).stdout).toContain(
      'other software deleted the payload, or never wrote it\n',
    );
  });

  it('with --fix and nothing to repair says so', async () => {
    const { name } = await soundQueue();
    expect((await delayq(['doctor', '--fix', '--yes', name])).stderr).toBe('delayq: nothing to repair\n');
    for (const form of ['--json', '--quiet'])
      expect((await delayq(['doctor', '--fix', '--yes', form, name])).stderr).toBe('');
    await admin.zadd(key(name, 'pending'), soon(), 'ghost');
    expect((await delayq(['doctor', '--fix', '--yes', name])).stderr).toBe('');
  });

  it('names the prefix and the address again in the commands to run next', async () => {
    const prefix = freshName();
    await delayq(['--prefix', prefix, 'enqueue', 'q', '1']);
    await admin.hset(`${prefix}:{q}:payload`, 'lost', '1');
    const { stdout } = await delayq(['doctor', '--prefix', prefix, 'q']);
    expect(stdout).toContain(`next: delayq --prefix ${prefix} doctor --fix q`);
  });

  it('of an unknown queue exits 3, of an unreachable Redis 69', async () => {
    expect(await delayq(['doctor', freshName()])).toMatchObject({ code: 3, stdout: '' });
    expect(await delayq(['doctor', '--redis', 'redis://127.0.0.1:1'])).toMatchObject({ code: 69, stdout: '' });
  });
});
