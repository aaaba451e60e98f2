import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, type DelayqError, Inspector, Operator, Queue, Spread } from '../../src/index.js';
import { cronEnv } from '../support/cli.js';
import { Seen } from '../support/load.js';
import { within } from '../support/until.js';
import { send } from './consumers.js';
import { type Histories, now, type Recorded } from './histories.js';
import type { Act } from './history.js';
import { payloadOf } from './producers.js';
import type { Random } from './random.js';

/** Everybody who calls a queue by the same few ids. */
export interface Calling {
  readonly url: string;
  readonly queue: string;
  readonly ids: readonly string[];
  readonly histories: Histories;
  readonly random: Random;
  /** How many replicas must have a job before it is confirmed. */
  readonly replicas?: number | undefined;
  /** The longest pause between two calls of each, ms. */
  readonly pauseMs?: number;
}

const WAITING = ['pending', 'dead'] as const;
const ANY = ['pending', 'active', 'dead'] as const;

/** How often each call is made, as weights. */
const CALLS = { keep: 6, replace: 5, cancel: 2, reschedule: 2, bury: 2, requeue: 3, show: 4, edit: 3 };
type ById = keyof typeof CALLS;

export abstract class Calls {
  protected readonly how: Calling;
  protected readonly redis: Connection;
  protected readonly queue: Queue;
  protected over = false;
  readonly seen = new Seen();
  #ended: Promise<void> | undefined;

  constructor(how: Calling) {
    this.how = how;
    this.redis = new Connection(how.url);
    this.queue = new Queue(this.redis, how.queue);
  }

  begin(): this {
    this.#ended = this.run();
    return this;
  }

  async stop(): Promise<void> {
    this.over = true;
    await within(90_000, `the last call of a ${this.constructor.name}`, this.#ended);
    this.redis.close();
  }

  protected abstract run(): Promise<void>;

  /** Calls, and records for each id what was answered, or that it is unknown. Undefined if there was no answer. */
  protected async call<A extends string>(
    act: Act,
    ids: readonly string[],
    ask: () => Promise<readonly (A | Partial<Recorded>)[]>,
    more: (i: number) => Partial<Recorded> = () => ({}),
  ): Promise<void> {
    const from = now();
    try {
      const answers = await ask();
      const to = now();
      this.seen.succeeded();
      for (const [i, id] of ids.entries()) {
        const answer = answers[i] as A | Partial<Recorded>;
        this.how.histories.record(id, {
          act,
          from,
          to,
          ...more(i),
          ...(typeof answer === 'string' ? { answer } : answer),
        });
      }
    } catch (error) {
      this.seen.failed(error);
      // A refused call about one id has done nothing. Of several, some may have been done.
      const isRefused = ids.length === 1 && (error as DelayqError).code !== 'unknown';
      const isLook = act === 'show' || act === 'renew';
      if (!isRefused && !isLook)
        for (const [i, id] of ids.entries())
          this.how.histories.record(id, { act, from, to: Number.POSITIVE_INFINITY, ...more(i) });
      await sleep(50);
    }
  }
}

/** Calls by id with the library, one after the other: each about one id or a few. */
export class Caller extends Calls {
  readonly #operator = new Operator(this.redis);
  readonly #inspector = new Inspector(this.redis);

  protected async run(): Promise<void> {
    const { random, ids, pauseMs = 5 } = this.how;
    while (!this.over) {
      const some = random.chance(0.7) ? [random.pick(ids)] : random.shuffled(ids).slice(0, random.whole(2, 5));
      await this.callBy(
        random.pickByWeight(Object.keys(CALLS) as ById[], (act) => CALLS[act]),
        some,
      );
      await sleep(random.whole(0, pauseMs));
    }
  }

  /** Looks at all ids. */
  async showAll(): Promise<void> {
    for (const id of this.how.ids) await this.callBy('show', [id]);
  }

