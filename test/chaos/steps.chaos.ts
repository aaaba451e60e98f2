import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { JsonText, Queue } from '../../src/index.js';
import { begin } from '../support/cli.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, key, redisTargets, redisUrl } from '../support/redis.js';
import { scriptHash } from '../support/scripts.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer, FORMS, type Form } from './consumers.js';
import { Ledger, readLog, remainsOf } from './ledger.js';
import { repeat, sampled, seed } from './options.js';
import { payloadOf } from './producers.js';
import { Random } from './random.js';

/** A file that always exists: handlers with this gate do not wait. */
const OPEN = '/';

beforeAll(async () => {
  // Loads the scripts: from now on a call with a script's hash runs it.
  const queue = new Queue(connection, freshName());
  await queue.enqueue({ payload: 1 });
  await queue.ack((await queue.drain()).jobs);
});

/** A queue with jobs, the first of which waits for a gate; a consumer to strike; and others that handle the rest. */
class Scene {
  readonly form: Form;
  readonly queue = freshName();
  readonly ledger = new Ledger(this.queue);
  /** The lease of the queue, ms. */
  leaseMs = 1_000;
  readonly #directory = temporaryDirectory();
  readonly #random: Random;
  #proxy: FaultyProxy | undefined;
  #struck: Consumer | undefined;
  readonly #rescuers: Consumer[] = [];

  constructor(form: Form, random: Random) {
    this.form = form;
    this.#random = random;
  }

  get #gate(): string {
    return join(this.#directory, 'gate');
  }

  get #log(): string {
    return join(this.#directory, 'log');
  }

