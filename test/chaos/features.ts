import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Operator, Queue, Recurring } from '../../src/index.js';
import { begin } from '../support/cli.js';
import { tagsOf } from '../support/partitions.js';
import { key } from '../support/redis.js';
import { until, within } from '../support/until.js';
import type { Form } from './consumers.js';
import type { Deployment } from './deployments.js';
import { judge, storedOf, TELLING } from './events.js';
import { readLog } from './ledger.js';
import { payloadOf } from './producers.js';
import type { Random } from './random.js';
import { LOOK_MS, Stage } from './stage.js';

/** How many tokens there are, how fast they come back, and how many jobs may be active. A slow machine reaches them. */
const LIMITS = { rate: { jobs: 10, perMs: 1_000 }, burst: 5, maxActive: 4 };

const LEASE_MS = 2_000;
const SETTINGS = { lease: LEASE_MS, tries: 100_000, maxLost: 100_000, backoff: [50] };

/** Longer than any storm: an id is done once. */
const WINDOW = '1h';

/** How many ids of the queue with windows are sent at the same time, again and again. */
const IDS = 30;

const FORMS: readonly Form[] = ['exec', 'pipe', 'worker'];

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
export class FeatureStorm extends Stage {
  readonly #sending: Promise<void>[] = [];
  readonly #samples: Sample[] = [];
  readonly #direct: Connection;
  /** The first occurrence of each recurring job, and the first one that no drain has met, ms. */
  readonly #first = new Map<string, number>();
  readonly #next = new Map<string, number>();
  /** The ids that an enqueue with a window has confirmed. */
  readonly #confirmed = new Set<string>();
  #sent = 0;
  #enqueuing: number | undefined;
  #isStormy = true;

  private constructor(seed: number, redis: Deployment) {
    super({ seed, redis, queues: ['once'] });
    this.#direct = new Connection(redis.directUrl);
  }

  static async begin(seed: number, redis: Deployment): Promise<FeatureStorm> {
    const storm = new FeatureStorm(seed, redis);
    return storm.begun(storm.#populate());
  }

  async #populate(): Promise<void> {
    const operator = new Operator(this.#direct);
    await operator.configure('limited', { ...SETTINGS, ...LIMITS, ...TELLING });
    // Without results, a job that is done takes another way.
    await operator.configure('every', { ...SETTINGS, events: TELLING.events });
    await operator.configure('once', { ...SETTINGS, ...TELLING });
    const recurring = new Recurring(this.#direct);
    for (const { id, everyMs, ...more } of EVERY) {
      const payload = JSON.parse(payloadOf(id, 'ok', 0));
      const { job } = await recurring.put('every', { id, payload, when: `${everyMs / 1_000}s`, ...more });
      this.#first.set(id, job.next as number);
    }
    for (const form of FORMS)
      for (const queue of FEATURES) {
        const random = this.random.branch();
        this.consume(form, queue, () => ({ flags: random.chance(0.7) ? '--watch' : '' }));
      }
    this.#sending.push(this.#fill(), this.#sendAgain(), this.#sendAgain(), this.#sendByCommand());
    void this.#sample();
  }

  /** Keeps jobs waiting in the queue with limits. */
  async #fill(): Promise<void> {
    const client = await this.redis.client();
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
    const random = this.random.branch();
    const connection = new Connection(this.redis.url);
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
    const random = this.random.branch();
    while (this.#isStormy) {
      const id = this.#anId(random);
      const args = ['enqueue', '--id', id, '--once-for', WINDOW, 'once', payloadOf(id, 'ok', 10)];
      const { child, ended } = begin(args, { env: { DELAYQ_REDIS_URL: this.redis.url }, input: '' });
      this.#enqueuing = child.pid;
      const { code } = await ended;
      this.#enqueuing = undefined;
      if (code === 0) this.#confirmed.add(id);
    }
  }

  /** Looks at the limited queue by Redis's own view, in one script. */
  async #sample(): Promise<void> {
    while (!this.isOver) {
      const sample = await this.#look().catch(() => undefined);
      if (sample) this.#samples.push(sample);
      await sleep(20);
    }
  }

