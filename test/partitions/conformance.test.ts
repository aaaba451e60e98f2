import { expect, it } from 'vitest';
import { afterwards } from '../support/afterwards.js';
import { LONG } from '../support/property.js';
import type { Op } from './one-id.js';
import { RealActor, RealQueue, SteppedConnection } from './real.js';
import { type Edge, type Instance, Search } from './search.js';
import type { Actor, World } from './world.js';

/*
 * The model that growth-protocol.test.ts searches is the code: both take the same steps, in any order of their actors, and
 * after each step the keys are what the model says, and so is each answer.
 */

const keep: Op = { do: 'keep', version: 'v1' };
const replace: Op = { do: 'replace', version: 'v2' };
const cancel: Op = { do: 'cancel', states: ['pending', 'active', 'dead'] };
const cancelWaiting: Op = { do: 'cancel', states: ['pending', 'dead'] };
const requeue: Op = { do: 'requeue' };
const bury: Op = { do: 'bury' };
const show: Op = { do: 'show' };
const hold: Op = { do: 'hold', receipt: '', by: 'move' };
const moved: Op = { do: 'finish', receipt: '', how: 'moved' };
const putBack: Op = { do: 'finish', receipt: '', how: 'back' };
const restore: Op = { do: 'restore', version: 'v0', set: 'pending', token: 'M' };

type Small = Omit<Instance, 'apart'>;
const ONE = [keep, replace, cancel, cancelWaiting, requeue, bury, show, restore].map((op) => [op]);
const BEGINS = [undefined, 'pending', 'dead', 'active', 'moving', 'done', 'brought'] as const;

/** Two clients with operations of all kinds, a consumer and two growers. */
const INSTANCES: readonly Small[] = [
  ...BEGINS.flatMap((begins) =>
    ONE.map((client, i): Small => {
      const other = ONE[(i + BEGINS.indexOf(begins) + 1) % ONE.length] as Op[];
      return {
        clients: [client, other],
        begins,
        takes: 2,
        expiries: 1,
        growers: 2,
        windows: begins === 'active' && i % 2 === 0,
      };
    }),
  ),
  ...(['moving', 'pending', 'dead', 'active'] as const).flatMap((begins) =>
    [moved, putBack].map((end): Small => ({ clients: [[hold, end], [replace]], begins, takes: 1 })),
  ),
];

/** Steps that need no call if there is nothing to do. */
const OPTIONAL = ['help 0', 'help', 'open', 'advance'];
/** What the calls of a step are named. */
const LABELS: Record<string, string> = {
  look: 'act',
  stray: 'act',
  'in place': 'act',
  'help 0': 'advance',
  help: 'advance',
  begin: 'advance',
  open: 'advance',
  round: 'returned',
  check: 'returned',
  remembered: 'done',
  'copy remembered': 'remember',
  linger: 'active',
  confirm: 'advance',
  flip: 'advance',
  'end p': 'advance',
  'end q': 'advance',
};

const compared = new Map<string, number>();

/** Steps that were taken, and what must be the same. */
class Walk {
  readonly #queue: RealQueue;
  readonly #real: readonly (RealActor | undefined)[];
  readonly #search: Search;
  readonly #trace: string[] = [];
  readonly #p: number;
  #world: World;

