import { type Events, Protocol } from './growth-protocol.js';
import { type Cell, type Job, type Op, script } from './one-id.js';
import { type Actor, actor, emptyPart, type Partition, type Shape, type World } from './world.js';

/** An instance that is searched: who does what, and where the id is at first. */
export interface Instance extends Shape {
  /** A list of operations for each client. */
  readonly clients: readonly (readonly Op[])[];
  /**
   * In which state the id begins; none: it does not exist. A hold of a move: `moving`; remembered: `done`; brought by a
   * move with the token M, and done: `brought`.
   */
  readonly begins?: Job['set'] | 'moving' | 'done' | 'brought' | undefined;
  /** Jobs have windows; always if the id begins as `done`. */
  readonly windows?: boolean;
  readonly growers?: number;
  /** How often the consumer takes, and how often a lease may expire. */
  readonly takes?: number;
  readonly expiries?: number;
  readonly failovers?: number;
}

/** The first state that breaks a promise, and how it is reached. */
export interface Finding {
  readonly problem: string;
  readonly trace: readonly string[];
}

/** A step that may come next, and the world after it. */
export interface Edge {
  /** Whose it is: an index of `actors`. */
  readonly who: number;
  readonly told: () => string;
  readonly world: World;
  readonly events: Events;
  /** What a consumer does, and where. */
  readonly consumes?: { readonly part: number; readonly op: Op; readonly answer: string };
  /** A client learns the layout. */
  readonly learns?: true;
}

/** A queue without partitions, and what it has already answered to operations that are still open. */
interface Plain {
  readonly cell: Cell;
  readonly done: Record<string, string>;
}

const NOTHING: Cell = { job: null, marks: [], returned: 0, done: null };

/** A step changes parts, and whose it is. What is inside of them is replaced, never changed. */
function copyFor(who: number, { parts, actors, plain, logs }: World): World {
  const copy = { parts: parts.map((part) => ({ ...part })), actors: [...actors], plain };
  copy.actors[who] = { ...(actors[who] as Actor) };
  return { ...copy, logs: logs?.map((log) => [...log]) ?? null };
}

/** The counters count only for a grower that has read them. */
function forgetReturned({ parts, actors }: World): void {
  if (actors.every(({ kind, returned }) => kind !== 'grower' || returned < 0))
    for (const part of parts) part.returned = 0;
}

/** Searches every state that an instance can reach. */
export class Search {
  readonly #instance: Instance;
  readonly #protocol: Protocol;
  readonly #p: number;
  readonly #finishes = new Map<string, string>();
  readonly #closures = new Map<string, readonly string[]>();
  readonly #explained = new Map<readonly string[], Set<string>>();
  /** Of actors: most steps leave them as they are. */
  readonly #known = new WeakMap<Actor, number>();
  readonly #plains = new Map<number, readonly string[]>();
  readonly #numbers = new Map<string, number>();
  states = 0;

  constructor(instance: Instance) {
    this.#instance = instance;
    this.#protocol = new Protocol(instance);
    this.#p = instance.apart ? 1 : 0;
  }

