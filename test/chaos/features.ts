import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Operator, Queue, Recurring } from '../../src/index.js';
import { begin } from '../support/cli.js';
import { tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer, type Form } from './consumers.js';
import type { Deployment } from './deployments.js';
import { FAULTS, type FaultName, type Victims } from './faults.js';
import { Growers } from './grower.js';
import { readLog } from './ledger.js';
import { payloadOf } from './producers.js';
import { Random } from './random.js';

/** How many tokens there are, how fast they come back, and how many jobs may be active. */
const LIMITS = { rate: { jobs: 25, perMs: 1_000 }, burst: 5, maxActive: 4 };

const LEASE_MS = 2_000;
const SETTINGS = { lease: LEASE_MS, tries: 100_000, maxLost: 100_000, backoff: [50] };

/** Longer than any storm: an id is done once. */
const WINDOW = '1h';

/** How many ids of the queue with windows are sent at the same time, again and again. */
const IDS = 30;

const FORMS: readonly Form[] = ['exec', 'pipe', 'worker'];

/** The exit statuses allowed under faults: documented ones, SIGKILL, and SIGTERM before it can be handled. */
const EXITS = new Set([0, 1, 69, 75, 137, 143]);

/** How long it may take after the storm until all is done, ms. */
const CALM_MS = 90_000;

/** One look at the limited queue, at one moment of Redis's clock, ms. */
interface Sample {
  readonly now: number;
  /** Leases of consumers that have not expired. */
  readonly live: number;
  readonly delivered: number;
}

/** What a recurring job is, and how its occurrences follow each other. */
const EVERY = [
  { id: 'all', everyMs: 1_000, missed: 'all' },
  { id: 'once', everyMs: 1_000, missed: 'once' },
  { id: 'skip', everyMs: 2_000, missed: 'once', overlap: 'skip' },
] as const;

const FEATURES = ['limited', 'every', 'once'] as const;

/** Queues with limits, recurring jobs and windows, on a Redis of their own, while faults strike. */
export class FeatureStorm {
  readonly #redis: Deployment;
  readonly #random: Random;
  readonly #directory = temporaryDirectory();
  readonly #consumers = new Set<Consumer>();
  readonly #slots: Promise<void>[] = [];
  readonly #bugs: string[] = [];
  readonly #samples: Sample[] = [];
  readonly #growers: Growers;
  readonly #direct: Connection;
  /** The first occurrence of each recurring job, and the first one that no drain has met, ms. */
  readonly #first = new Map<string, number>();
  readonly #next = new Map<string, number>();
  /** The ids that an enqueue with a window has confirmed. */
  readonly #confirmed = new Set<string>();
  readonly struck: Record<string, number> = {};
  /** When a master was replaced: from when on until when it may have lost what it did, ms. */
  readonly #forgot: [number, number][] = [];
  #sent = 0;
  #enqueuing: number | undefined;
  #isStormy = true;
  #isOver = false;
  #runs = 0;

  private constructor(seed: number, redis: Deployment) {
    this.#random = new Random(seed);
    this.#redis = redis;
    this.#direct = new Connection(redis.directUrl);
    this.#growers = new Growers(redis.url, ['once'], this.#errors);
  }

  static async begin(seed: number, redis: Deployment): Promise<FeatureStorm> {
    const storm = new FeatureStorm(seed, redis);
    await storm.#populate();
    return storm;
  }

  get #log(): string {
    return join(this.#directory, 'log');
  }

  get #errors(): string {
    return join(this.#directory, 'errors');
  }