  constructor(instance: Instance, connections: readonly SteppedConnection[]) {
    this.#search = new Search(instance);
    this.#world = this.#search.first();
    this.#queue = new RealQueue(instance.apart);
    this.#p = instance.apart ? 1 : 0;
    this.#real = this.#world.actors.map(({ kind }, i) => {
      const redis = connections[i] as SteppedConnection;
      return kind === 'consumer' ? undefined : new RealActor(this.#queue, redis, kind === 'grower');
    });
  }

  async run(random: () => number): Promise<void> {
    await this.#queue.write(this.#world.parts);
    for (const real of this.#real) await real?.learn();
    let who = -1;
    try {
      for (let n = 0; n < 300; n++) {
        const edges = [...this.#search.successors(this.#world)].filter(({ events }) => events.did !== 'sweep');
        if (edges.length === 0) return;
        // Most go on for a while, so that others sleep.
        const own = edges.filter((edge) => edge.who === who);
        const from = own.length > 0 && random() < 0.75 ? own : edges;
        const edge = from[Math.floor(random() * from.length)] as Edge;
        who = edge.who;
        if (!(await this.#take(edge))) return;
      }
    } catch (error) {
      (error as Error).message += `\n${this.#trace.join('\n')}`;
      throw error;
    }
  }

  /** False: the walk ends here. */
  async #take(edge: Edge): Promise<boolean> {
    const before = this.#world;
    const { who, world, events, consumes, learns } = edge;
    this.#trace.push(edge.told());
    const [was, is] = [before.actors[who] as Actor, world.actors[who] as Actor];
    const real = this.#real[who];
    if (consumes) {
      const { part, op, answer } = consumes;
      const state = before.parts[part] as World['parts'][0];
      expect(await this.#queue.consume(part, state, op)).toBe(answer);
      this.#count(`W ${op.do}`);
    } else if (learns) await (real as RealActor).learn();
    else if (events.did !== undefined) {
      if (!(await this.#step(real as RealActor, edge, was, is))) return false;
    }
    this.#world = world;
    expect(await this.#queue.read(world.parts)).toEqual(world.parts.map((part) => ({ ...part })));
    return true;
  }

  #count(what: string): void {
    compared.set(what, (compared.get(what) ?? 0) + 1);
  }

  async #step(real: RealActor, { events, world }: Edge, was: Actor, is: Actor): Promise<boolean> {
    const { did = '' } = events;
    const op = events.begins ?? was.op;
    const isGrower = was.kind === 'grower';
    real.at = did;
    if (isGrower && !real.isRunning) real.grow();
    if (events.begins && op?.do !== 'finish') {
      const [next] = is.todo;
      real.begin(op as Op, next?.do === 'finish' ? next.how : undefined);
    }
    await real.settled();
    real.at = is.at;
    const part = this.#partOf(events, was);
    const label = LABELS[did] ?? did;
    const isDone = await real.go(label, part);
    if (!isDone) {
      const isSame = JSON.stringify(world.parts) === JSON.stringify(this.#world.parts);
      expect(isSame && OPTIONAL.includes(did) ? 'nothing to do' : real.next, `${did} at ${part}`).toBe('nothing to do');
    } else {
      this.#count(isGrower ? `grower ${did}` : `${did} ${op?.do}`);
      expect(real.waited, `${did} waits for replicas`).toBe(events.waits);
    }
    return this.#answer(real, events, op, is);
  }

  /** In which partition a step is. */
  #partOf({ did = '', part = 0 }: Edge['events'], was: Actor): number {
    const [p, q] = [this.#p, this.#p + 1];
    if (['read', 'open', 'flip', 'help 0', 'stray'].includes(did)) return 0;
    if (['begin', 'copy', 'copy remembered', 'end q', 'restore', 'forget', 'remember', 'mark'].includes(did)) return q;
    if (['act', 'help'].includes(did)) return part;
    return did === 'look' || was.kind === 'grower' ? p : p;
  }

  async #answer(real: RealActor, { did, answers }: Edge['events'], op: Op | null, is: Actor): Promise<boolean> {
    if (is.kind === 'grower') return true;
    if (answers === undefined) {
      // A move that the layout refuses at its end holds its job anew, or leaves it to a repeat: the model tries to end it.
      if (op?.do === 'finish') return false;
      // Refused, because no id may be freed now: the caller tries again.
      if (!real.isRunning && /GROWING/.test(String((real.error as { why?: string })?.why))) real.begin(op as Op);
      else if (!real.isRunning) expect(real.error ?? real.result, `${did} goes on`).toBe(undefined);
      return true;
    }
    if (op?.do === 'hold' && answers === 'held') return true;
    if (op?.do === 'finish') {
      if (op.how === 'back') expect(real.error).toMatchObject({ why: expect.stringContaining('WRONGTYPE') });
      else expect(real.result).toBe(answers === 'superseded' ? 'superseded' : 'moved');
      return true;
    }
    expect(real.error).toBe(undefined);
    expect(real.result).toBe(answers);
    return true;
  }
}

/** Numbers from 0 to 1, the same for the same seed (mulberry32). */
function randomOf(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

it('the code does what the model of it does, step by step', async () => {
  const connections = Array.from({ length: 5 }, () => new SteppedConnection());
  afterwards(() => {
    for (const one of connections) one.close();
  });
  const start = performance.now();
  const [walks, seed] = [LONG ? 100 : 1, 1];
  for (let n = 0; n < walks; n++) {
    for (const [i, instance] of INSTANCES.entries()) {
      for (const apart of [false, true]) {
        const random = randomOf(seed + n * 1_000 + i);
        await new Walk({ ...instance, apart }, connections).run(random);
      }
    }
  }
  console.log(performance.now() - start, [...compared].sort());
}, 600_000);