  async #look(): Promise<Sample> {
    const client = await this.redis.client();
    const [now = 0, live = 0, delivered = 0] = (await client.eval(
      `local t = redis.call('TIME')
       local now = t[1] * 1000 + math.floor(t[2] / 1000)
       return { now, redis.call('ZCOUNT', KEYS[1], '(' .. string.format('%.0f', now), '(inf'),
         tonumber(redis.call('HGET', KEYS[2], 'delivered') or 0) }`,
      ...[2, key('limited', 'active'), key('limited', 'stats')],
    )) as number[];
    return { now, live, delivered };
  }

  protected get producers(): number[] {
    return this.#enqueuing === undefined ? [] : [this.#enqueuing];
  }

  protected producersEnd(): Promise<unknown> {
    this.#isStormy = false;
    return within(LOOK_MS, 'what was sent', Promise.all(this.#sending));
  }

  /** Lets faults strike until `done`, each at least once. */
  rage(faults: Readonly<Record<string, number>>, done: () => boolean): Promise<void> {
    return this.rageWith(faults, { redis: 1_500, others: 400 }, done);
  }

  /** Ends the storm: what is there is handled without faults. Returns figures, and what must not be. */
  async end(): Promise<{ figures: Record<string, unknown>; violations: string[] }> {
    await this.growersEnd();
    await this.#throughputComesBack();
    await this.producersEnd();
    await this.allDone(['limited', 'once']);
    await within(LOOK_MS, 'the end of the occurrences', this.#endRecurring());
    await this.allDone(['every']);
    await this.consumersEnd();
    return within(LOOK_MS, 'the balance of the books', this.#judge());
  }

  /** Ends the occurrences, between two of them. */
  async #endRecurring(): Promise<void> {
    const [operator, recurring] = [new Operator(this.#direct), new Recurring(this.#direct)];
    const client = await this.redis.client();
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
    await until(isBack, 3 * LEASE_MS + 60_000).catch(() => {
      this.bugs.push('the limited queue does not get back to its rate');
    });
  }

  async #judge(): Promise<{ figures: Record<string, unknown>; violations: string[] }> {
    const log = readLog(readFileSync(this.log, 'utf8'));
    const { handlings, corrupt } = log;
    const violations = [...this.bugs, ...this.tracesIn(), ...this.#beyondLimits()];
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
    const isExact = this.forgot.length === 0;
    const differ = (n: number | undefined, handled: number) =>
      n === undefined || (isExact ? n !== handled : n > handled);
    const lost = [...this.#confirmed].filter((id) => isExact && !onceIds.has(id));
    if (lost.length > 0) violations.push(`${lost.length} were confirmed, and never handled: ${lost.slice(0, 3)}`);
    // Each id is made once, and done once, whatever is sent again: its window is longer than the storm.
    if (differ(once.enqueued, onceIds.size)) violations.push(`${onceIds.size} ids were made ${once.enqueued} times`);
    if (once.acked !== once.enqueued) violations.push(`${once.enqueued} ids were done ${once.acked} times`);

    const client = await this.redis.client();
    let events = 0;
    for (const queue of FEATURES) {
      const confirmed = queue === 'once' && isExact ? [...this.#confirmed] : [];
      const mayForget = (at: number) => this.forgot.some(([from, until]) => at > from && at <= until);
      const judged = judge(queue, await storedOf(client, queue), { confirmed, log, mayForget });
      violations.push(...judged.violations);
      events += judged.figures.events;
    }

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
        events,
        struck: this.struck,
      },
      violations,
    };
  }

  async #stats(queue: string): Promise<Record<string, number>> {
    const client = await this.redis.client();
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
      if (this.forgot.some(([from, until]) => now >= from && now <= until)) {
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

  override async stop(): Promise<void> {
    await super.stop();
    this.#direct.close();
  }
}