  run(limit = 1_000_000): Finding | undefined {
    const first = this.first();
    const seen = new Set([this.#keyOf(first)]);
    // Of each state, in the order of the search: where it came from, and by which of the steps possible there.
    const from: [number, number][] = [[-1, 0]];
    let edge: [number, World][] = [[0, first]];
    while (edge.length > 0) {
      const next: [number, World][] = [];
      for (const [index, world] of edge) {
        const problem = this.#problemOf(world);
        if (problem) return { problem, trace: this.#trace(from, index) };
        let step = 0;
        for (const { world: after } of this.successors(world)) {
          forgetReturned(after);
          const key = this.#keyOf(after);
          const isNew = seen.size < seen.add(key).size;
          if (isNew) next.push([from.push([index, step]) - 1, after]);
          step++;
        }
      }
      edge = next;
      this.states = seen.size;
      if (seen.size > limit) throw new Error(`more than ${limit} states`);
    }
    return undefined;
  }

  /**
   * For each kind of step that an instance can come to, the shortest way to one: which of the possible steps come. Those
   * without a kind are not taken.
   */
  ways(kindOf: (before: World, edge: Edge) => string | undefined): Map<string, number[]> {
    const ways = new Map<string, number[]>();
    const first = this.first();
    const seen = new Set([this.#keyOf(first)]);
    const queue: { readonly world: World; readonly way: readonly number[] }[] = [{ world: first, way: [] }];
    for (const { world, way } of queue) {
      for (const [step, edge] of [...this.successors(world)].entries()) {
        const kind = kindOf(world, edge);
        if (kind === undefined) continue;
        if (!ways.has(kind)) ways.set(kind, [...way, step]);
        if (seen.size < seen.add(this.#keyOf(edge.world)).size) queue.push({ world: edge.world, way: [...way, step] });
      }
    }
    return ways;
  }

  /** A short text that is the same for the same state. */
  #keyOf({ parts, actors, plain, logs }: World): string {
    let key = `${plain}`;
    for (const one of actors) {
      const number = this.#known.get(one) ?? this.#numberOf(JSON.stringify(Object.values(one)));
      this.#known.set(one, number);
      key += ` ${number}`;
    }
    for (const one of parts) key += ` ${this.#numberOf(JSON.stringify(Object.values(one)))}`;
    return logs ? `${key} ${this.#numberOf(JSON.stringify(logs))}` : key;
  }

  #trace(from: readonly [number, number][], index: number): string[] {
    const steps: number[] = [];
    for (let at = index; at > 0; at = (from[at] as [number, number])[0]) {
      steps.unshift((from[at] as [number, number])[1]);
    }
    let world = this.first();
    return steps.map((step) => {
      const edge = [...this.successors(world)][step] as Edge;
      world = edge.world;
      forgetReturned(world);
      return edge.told();
    });
  }

  /** How it begins. */
  first(): World {
    const { clients, begins, growers = 1, takes = 0, expiries = 0, failovers = 0, windows } = this.#instance;
    const parts = Array.from({ length: this.#p + 2 }, emptyPart);
    const cell = structuredClone(NOTHING);
    const actors = clients.map((todo, i) => actor('client', 'ABC'[i] as string, todo));
    for (let i = 0; i < growers; i++) actors.push(actor('grower', 'ST'[i] as string));
    if (takes > 0 || begins === 'active') {
      const consumer = actor('consumer', 'W');
      Object.assign(consumer, { budget: takes, returned: expiries });
      if (begins === 'active') consumer.receipts = [['W0', this.#p]];
      actors.push(consumer);
    }
    if (failovers > 0) actors.push({ ...actor('failover', 'F'), budget: failovers });
    if (windows || begins === 'done') for (const one of [cell, ...parts]) one.done = false;
    if (begins === 'brought') script(cell, { do: 'restore', version: 'v0', set: 'pending', token: 'M' });
    else if (begins) script(cell, { do: 'keep', version: 'v0' });
    if (begins === 'done' || begins === 'brought') {
      script(cell, { do: 'take', receipt: 'W0' });
      script(cell, { do: 'ack', receipt: 'W0' });
    }
    if (begins === 'dead') script(cell, { do: 'bury' });
    if (begins === 'active') script(cell, { do: 'take', receipt: 'W0' });
    if (begins === 'moving') script(cell, { do: 'hold', by: 'move', receipt: 'M' });
    Object.assign(parts[this.#p] as Partition, structuredClone(cell));
    const logs = failovers > 0 ? parts.map((part) => [JSON.stringify(part)]) : null;
    return { parts, actors, plain: this.#plainOf([JSON.stringify({ cell, done: {} })]), logs };
  }

  /** All steps that are possible now. */
  *successors(before: World): Generator<Edge> {
    for (const [who, { kind, at, todo, name, level }] of before.actors.entries()) {
      if (kind === 'consumer') yield* this.#consumes(before, who);
      else if (kind === 'failover') yield* this.#fails(before, who);
      else {
        const zero = (before.parts[0] as Partition).level;
        if (at === 'idle' && this.#instance.apart && zero > level) yield this.#asks(before, who, zero);
        const world = copyFor(who, before);
        const me = world.actors[who] as Actor;
        const events = this.#protocol.step(world, me);
        if (!events) continue;
        const told = () => {
          const what = at === 'idle' ? JSON.stringify(todo[0]) : at;
          return `${name}${level}: ${what}${events.answers === undefined ? '' : ` = ${events.answers}`}`;
        };
        yield { who, told, world: this.#after(world, me, events), events };
      }
    }
  }

  /** A client learns the layout from partition 0, by a call for another id. */
  #asks(before: World, who: number, level: Actor['level']): Edge {
    const world = copyFor(who, before);
    const me = world.actors[who] as Actor;
    me.level = level;
    return { who, told: () => `${me.name} learns layout ${level}`, world, events: {}, learns: true };
  }

  /** What a consumer may do: take at a partition, answer for a receipt; or a lease that it held expires. */
  *#consumes(before: World, who: number): Generator<Edge> {
    const first = before.actors[who] as Actor;
    if (first.at !== 'idle') {
      const world = copyFor(who, before);
      const me = world.actors[who] as Actor;
      const events = this.#protocol.step(world, me);
      if (!events) return;
      if (me.op && events.answers !== undefined) this.#keepReceipt(me, me.op);
      yield { who, told: () => 'W: waited', world: this.#after(world, me, events), events };
      return;
    }
    const choices: [number, Op][] = [];
    for (const part of [this.#p, this.#p + 1]) {
      if (first.budget > 0) choices.push([part, { do: 'take', receipt: `W${first.budget}` }]);
      if (first.returned > 0) choices.push([part, { do: 'expire' }]);
    }
    for (const [receipt, part] of first.receipts) {
      for (const how of ['ack', 'retry', 'refuse'] as const) choices.push([part, { do: how, receipt }]);
    }
    for (const [part, op] of choices) {
      const world = copyFor(who, before);
      const me = world.actors[who] as Actor;
      const answer = this.#protocol.runAt(world, part, op);
      if (answer === 'none') continue;
      if (op.do === 'expire') me.returned--;
      if (op.do === 'take') me.budget--;
      me.op = op;
      me.part = part;
      const events: Events = { begins: op };
      if (world.logs) {
        Object.assign(me, { at: 'wait', waited: 'answer', answer, era: (world.parts[part] as Partition).era });
      } else {
        events.answers = answer;
        this.#keepReceipt(me, op);
      }
      const told = () => `W: ${JSON.stringify(op)} at ${part} = ${answer}`;
      yield { who, told, world: this.#after(world, me, events), events, consumes: { part, op, answer } };
    }
  }

  #keepReceipt(me: Actor, op: Op): void {
    if (op.do === 'take') me.receipts = [...me.receipts, [op.receipt, me.part]];
    else if ('receipt' in op) me.receipts = me.receipts.filter(([word]) => word !== op.receipt);
  }

  /** A replica takes over that lacks the newest writes of one partition. */
  *#fails(before: World, who: number): Generator<Edge> {
    const { logs, actors } = before;
    if ((actors[who] as Actor).budget === 0) return;
    for (const [part, log] of (logs ?? []).entries()) {
      for (let n = 1; n < log.length; n++) {
        const world = copyFor(who, before);
        const me = world.actors[who] as Actor;
        me.budget--;
        const era = (world.parts[part] as Partition).era + 1;
        world.parts[part] = { ...JSON.parse(log[n - 1] as string), era };
        (world.logs as string[][])[part] = log.slice(0, n);
        const told = () => `failover of ${part}: ${log[n - 1]}`;
        yield { who, told, world: this.#after(world, me, {}), events: {} };
      }
    }
  }

  /** Keeps what the queue without partitions may look like now, and what could be lost. */
  #after(world: World, me: Actor, { begins, answers }: Events): World {
    if (begins) me.op = begins;
    if (answers !== undefined) {
      const plain = new Set<string>();
      for (const text of this.#closure(world)) {
        const one = JSON.parse(text) as Plain;
        if (one.done[me.name] !== answers) continue;
        delete one.done[me.name];
        plain.add(JSON.stringify(one));
      }
      world.plain = this.#plainOf([...plain].sort());
      Object.assign(me, { op: null, answer: '', receipt: '', token: '', copy: null, back: '', waited: '' });
    }
    for (const [part, log] of (world.logs ?? []).entries()) {
      const now = JSON.stringify(world.parts[part]);
      if (log.at(-1) !== now) log.push(now);
    }
    return world;
  }

  /** Everything that the queue without partitions may look like, if operations that are open were done or not yet. */
  #closure(world: World): readonly string[] {
    const open = world.actors.filter(({ op }) => op !== null);
    const key = `${world.plain} ${JSON.stringify(open.map(({ name, op }) => [name, op]))}`;
    const known = this.#closures.get(key);
    if (known) return known;
    const all = new Set(this.#plains.get(world.plain));
    for (const text of all) {
      const one = JSON.parse(text) as Plain;
      for (const { name, op } of open) {
        if (name in one.done) continue;
        const cell = { ...one.cell };
        const answer = script(cell, op as Op);
        cell.returned = 0;
        const done = Object.fromEntries(Object.entries({ ...one.done, [name]: answer }).sort());
        all.add(JSON.stringify({ cell, done }));
      }
    }
    const closure = [...all];
    this.#closures.set(key, closure);
    return closure;
  }

  #plainOf(plain: readonly string[]): number {
    const number = this.#numberOf(`plain ${plain.join('\n')}`);
    this.#plains.set(number, plain);
    return number;
  }

  /** A number for a text: always the same. */
  #numberOf(text: string): number {
    const known = this.#numbers.get(text) ?? this.#numbers.size;
    this.#numbers.set(text, known);
    return known;
  }

  #problemOf(world: World): string | undefined {
    if (this.#plains.get(world.plain)?.length === 0) return 'no queue without partitions answers this';
    const [p, q] = [world.parts[this.#p], world.parts[this.#p + 1]] as [Partition, Partition];
    const held = p.job?.lease?.by === 'transfer' ? p.job.lease : undefined;
    const copied = held !== undefined && q.marks.includes(held.token as string);
    if (p.job && q.job && !copied) return 'the id lives twice';
    let seen: Job | null = q.job;
    if (!q.job && held && !copied) seen = { set: held.was ?? 'pending', version: p.job?.version as string };
    if (!q.job && !held) seen = p.job;
    const text = JSON.stringify(seen);
    const closure = this.#closure(world);
    const jobs =
      this.#explained.get(closure) ??
      new Set(closure.map((one) => JSON.stringify((JSON.parse(one) as Plain).cell.job)));
    this.#explained.set(closure, jobs);
    if (!jobs.has(text)) return `no queue without partitions could hold ${text}`;
    if ((world.parts[0] as Partition).level === 2 && p.job) return 'the growth is done, but p holds a mover';
    if ((world.parts[0] as Partition).level === 2 && p.done && !q.done)
      return 'the growth is done, but only p remembers';
    return this.#finish(world);
  }

  /** Whether a grower that runs alone finishes from here. Leases expire, and moves are taken back. */
  #finish({ parts }: World): string | undefined {
    const key = JSON.stringify(parts);
    const known = this.#finishes.get(key);
    if (known !== undefined) return known || undefined;
    const world: World = { parts: JSON.parse(key), actors: [], plain: 0, logs: null };
    const me = actor('grower', 'alone');
    const p = world.parts[this.#p] as Partition;
    for (let n = 0; n < 80 && me.at !== 'done'; n++) {
      if (me.at === 'round' || me.at === 'linger') script(p, { do: 'expire' });
      if (me.at === 'linger' && p.job?.lease?.by === 'move') {
        script(p, { do: 'finish', receipt: p.job.lease.receipt, how: 'back' });
      }
      this.#protocol.step(world, me);
    }
    const problem = me.at === 'done' && !p.job ? '' : `a grower that runs alone does not finish: ${me.at}`;
    this.#finishes.set(key, problem);
    return problem || undefined;
  }
}
