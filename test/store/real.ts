import { setImmediate } from 'node:timers/promises';
import { Transfer } from '../../src/admin/transfer.js';
import { Connection, Inspector, JsonText, Operator, Queue } from '../../src/index.js';
import { type Arg, type Caller, Encoded, type Reply } from '../../src/net/call.js';
import { ask, lettersOf } from '../../src/store/answers.js';
import * as edits from '../../src/store/edit.js';
import { grow } from '../../src/store/grow.js';
import * as looks from '../../src/store/inspect.js';
import * as scripts from '../../src/store/jobs.js';
import { queueKeys } from '../../src/store/keys.js';
import { PartitionMap } from '../../src/store/map.js';
import { restoreInto } from '../../src/store/restore.js';
import { nameOf } from '../../src/store/script.js';
import { ACK, NACK } from '../../src/store/settle.js';
import { Store } from '../../src/store/store.js';
import { tagFor } from '../../src/store/tags.js';
import * as transfers from '../../src/store/transfer.js';
import { admin, connection, freshName, key, redisUrl } from '../support/redis.js';
import type { Job, Op } from './one-id.js';
import type { Level, Partition } from './world.js';

/*
 * The code and the scripts, step by step: every call that a client or a grower makes waits until it is its turn. What the
 * model calls a partition are the keys of one.
 */

/** The partitions of the model, by their numbers in a queue; how many the queue has, and how many it grows to. */
interface Layout {
  readonly parts: readonly number[];
  readonly from: number;
  readonly to: number;
}
const PLAIN: Layout = { parts: [0, 1], from: 1, to: 2 };
const APART: Layout = { parts: [0, 1, 3], from: 3, to: 4 };

/** An id that the growth moves from `p` to `q`. */
function moverOf({ parts, from, to }: Layout): string {
  const map = new PartitionMap(to, from, Array.from({ length: to }, String));
  for (let n = 0; ; n++) {
    const id = `o${n}`;
    if (map.formerOf(id) === parts.at(-2) && map.ownerOf(id) === parts.at(-1)) return id;
  }
}
const MOVERS = new Map([PLAIN, APART].map((layout) => [layout, moverOf(layout)]));

/** What a call does that waits for its turn, and in which partition of the model. */
interface Parked {
  readonly label: string;
  readonly part: number;
  readonly go: () => void;
}

const payloadOf = (version: string) => JSON.stringify(version);
const wordOfPayload = (payload: string) => JSON.parse(payload) as string;

/** A queue on Redis whose partitions are what those of a world are. */
export class RealQueue {
  readonly name = freshName();
  readonly layout: Layout;
  readonly id: string;
  readonly #tags: readonly string[];
  /** What the model calls words that were made here. */
  readonly #names = new Map<string, string>();

  constructor(apart: boolean) {
    this.layout = apart ? APART : PLAIN;
    this.id = MOVERS.get(this.layout) as string;
    this.#tags = Array.from({ length: this.layout.to }, (_, i) => (i === 0 ? this.name : tagFor(this.name, i)));
  }

  /** The partition of the model whose key this is; -1: none of them. */
  partOf(text: string): number {
    const tag = /\{(.*?)\}/.exec(text)?.[1] ?? '';
    return this.layout.parts.indexOf(this.#tags.indexOf(tag));
  }

  #layoutAt(i: number, level: Level): string | undefined {
    const { from, to } = this.layout;
    if (level === 0 && i >= from) return undefined;
    if (level === 0) return from === 1 ? undefined : `1 ${i}/${from}`;
    return `1 ${i}/${to}${level === 1 ? ` from ${from}` : ''}`;
  }