  async #populate(): Promise<void> {
    writeFileSync(this.#log, '');
    writeFileSync(this.#errors, '');
    const operator = new Operator(this.#direct);
    await operator.configure('limited', { ...SETTINGS, ...LIMITS });
    for (const queue of ['every', 'once']) await operator.configure(queue, SETTINGS);
    const recurring = new Recurring(this.#direct);
    for (const { id, everyMs, ...more } of EVERY) {
      const payload = JSON.parse(payloadOf(id, 'ok', 0));
      const { job } = await recurring.put('every', { id, payload, when: `${everyMs / 1_000}s`, ...more });
      this.#first.set(id, job.next as number);
    }
    for (const form of FORMS) for (const queue of FEATURES) this.#slots.push(this.#consume(form, queue));
    this.#slots.push(this.#fill(), this.#sendAgain(), this.#sendAgain(), this.#sendByCommand(), this.#sample());
  }

  /** One consumer after another, as systemd would start them. */
  async #consume(form: Form, queue: string): Promise<void> {
    const random = this.#random.branch();
    while (!this.#isOver) {
      const consumer = new Consumer(form, {
        queue,
        url: this.#redis.url,
        log: this.#log,
        errors: this.#errors,
        label: `${queue}/${form}/${this.#runs++}`,
        flags: random.chance(0.7) ? '--watch' : '',
      });
      this.#consumers.add(consumer);
      const statuses = await consumer.ended;
      this.#consumers.delete(consumer);
      for (const [member, status] of statuses)
        if (!EXITS.has(status) && !(status === 130 && consumer.hurried.has(member)))
          this.#bugs.push(`${consumer.label}: ${member} ended with ${status}`);
      await sleep(random.whole(20, 300));
    }
  }

  /** Keeps jobs waiting in the queue with limits. */
  async #fill(): Promise<void> {
    const client = await this.#redis.client();
    const queue = new Queue(this.#direct, 'limited');
    for (let n = 0; this.#isStormy; ) {
      const waiting = await client.zcard(key('limited', 'pending')).catch(() => 1_000);
      const jobs = Array.from({ length: Math.max(0, 100 - waiting) }, () => {
        const id = `limited-${n++}`;
        return { id, payload: JSON.parse(payloadOf(id, 'ok', 10)) };
      });
      if (jobs.length > 0) await queue.enqueue(jobs).catch(() => {});
      await sleep(50);
    }
  }

  /** The next id to send: one of the last {@link IDS}, or a new one. */
  #anId(random: Random): string {
    if (random.chance(0.1)) this.#sent += 1;
    return `once-${Math.max(0, this.#sent - random.whole(0, IDS))}`;
  }

  async #sendAgain(): Promise<void> {
    const random = this.#random.branch();
    const connection = new Connection(this.#redis.url);
    const queue = new Queue(connection, 'once');
    while (this.#isStormy) {
      const ids = [...new Set(Array.from({ length: random.whole(1, 5) }, () => this.#anId(random)))];
      const jobs = ids.map((id) => ({ id, payload: JSON.parse(payloadOf(id, 'ok', 10)), onceFor: WINDOW }));
      const ifExists = random.chance(0.3) ? 'replace' : 'keep';
      await queue
        .enqueue(jobs, { ifExists })
        .then((all) => all.forEach(({ id }) => void this.#confirmed.add(id)))
        .catch(() => {});
      await sleep(random.whole(0, 30));
    }
    connection.close();
  }

  async #sendByCommand(): Promise<void> {
    const random = this.#random.branch();
    while (this.#isStormy) {
      const id = this.#anId(random);
      const args = ['enqueue', '--id', id, '--once-for', WINDOW, 'once', payloadOf(id, 'ok', 10)];
      const { child, ended } = begin(args, { env: { DELAYQ_REDIS_URL: this.#redis.url }, input: '' });
      this.#enqueuing = child.pid;
      const { code } = await ended;
      this.#enqueuing = undefined;
      if (code === 0) this.#confirmed.add(id);
    }
  }

  /** Looks at the limited queue by Redis's own view, in one script. */
  async #sample(): Promise<void> {
    while (!this.#isOver) {
      const sample = await this.#look().catch(() => undefined);
      if (sample) this.#samples.push(sample);
      await sleep(20);
    }
  }

  async #look(): Promise<Sample> {
    const client = await this.#redis.client();
    const [now = 0, live = 0, delivered = 0] = (await client.eval(
      `local t = redis.call('TIME')
       local now = t[1] * 1000 + math.floor(t[2] / 1000)
       return { now, redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '(inf'),
         tonumber(redis.call('HGET', KEYS[2], 'delivered') or 0) }`,
      ...[2, key('limited', 'active'), key('limited', 'stats')],
    )) as number[];
    return { now, live, delivered };
  }

  #victims(random: Random): Victims {
    return {
      proxies: this.#redis.proxies,
      random,
      consumers: () => [...this.#consumers],
      producers: () => (this.#enqueuing === undefined ? [] : [this.#enqueuing]),
      mayKillReader: () => false,
      disturbed: () => {},
      grow: () => this.#growers.begin(random.branch()),
    };
  }

  /** Lets faults strike until `done`, each at least once: those of Redis one by one, kills and others at the same time. */
  async rage(faults: Readonly<Record<string, number>>, done: () => boolean): Promise<void> {
    const names = Object.keys(faults);
    const ofRedis = names.filter((name) => name in this.#redis.faults);
    const kills = names.filter((name) => name.startsWith('kill ') && !ofRedis.includes(name));
    const others = names.filter((name) => !ofRedis.includes(name) && !kills.includes(name));
    await Promise.all(
      [ofRedis, kills, others].map(async (some) => {
        const random = this.#random.branch();
        const first = random.shuffled(some);
        while (some.length > 0 && (first.length > 0 || !done())) {
          await sleep(random.whole(50, some === ofRedis ? 1_500 : 400));
          const name = first.shift() ?? random.pickByWeight(some, (one) => faults[one] ?? 0);
          const fault = this.#redis.faults[name];
          const from = Date.now();
          const found = fault
            ? await fault.strike(random).then(() => true)
            : await FAULTS[name as FaultName](this.#victims(random));
          if (fault?.forgets) this.#forgot.push([from, Date.now()]);
          if (found) this.struck[name] = (this.struck[name] ?? 0) + 1;
          else if (!this.struck[name]) first.push(name);
        }
      }),
    );
  }

  /** Ends the storm: what is there is handled without faults. Returns figures, and what must not be. */
  async end(): Promise<{ figures: Record<string, unknown>; violations: string[] }> {
    this.#bugs.push(...(await this.#growers.ended(CALM_MS)));
    await this.#throughputComesBack();
    this.#isStormy = false;
    const queues = ['limited', 'once'];
    const waiting = async () => {
      const counts = await Promise.all(queues.map((queue) => this.#waiting(queue)));
      return counts.reduce((sum, n) => sum + n, 0);
    };
    await until(async () => (await waiting()) === 0, CALM_MS).catch(async () => {
      this.#bugs.push(`${await waiting()} jobs are still there although all is calm`);
    });
    await this.#endRecurring();
    await until(async () => (await this.#waiting('every')) === 0, CALM_MS).catch(() => {
      this.#bugs.push('jobs of recurring ones are still there although all is calm');
    });
    this.#isOver = true;
    for (const consumer of this.#consumers) consumer.signal('drain', 'SIGTERM');
    await Promise.race([Promise.all(this.#slots), sleep(10_000)]);
    for (const consumer of this.#consumers) await consumer.kill();
    return this.#judge();
  }

  /** Ends the occurrences, between two of them. */
  async #endRecurring(): Promise<void> {
    const [operator, recurring] = [new Operator(this.#direct), new Recurring(this.#direct)];
    const client = await this.#redis.client();
    const occurs = key('every', 'occurs');
    await operator.pause('every');
    // A drain that was told of an occurrence before still makes its job.
    await sleep(1_000);
    for (const { id } of EVERY) this.#next.set(id, Number(await client.zscore(occurs, id)));
    await recurring.remove(
      'every',
      EVERY.map(({ id }) => id),
    );
    await operator.resume('every');
  }

  async #waiting(queue: string): Promise<number> {
    const client = await this.#redis.client();
    const counts = (await tagsOf(client, queue)).flatMap((tag) =>
      ['pending', 'active'].map((set) => client.zcard(key(tag, set))),
    );
    return (await Promise.all(counts)).reduce((sum, n) => sum + n, 0);
  }

  /** After the last lease of a killed drain has ended, all places are used again, and all tokens. */
  async #throughputComesBack(): Promise<void> {
    const { jobs, perMs } = LIMITS.rate;
    const from = await this.#look();
    const isBack = () => {
      const last = this.#samples.at(-1);
      const before = this.#samples.findLast(({ now }) => last && now <= last.now - 2_000);
      if (!last || !before || before.now < from.now) return false;
      return last.delivered - before.delivered >= (0.8 * ((last.now - before.now) * jobs)) / perMs;
    };
    await until(isBack, 3 * LEASE_MS + 20_000).catch(() => {
      this.#bugs.push('the limited queue does not get back to its rate');
    });
  }

  async #judge(): Promise<{ figures: Record<string, unknown>; violations: string[] }> {
    const { handlings, corrupt } = readLog(readFileSync(this.#log, 'utf8'));
    const traces = readFileSync(this.#errors, 'utf8').match(/^ +at .*/gm) ?? [];
    const violations = [...this.#bugs, ...traces.slice(0, 3), ...this.#beyondLimits()];
    // The payload of a recurring job does not name its occurrence.
    const torn = corrupt.filter((id) => !id.includes('@'));
    if (torn.length > 0) violations.push(`payloads were not whole: ${torn.slice(0, 3)}`);
    const handled = (queue: string) => {
      const ids = new Map<string, number>();
      for (const { id, run } of handlings) if (run.startsWith(`${queue}/`)) ids.set(id, (ids.get(id) ?? 0) + 1);
      return ids;
    };

    const once = await this.#stats('once');
    const onceIds = handled('once');
    // What a new master has forgotten was handled all the same, and what was enqueued may be gone.
    const isExact = this.#forgot.length === 0;
    const differ = (n: number | undefined, handled: number) =>
      n === undefined || (isExact ? n !== handled : n > handled);
    const lost = [...this.#confirmed].filter((id) => isExact && !onceIds.has(id));
    if (lost.length > 0) violations.push(`${lost.length} were confirmed, and never handled: ${lost.slice(0, 3)}`);
    // Each id is made once, and done once, whatever is sent again: its window is longer than the storm.
    if (differ(once.enqueued, onceIds.size)) violations.push(`${onceIds.size} ids were made ${once.enqueued} times`);
    if (once.acked !== once.enqueued) violations.push(`${once.enqueued} ids were done ${once.acked} times`);

    const every = await this.#stats('every');
    const everyIds = handled('every');
    let due = 0;
    for (const { id, missed, everyMs } of EVERY) {
      for (let at = this.#first.get(id) as number; at < (this.#next.get(id) as number); at += everyMs) {
        due += 1;
        const jobId = `${id}@${new Date(at).toISOString().replace('.000', '')}`;
        if (missed === 'all' && !everyIds.has(jobId)) violations.push(`${jobId} was left out`);
      }
    }
    const made = every.enqueued ?? 0;
    if (differ(made, everyIds.size)) violations.push(`${everyIds.size} occurrences made ${made} jobs`);
    if (every.acked !== made) violations.push(`of ${made} jobs of occurrences ${every.acked} were done`);
    if (made + (every.skipped ?? 0) !== due)
      violations.push(`${due} occurrences: ${made} made jobs, ${every.skipped ?? 0} did not`);
    const [begin, end] = [this.#samples[0], this.#samples.at(-1)];
    return {
      figures: {
        'limited: taken': end?.delivered,
        'limited: taken a second': Math.round(
          (1_000 * ((end?.delivered ?? 0) - (begin?.delivered ?? 0))) / ((end?.now ?? 0) - (begin?.now ?? 0)),
        ),
        'limited: most live leases': Math.max(...this.#samples.map(({ live }) => live)),
        'limited: looks': this.#samples.length,
        'once: ids': onceIds.size,
        'once: kept': once.kept,
        'once: replaced': once.replaced,
        'once: leases lost': once.lost,
        'every: jobs made': made,
        'every: skipped': every.skipped,
        'every: leases lost': every.lost,
        struck: this.struck,
      },
      violations,
    };
  }

  async #stats(queue: string): Promise<Record<string, number>> {
    const client = await this.#redis.client();
    const sum: Record<string, number> = {};
    for (const tag of await tagsOf(client, queue))
      for (const [name, n] of Object.entries(await client.hgetall(key(tag, 'stats'))))
        if (Number.isFinite(Number(n))) sum[name] = (sum[name] ?? 0) + Number(n);
    return sum;
  }

  /** Looks that show more live leases than allowed, or more jobs taken between two than there can have been tokens. */
  #beyondLimits(): string[] {
    const { rate, burst, maxActive } = LIMITS;
    const crowded: string[] = [];
    const fast: string[] = [];
    // Taken beyond what the rate gives since the first look; between two looks it may grow by the burst only.
    let least = Number.POSITIVE_INFINITY;
    for (const { now, live, delivered } of this.#samples) {
      if (this.#forgot.some(([from, until]) => now >= from && now <= until)) {
        least = Number.POSITIVE_INFINITY;
        continue;
      }
      if (live > maxActive) crowded.push(`${live} leases were live at ${now}, and ${maxActive} are allowed`);
      const beyond = delivered - (now * rate.jobs) / rate.perMs;
      if (beyond - least > burst + 1e-3) fast.push(`at ${now}, ${beyond - least} jobs were taken beyond the rate`);
      least = Math.min(least, beyond);
    }
    const isFull = this.#samples.some(({ live }) => live === maxActive);
    return [...crowded.slice(0, 3), ...fast.slice(0, 3), ...(isFull ? [] : ['the places were never all taken'])];
  }

  async stop(): Promise<void> {
    this.#isStormy = false;
    this.#isOver = true;
    for (const consumer of this.#consumers) await consumer.kill();
    this.#direct.close();
    await this.#redis.stop();
  }
}