  protected async callBy(act: ById, ids: readonly string[]): Promise<void> {
    const { random, queue, replicas, histories } = this.how;
    if (act === 'keep' || act === 'replace') {
      const versions = ids.map(() => histories.version);
      const jobs = ids.map((id, i) => {
        const payload = JSON.parse(payloadOf(id, 'ok', random.whole(0, 100), versions[i]));
        return { id, payload, in: random.chance(0.7) ? random.whole(0, 100) : random.whole(500, 2_000) };
      });
      const ask = () => this.queue.enqueue(jobs, { ifExists: act, replicas });
      return this.call(
        act,
        ids,
        async () => (await ask()).map(({ outcome }) => outcome),
        (i) => ({ version: versions[i], replicated: replicas !== undefined }),
      );
    }
    if (act === 'cancel') {
      const states = random.pick([WAITING, ANY]);
      return this.call(
        act,
        ids,
        () => this.#operator.cancel(queue, ids, states),
        () => ({ states }),
      );
    }
    if (act === 'edit') {
      const { version } = histories;
      const [id] = ids as [string];
      const payload = JSON.parse(payloadOf(id, 'ok', random.whole(0, 100), version));
      const ask = async () => [await this.#operator.edit(queue, id, () => payload)];
      return this.call(act, [id], ask, () => ({ version }));
    }
    if (act === 'show') {
      return this.call(act, ids, async () => {
        const jobs = await this.#inspector.show(queue, ids);
        return jobs.map((job) => (job ? { answer: job.state, version: versionOf(job.payload) } : 'missing'));
      });
    }
    const inMs = random.whole(0, 300);
    const spread = () => new Spread({ in: inMs, stepMs: 1 });
    if (act === 'bury') return this.call(act, ids, () => this.#operator.bury(queue, ids));
    if (act === 'requeue') return this.call(act, ids, () => this.#operator.requeue(queue, ids, spread()));
    return this.call(act, ids, () => this.#operator.reschedule(queue, ids, spread()));
  }
}

export const versionOf = (payload: Uint8Array | undefined) =>
  payload && (JSON.parse(Buffer.from(payload).toString()) as { version: number }).version;

/** Calls by id with the command line, a process for each call. Some are killed, and some sleep for a while. */
export class Commander extends Calls {
  killed = 0;
  slept = 0;
  #errors: string;

  constructor(how: Calling, errors: string) {
    super(how);
    this.#errors = errors;
  }

  protected async run(): Promise<void> {
    const { random, ids, queue, replicas, histories } = this.how;
    while (!this.over) {
      const id = random.pick(ids);
      // An edit needs an editor, and prints no JSON.
      const act = random.pickByWeight(Object.keys(CALLS) as ById[], (one) => (one === 'edit' ? 0 : CALLS[one]));
      const version = histories.version;
      const enqueue = ['enqueue', '--json', '--if-exists', act, '--in', `${random.whole(0, 500)}ms`, '--id', id];
      if (replicas !== undefined) enqueue.push('--replicas', String(replicas));
      const isEnqueue = act === 'keep' || act === 'replace';
      const args = isEnqueue
        ? [...enqueue, queue, payloadOf(id, 'ok', 10, version)]
        : [act, '--json', ...(act === 'reschedule' ? ['--in', '100ms'] : []), queue, id];
      const from = now();
      const child = spawn('delayq', args, {
        env: cronEnv({ DELAYQ_REDIS_URL: this.how.url }),
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      child.stderr.on('data', (data) => appendFileSync(this.#errors, data));
      let text = '';
      child.stdout.on('data', (data) => {
        text += data;
      });
      await Promise.all([once(child, 'close'), this.#disturb(child)]);
      const answer = this.#answerOf(act, child.exitCode === 0 || child.exitCode === 1 ? text : '');
      const common = {
        act,
        from,
        version: isEnqueue ? version : undefined,
        states: act === 'cancel' ? ANY : undefined,
      };
      const replicated = isEnqueue && replicas !== undefined;
      if (answer) histories.record(id, { ...common, to: now(), replicated, ...answer });
      else if (act !== 'show') histories.record(id, { ...common, to: Number.POSITIVE_INFINITY });
    }
  }

  /** What a command printed: the outcome of an enqueue, the one count that is not zero, or a job. */
  #answerOf(act: ById, text: string): Partial<Recorded> | undefined {
    if (text === '') return act === 'show' ? undefined : undefined;
    const { outcome, state, payload, schema, queue, ...counts } = JSON.parse(text);
    if (outcome) return { answer: outcome };
    // What is kept of a job that is done is no job.
    if (state === 'done') return { answer: 'missing' };
    if (state) return { answer: state, version: payload.version };
    const [answer] = Object.entries(counts).find(([, n]) => n === 1) ?? [];
    return answer === undefined ? undefined : { answer };
  }

  async #disturb(child: ChildProcess): Promise<void> {
    const { random } = this.how;
    if (random.chance(0.4)) return;
    // About the time that a start takes.
    await sleep(random.whole(80, 400));
    if (child.exitCode !== null || child.signalCode !== null) return;
    if (random.chance(0.5)) {
      this.killed += 1;
      child.kill('SIGKILL');
    } else {
      this.slept += 1;
      child.kill('SIGSTOP');
      await sleep(random.whole(100, 3_000));
      send(child.pid as number, 'SIGCONT');
    }
  }
}