  keys(part: number, { level }: Pick<Partition, 'level'>) {
    const i = this.layout.parts[part] as number;
    return queueKeys('delayq', this.#tags[i] as string, this.#layoutAt(i, level));
  }

  /** Writes the keys of all partitions. */
  async write(parts: readonly Partition[]): Promise<void> {
    const pipeline = admin.pipeline();
    const { id, layout } = this;
    const now = Date.now();
    const put = (i: number, { level, job, marks, done, returned }: Partition) => {
      const name = (what: string) => key(this.#tags[i] as string, what);
      const own = this.#layoutAt(i, level);
      const tags = this.#tags.slice(1, level === 0 ? layout.from : layout.to).join(' ');
      if (own !== undefined) pipeline.hset(name('config'), 'layout', own, 'partitions', tags);
      if (done !== null)
        pipeline.hset(name('config'), 'layout', `${own ?? '1 0/1'} uses windows`, 'onceFor', '1000000');
      if (returned > 0) pipeline.hset(name('config'), 'returned', returned);
      for (const word of marks) pipeline.hset(name('lease'), `${word} ${id}`, now);
      if (done) pipeline.zadd(name('done'), now + 1_000_000, id);
      if (!job) return;
      const { set, lease, version } = job;
      const end = lease && (lease.by === 'consumer' ? now + 1_000_000 : 'inf');
      pipeline.zadd(name(set), end ?? now - 1_000, id);
      pipeline.hset(name('payload'), id, payloadOf(version));
      if (lease) pipeline.hset(name('lease'), id, this.#leaseOf(lease, now));
    };
    for (const [part, state] of parts.entries()) put(layout.parts[part] as number, state);
    const old = {
      level: 0,
      job: null,
      marks: [],
      done: parts[0]?.done === null ? null : false,
      returned: 0,
      era: 0,
    } as const;
    for (let i = 0; i < layout.from; i++) if (!layout.parts.includes(i)) put(i, { ...old, marks: [] });
    await pipeline.exec();
  }

  #leaseOf({ receipt, by, token, was }: NonNullable<Job['lease']>, now: number): string {
    if (by === 'consumer') return `${receipt} ${now - 1_000} ${now} W`;
    const to = by === 'move' ? `${this.name}-o` : `${this.name}/${this.layout.parts.at(-1)}`;
    return `${receipt} ${now - 1_000} ${now} move:${to} ${was === 'dead' ? 'd' : 'p'} ${token}`;
  }

  /** What the keys of each partition say, in the words of the model: they are given in `expected`. */
  async read(expected: readonly Partition[]): Promise<Partition[]> {
    const keys = expected.flatMap((_, part) => {
      const tag = this.#tags[this.layout.parts[part] as number] as string;
      return ['pending', 'active', 'dead', 'payload', 'lease', 'config', 'done'].map((name) => key(tag, name));
    });
    const found = (await admin.eval(LOOK, keys.length, ...keys, this.id)) as Found[];
    return found.map((one, part) => this.#stateOf(one, expected[part] as Partition));
  }

  #stateOf([pending, active, dead, payload, lease, config, done]: Found, expected: Partition): Partition {
    const leases = new Map(pairsOf(lease));
    const fields = new Map(pairsOf(config));
    const sets = Object.entries({ pending, active, dead }).filter(([, score]) => score !== null);
    const problem = sets.length > 1 || (sets.length === 1) !== (payload !== null) ? ' torn' : '';
    const [set] = sets[0] ?? [];
    const held = leases.get(this.id);
    let job: Job | null = null;
    if (set !== undefined || problem !== '') {
      const version = `${payload === null ? '' : wordOfPayload(payload)}${problem}`;
      job = {
        set: set as Job['set'],
        version,
        ...(held !== undefined && { lease: this.#leaseIn(held, expected.job?.lease) }),
      };
    }
    const marks = [...leases.keys()].filter((field) => field !== this.id).map((field) => field.split(' ')[0] as string);
    const layout = fields.get('layout') ?? '1 0/1';
    const count = Number(/\/(\d+)/.exec(layout)?.[1] ?? 1);
    const level = count < this.layout.to ? 0 : layout.includes('from') ? 1 : 2;
    return {
      job,
      marks: marks.map((word) => this.#names.get(word) ?? word).sort(),
      returned: Number(fields.get('returned') ?? 0),
      done: expected.done === null && done === null ? null : done !== null,
      level,
      era: expected.era,
    };
  }

  #leaseIn(text: string, expected: Job['lease']): NonNullable<Job['lease']> {
    const [word = ''] = text.split(' ');
    const [, to, state, tokenWord = ''] = / move:(\S+) ([pd]) (\S+)$/.exec(text) ?? [];
    const receipt = this.#named(word, expected?.receipt);
    if (to === undefined) return { receipt, by: 'consumer' };
    const token = this.#named(tokenWord, expected?.token);
    return { receipt, by: to.includes('/') ? 'transfer' : 'move', token, was: state === 'd' ? 'dead' : 'pending' };
  }

  /** A word that was made here is what the model calls it when it first appears. */
  #named(word: string, expected: string | undefined): string {
    if (!/^[A-Z]/.test(word) || word.length > 8) {
      if (!this.#names.has(word) && expected !== undefined) this.#names.set(word, expected);
      return this.#names.get(word) ?? word;
    }
    return word;
  }

  /** Runs one script. */
  async script(part: number, state: Partition, op: Op): Promise<string> {
    const keys = this.keys(part, state);
    const id = Buffer.from(this.id);
    switch (op.do) {
      case 'hold': {
        const by = op.by === 'move' ? `move:${this.name}-o` : `move:${this.name}/${this.layout.parts.at(-1)}`;
        const how = { states: ['pending', 'dead'] as const, receipt: op.receipt, by };
        const [held] = (await transfers.hold(connection, keys, [this.id], how)).holds;
        return typeof held === 'string' ? held : 'held';
      }
      case 'restore': {
        const payload = Buffer.from(payloadOf(op.version));
        const parcel = { id, state: op.set, score: '1', record: undefined, payload, token: op.token };
        return (await transfers.restore(connection, keys, [parcel], 'transferred'))[0] as string;
      }
      case 'finish':
        return (
          await transfers.endHolds(connection, keys, [{ id, moved: op.how === 'moved' }], op.receipt)
        )[0] as string;
      case 'forget':
        await transfers.forgetTokens(connection, keys, [{ id, token: op.token }]);
        return 'forgotten';
      case 'keep':
      case 'replace': {
        const job = { id: this.id, ours: false, json: payloadOf(op.version), in: 0, at: undefined, record: '' };
        // Where it belonged before a growth.
        const isOld = op.do === 'replace' && state.level === 1 && part === this.layout.parts.length - 2;
        const put = isOld
          ? scripts.replaceActive(connection, keys, [job])
          : scripts.enqueue(connection, keys, [job], op.do);
        return (await put).outcomes[0] ?? 'none';
      }
      case 'cancel': {
        const cancelled = ask(connection, keys, edits.CANCEL, [lettersOf(op.states), this.id]).then(
          ({ answers }) => answers[0] as string,
        );
        return cancelled.catch((error: { why?: string }) =>
          /GROWING/.test(error.why ?? '') ? 'refused' : String(error),
        );
      }
      case 'requeue': {
        const [answer] = (await ask(connection, keys, edits.REQUEUE, ['+0', 0, '', '', '', this.id])).answers;
        return answer === 'missing' ? 'not dead' : (answer as string);
      }
      case 'bury':
        return (await ask(connection, keys, edits.BURY, ['', this.id])).answers[0] as string;
      case 'show': {
        const [job] = await looks.showIn(connection, keys, [this.id]);
        return job ? `${job.state} ${wordOfPayload(String(job.payload))}` : 'missing';
      }
      default:
        return this.consume(part, state, op);
    }
  }

  /** What a consumer does: one script. */
  async consume(part: number, state: Partition, op: Op): Promise<string> {
    const keys = this.keys(part, state);
    const { id } = this;
    switch (op.do) {
      case 'take': {
        const args = { limit: 1, leaseMs: 1_000_000, receipt: op.receipt, by: 'W', cutoff: undefined, occurs: false };
        const { jobs } = (await scripts.drain(connection, keys, args)) as scripts.Drained;
        return jobs[0] ? `took ${wordOfPayload(String(jobs[0].payload))}` : 'none';
      }
      case 'expire': {
        await admin.zadd(keys.active, 1, id);
        const args = { limit: 1, leaseMs: undefined, receipt: '-', by: 'W', cutoff: 0, occurs: false };
        const { lost } = (await scripts.drain(connection, keys, args)) as scripts.Drained;
        return lost === 1 ? 'expired' : 'none';
      }
      case 'ack':
        return (await ask(connection, keys, ACK, [id, op.receipt])).answers[0] as string;
      case 'retry':
      case 'refuse': {
        const mode = op.do === 'retry' ? 'retry' : 'dead';
        const { answers } = await ask(connection, keys, NACK, [mode, '0', 0, id, op.receipt, '', '', '']);
        const answer = answers[0] as string;
        return answer === (op.do === 'retry' ? 'pending' : 'dead') ? 'held' : answer;
      }
    }
    throw new Error(`consumers do not ${op.do}`);
  }
}

type Found = [string | null, string | null, string | null, string | null, string[], string[], string | null];
const pairsOf = (list: readonly string[]) =>
  Array.from({ length: list.length / 2 }, (_, n) => [list[2 * n], list[2 * n + 1]] as [string, string]);

const LOOK = `
  local id, found = ARGV[1], {}
  for i = 1, #KEYS, 7 do
    found[#found + 1] = {
      redis.call('ZSCORE', KEYS[i], id), redis.call('ZSCORE', KEYS[i + 1], id), redis.call('ZSCORE', KEYS[i + 2], id),
      redis.call('HGET', KEYS[i + 3], id), redis.call('HGETALL', KEYS[i + 4]), redis.call('HGETALL', KEYS[i + 5]),
      redis.call('ZSCORE', KEYS[i + 6], id),
    }
  end
  return found`;

/** A connection whose calls wait for their turn. */
export class SteppedConnection extends Connection {
  /** Called before each call, with a pin if it is on one connection, on which WAIT covers it. Returns what ends it. */
  before: (command: string, args: readonly Arg[], pin?: Pin) => Promise<() => void> = async () => () => {};

  constructor() {
    super(redisUrl);
  }

  override async call(command: string, ...args: Arg[]): Promise<Reply> {
    const ended = await this.before(command, args);
    try {
      return await super.call(command, ...args);
    } finally {
      ended();
    }
  }

  override pinned<T>(name: string, act: (caller: Caller) => Promise<T>): Promise<T> {
    return super.pinned(name, (caller) => {
      const pin: Pin = { name, wrote: false };
      const call = async (command: string, ...args: Arg[]) => {
        const ended = await this.before(command, args, pin);
        try {
          return await caller.call(command, ...args);
        } finally {
          ended();
        }
      };
      return act({ address: caller.address, sharded: caller.sharded ?? false, call });
    });
  }
}

/** One pinned connection: of which key, and whether something was written there. */
interface Pin {
  readonly name: string;
  wrote: boolean;
}

/** A client or a grower. */
export class RealActor {
  readonly #queue: RealQueue;
  readonly #redis: SteppedConnection;
  /** Forgotten if nobody uses it. */
  readonly #store: Store;
  readonly #isGrower: boolean;
  readonly #transfers = new Set<string>();
  #parked: Parked[] = [];
  #inFlight = 0;
  #changed: () => void = () => {};
  #running = false;
  /** What the last operation returned, or threw. */
  result: string | undefined;
  error: unknown;
  /** The partition whose replicas were waited for since the last call that had its turn. */
  waited: number | undefined;
  /** Where the model is: the grower's reads of layouts are a step there only at times. */
  at = '';

  constructor(queue: RealQueue, redis: SteppedConnection, isGrower: boolean) {
    this.#queue = queue;
    this.#redis = redis;
    this.#store = Store.of(redis, 'delayq', queue.name);
    this.#isGrower = isGrower;
    redis.before = (command, args, pin) => this.#turn(command, args, pin);
  }

  get isRunning(): boolean {
    return this.#running;
  }

  /** Growers of earlier walks may still use the connection: so what ends a call belongs to whose turn it was. */
  async #turn(command: string, args: readonly Arg[], pin: Pin | undefined): Promise<() => void> {
    const named = this.#labelOf(command, args);
    if (command === 'ROLE' && pin?.wrote && this.#queue.partOf(pin.name) >= 0)
      this.waited = this.#queue.partOf(pin.name);
    if (named && pin) pin.wrote = true;
    if (named) {
      await new Promise<void>((go) => {
        this.#parked.push({ ...named, go });
        this.#changed();
      });
    }
    this.#inFlight += 1;
    return () => {
      this.#inFlight -= 1;
      this.#changed();
    };
  }

  /** What a call does, in the words of the model; undefined: it need not wait for its turn. */
  #labelOf(command: string, args: readonly Arg[]): { label: string; part: number } | undefined {
    const isScript = command === 'EVALSHA';
    const first = isScript ? args[2] : args[0];
    const part = this.#queue.partOf(first instanceof Encoded ? first.first : String(first));
    if (part < 0) return undefined;
    const label = isScript
      ? this.#scriptLabel(String(args[0]), args.slice(3).map(String), part)
      : this.#label(command, args.map(String));
    return label === undefined ? undefined : { label, part };
  }

  #scriptLabel(sha: string, args: readonly string[], part: number): string | undefined {
    const script = nameOf(sha);
    switch (script) {
      case 'transfer/hold':
        if (!args[2]?.includes('/')) return 'act';
        this.#transfers.add(args[1] as string);
        return 'hold';
      case 'transfer/restore':
        return args.at(-2) === 'transferred' ? 'restore' : 'act';
      case 'transfer/end':
        if (!this.#transfers.has(args[1] as string)) return 'act';
        return args[2] === 'm' ? 'finish' : 'put back';
      case 'transfer/remember':
        return 'remember';
      case 'transfer/advance':
        // Of partition 0, which is swept as well.
        return args.at(-1) !== `${args[0]} *` || part === this.#queue.layout.parts.length - 2 ? 'advance' : undefined;
      // A growth takes back leases only, as any consumer does, and none expires but by a step of the model.
      case 'jobs/drain':
      case 'edit/settings':
        return undefined;
      default:
        return 'act';
    }
  }

  #label(command: string, [name = '', field = '']: readonly string[]): string | undefined {
    const what = name.split(':').at(-1) as string;
    const isSwept = this.#queue.partOf(name) === this.#queue.layout.parts.length - 2;
    if (command === 'HMGET' && field === 'layout') return this.#isGrower && this.at === 'read' ? 'read' : undefined;
    if (command === 'HMGET' && what === 'lease') return this.#isGrower ? undefined : 'ask';
    if (command === 'HSET' && what === 'lease') return this.#isGrower ? 'copy' : 'mark';
    if (command === 'HDEL' && what === 'lease') return 'forget';
    if (!isSwept) return undefined;
    if (command === 'HSCAN') return 'marks';
    if (command === 'ZSCAN') return what;
    if (command === 'ZREM' && what === 'done') return 'drop remembered';
    return command === 'HGET' && field === 'returned' ? 'returned' : undefined;
  }

  /** Waits until it has come to its next calls, or has ended. */
  async settled(): Promise<void> {
    const isMoving = () => this.#inFlight > 0 || (this.#running && this.#parked.length === 0);
    do {
      while (isMoving()) {
        await new Promise<void>((resolve) => {
          this.#changed = resolve;
        });
      }
      // Who has just got a reply may go on beside what is parked.
      await setImmediate();
    } while (isMoving());
  }

  /** What waits for its turn. */
  get next(): string {
    return (
      this.#parked.map(({ label, part }) => `${label} at ${part}`).join(', ') || (this.#running ? 'nothing' : 'the end')
    );
  }

  /** Lets a call go. Returns false if it does not wait there. */
  async go(label: string, part: number): Promise<boolean> {
    await this.settled();
    const found = this.#parked.find((one) => one.label === label && one.part === part);
    if (!found) return false;
    this.#parked = this.#parked.filter((one) => one !== found);
    this.waited = undefined;
    found.go();
    // Its reply is awaited.
    await Promise.resolve();
    await this.settled();
    return true;
  }

  async learn(): Promise<void> {
    await this.#store.look();
  }

  grow(): void {
    this.#start(async () => {
      for await (const _ of grow(this.#store, this.#queue.layout.to, { lookMs: 0 }));
      return 'done';
    });
  }

  /** Begins an operation. Of a move, `how` it will end. */
  begin(op: Op, how?: 'moved' | 'back'): void {
    this.#start(() => this.#act(op, how));
  }

  #start(act: () => Promise<string>): void {
    this.#running = true;
    this.result = undefined;
    this.error = undefined;
    act()
      .then(
        (result) => {
          this.result = result;
        },
        (error: unknown) => {
          this.error = error;
        },
      )
      .finally(() => {
        this.#running = false;
        this.#changed();
      });
  }

  async #act(op: Op, how: 'moved' | 'back' | undefined): Promise<string> {
    const [{ id, name }, redis] = [this.#queue, this.#redis];
    const operator = new Operator(redis);
    switch (op.do) {
      case 'keep':
      case 'replace': {
        const payload = JsonText.parse(payloadOf(op.version));
        return (await new Queue(redis, name).enqueue({ id, payload }, { ifExists: op.do })).outcome;
      }
      case 'cancel':
        return (await operator.cancel(name, [id], op.states))[0] as string;
      case 'requeue': {
        const [answer] = await operator.requeue(name, [id]);
        return answer === 'missing' ? 'not dead' : (answer as string);
      }
      case 'bury':
        return (await operator.bury(name, [id]))[0] as string;
      case 'show': {
        const [job] = await new Inspector(redis).show(name, [id]);
        return job ? `${job.state} ${wordOfPayload(String(job.payload))}` : 'missing';
      }
      case 'restore': {
        const payload = Buffer.from(payloadOf(op.version));
        const parcel = { id: Buffer.from(id), state: op.set, score: '1', record: undefined, payload };
        return (await restoreInto(this.#store, [{ ...parcel, token: op.token }]))[0] as string;
      }
      case 'hold': {
        const other = `${name}-o`;
        // Then nothing can be copied, and the job is put back.
        if (how === 'back') await admin.set(key(other, 'pending'), 'x');
        return (await new Transfer(redis).move(name, [id], { to: other }))[0] as string;
      }
    }
    throw new Error(`clients do not ${op.do}`);
  }
}