  get log(): string {
    return existsSync(this.#log) ? readFileSync(this.#log, 'utf8') : '';
  }

  get proxy(): FaultyProxy {
    return this.#proxy as FaultyProxy;
  }

  /** The consumer to strike. */
  get struck(): Consumer {
    return this.#struck as Consumer;
  }

  async fill(what: 'ok' | 'wait', most = 40): Promise<void> {
    await admin.hset(key(this.queue, 'config'), { layout: '1 0/1 uses settings', lease: this.leaseMs, backoff: '1' });
    const jobs = Array.from({ length: this.#random.whole(1, most) }, (_, i) => {
      const id = this.ledger.sending(0);
      return { id, payload: JsonText.parse(payloadOf(id, i === 0 ? what : 'ok', this.#random.whole(1, 3_000))) };
    });
    for (const { id } of await new Queue(connection, this.queue).enqueue(jobs)) this.ledger.confirmed(id);
  }

  #consumer(form: Form, url: string, label: string, gate: string): Consumer {
    const errors = join(this.#directory, 'errors');
    return new Consumer(form, { queue: this.queue, url, log: this.#log, errors, label, gate, lease: '1s' });
  }

  /** Starts the consumer to strike, with a proxy and a gate. */
  async begin(fault?: FaultyProxy['fault']): Promise<void> {
    this.#proxy = await FaultyProxy.start(...redisTargets);
    this.proxy.fault = fault;
    this.#struck = this.#consumer(this.form, this.proxy.url, 'struck', this.#gate);
  }

  /** Starts a consumer without faults. */
  rescuer(form: Form, gate = OPEN): Consumer {
    const rescuer = this.#consumer(form, redisUrl, `rescuer-${this.#rescuers.length}`, gate);
    this.#rescuers.push(rescuer);
    return rescuer;
  }

  openGate(): void {
    writeFileSync(this.#gate, '');
  }

  async waiting(): Promise<number> {
    return (await admin.zcard(key(this.queue, 'pending'))) + (await admin.zcard(key(this.queue, 'active')));
  }

  /** Lets others handle the remaining jobs. Checks that none is handled before its lease has expired. */
  async rescue(): Promise<void> {
    const ends = await admin.zrange(key(this.queue, 'active'), '0', '-1', 'WITHSCORES');
    const before = readLog(this.log).handlings.length;
    await until(async () => {
      if ((await this.waiting()) === 0) return true;
      await this.rescuer('stdout').end();
      return false;
    }, 120_000);
    for (const { id, start, run } of readLog(this.log).handlings.slice(before)) {
      // Handlers of a killed drain go on.
      if (run === 'struck') continue;
      const place = ends.indexOf(id);
      if (place >= 0)
        expect(start, `${id} came again before its lease had ended`).toBeGreaterThanOrEqual(Number(ends[place + 1]));
    }
  }

  /** Balances the books. Returns the figures. */
  async balance(): Promise<Record<string, number>> {
    const { figures, violations } = this.ledger.balance(readLog(this.log), await remainsOf(admin, this.queue), {
      disturbed: (run) => run === 'struck',
    });
    const { present, dead } = figures;
    expect({ violations, present, dead }).toEqual({ violations: [], present: 0, dead: 0 });
    return { ...figures, again: figures['handled again after a loss or failure'] as number };
  }

  /** Ends all processes. */
  async stop(): Promise<void> {
    this.openGate();
    for (const consumer of [this.#struck, ...this.#rescuers]) await consumer?.kill();
    await this.#proxy?.stop();
  }
}

/** Plays a scene `repeat` times, each time with another seed. */
async function play(form: Form, act: (scene: Scene) => Promise<void>): Promise<void> {
  for (let n = 0; n < Math.max(1, repeat); n++) {
    const scene = new Scene(form, new Random(seed + n));
    try {
      await act(scene);
    } catch (error) {
      throw new Error(`with seed ${seed + n}: ${(error as Error).message}`, { cause: error });
    } finally {
      await scene.stop();
    }
  }
}

/** The moments at which a consumer is struck, and the fault of the network that keeps it there. */
const STEPS = {
  'before it takes': { script: 'drain', kind: 'deaf' },
  'after it took': { script: 'drain', kind: 'silent' },
  'while a job is handled': undefined,
  'after handling, before its ack': { script: 'ack', kind: 'deaf' },
  'after its ack, before the reply': { script: 'ack', kind: 'silent' },
} as const;
type Step = keyof typeof STEPS;

async function reach(scene: Scene, step: Step): Promise<void> {
  const how = STEPS[step];
  await scene.fill(how ? 'ok' : 'wait');
  await scene.begin(how && { word: scriptHash(how.script), kind: how.kind, times: 1 });
  await until(() => (how ? scene.proxy.struck > 0 : scene.log.includes('began')));
}

/** The member to strike at a step. A drain with --lease may have ended when its reader does its first job. */
function memberAt(form: Form, step: Step): string {
  if (form !== 'lease') return 'drain';
  const how = STEPS[step];
  return how === undefined ? 'reader' : how.script;
}

const cases = FORMS.flatMap((form) => (Object.keys(STEPS) as Step[]).map((step) => [form, step] as const));
/** Forms that renew a lease while a job is handled. */
const HOLDING = ['exec', 'pipe', 'worker'] as const;

describe.concurrent(`a consumer (seed ${seed})`, () => {
  it.each(sampled(cases, 2))('%s, killed %s, loses nothing (failures 6, 7, 8)', (form, step) =>
    play(form, async (scene) => {
      await reach(scene, step);
      const struck = scene.struck.signal(memberAt(form, step), 'SIGKILL');
      // A drain to stdout may have ended: the rest is in the pipe.
      if (form !== 'stdout' || STEPS[step]) expect(struck).toBe(true);
      scene.openGate();
      await scene.struck.end();
      await scene.rescue();
      const { again } = await scene.balance();
      if (step === 'before it takes') expect(again).toBe(0);
      if (step === 'after handling, before its ack') expect(again).toBeGreaterThan(0);
    }),
  );

  it.each(sampled(cases, 2))('%s, frozen %s and resumed after the lease, loses nothing (failures 12)', (form, step) =>
    play(form, async (scene) => {
      await reach(scene, step);
      const member = memberAt(form, step);
      scene.struck.signal(member, 'SIGSTOP');
      await scene.rescue();
      scene.struck.signal(member, 'SIGCONT');
      scene.openGate();
      await scene.struck.end();
      await scene.rescue();
      await scene.balance();
    }),
  );

  it.each(HOLDING)(
    '%s that was frozen past its lease cannot answer for a job that another holds (failures 12)',
    (form) =>
      play(form, async (scene) => {
        await scene.fill('wait', 1);
        await scene.begin();
        await until(() => scene.log.includes('began'));
        scene.struck.signal('drain', 'SIGSTOP');
        const gate = join(temporaryDirectory(), 'gate');
        let other = scene.rescuer('exec', gate);
        // A drain that starts before the lease has expired finds nothing and ends.
        await until(() => {
          if (scene.log.split('began').length > 2) return true;
          if (other.over) other = scene.rescuer('exec', gate);
          return false;
        });
        const held = await admin.hgetall(key(scene.queue, 'lease'));
        // The first handler is done before its drain can learn that the lease was lost. (A frozen worker freezes its
        // handlers.)
        scene.openGate();
        if (form !== 'worker') await until(() => readLog(scene.log).handlings.length === 1);
        scene.struck.signal('drain', 'SIGCONT');
        await scene.struck.end();
        expect(await admin.hgetall(key(scene.queue, 'lease'))).toEqual(held);
        writeFileSync(gate, '');
        expect((await other.end()).get('drain')).toBe(0);
        expect(await scene.balance()).toMatchObject({ handled: 1, again: 1 });
      }),
  );

  it.each(HOLDING)('%s keeps its lease while a job takes longer than that (failures 11)', (form) =>
    play(form, async (scene) => {
      // Long enough for a busy machine.
      scene.leaseMs = 4_000;
      await reach(scene, 'while a job is handled');
      const ends = async () => Number((await admin.zrange(key(scene.queue, 'active'), '-1', '-1', 'WITHSCORES'))[1]);
      const first = await ends();
      await until(async () => (await ends()) > first + scene.leaseMs);
      scene.openGate();
      await scene.struck.end();
      expect(await scene.balance()).toMatchObject({ again: 0, 'leases lost': 0 });
    }),
  );

  it.each(['exec', 'pipe', 'lease'] as const)(
    '%s whose handler is killed has failed, and the job comes again (failures 7, 14)',
    (form) =>
      play(form, async (scene) => {
        await reach(scene, 'while a job is handled');
        const [, handler] = /began \S+ (\d+)/.exec(scene.log) as RegExpExecArray;
        process.kill(Number(handler), 'SIGKILL');
        scene.openGate();
        await scene.struck.end();
        await scene.rescue();
        const figures = await scene.balance();
        // A drain sees its handler fail. If the reader of a --lease pipeline dies, only its leases expire.
        expect(figures[form === 'lease' ? 'leases lost' : 'failed']).toBeGreaterThan(0);
      }),
  );

  it('at most once, told to stop while its reader does not read, loses nothing and repeats nothing', () =>
    play('once', async (scene) => {
      await scene.fill('wait', 400);
      await scene.begin();
      await until(() => scene.log.includes('began'));
      // By now the pipe and the reader are full, or all jobs were written.
      scene.struck.signal('drain', 'SIGTERM');
      scene.openGate();
      expect(await scene.struck.end()).toEqual(new Map(Object.entries({ drain: 0, reader: 0 })));
      await scene.rescue();
      expect(await scene.balance()).toMatchObject({ again: 0 });
    }));

  it.each([
    ['before it is sent', 'deaf'],
    ['after it was stored, before the reply', 'silent'],
  ] as const)(
    'an enqueue, frozen %s and cut off meanwhile, makes one job and says its id (failures 2)',
    async (_, kind) => {
      const name = freshName();
      const proxy = await FaultyProxy.start(...redisTargets);
      proxy.fault = { word: scriptHash('enqueue'), kind, times: 1 };
      const running = begin(['enqueue', '--redis', proxy.url, '--in', '1h', name, '1']);
      await until(() => proxy.struck === 1);
      const pid = running.child.pid as number;
      process.kill(pid, 'SIGSTOP');
      await until(() => readFileSync(`/proc/${pid}/stat`, 'utf8').includes(' T '));
      proxy.strike('refuse');
      process.kill(pid, 'SIGCONT');
      const { code, stdout } = await running.ended;
      expect(code).toBe(0);
      expect(await admin.hgetall(key(name, 'payload'))).toEqual({ [stdout.trim()]: '1' });
      await proxy.stop();
    },
  );
});
