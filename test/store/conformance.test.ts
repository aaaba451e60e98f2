import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { afterwards } from '../support/afterwards.js';
import { LONG, SEED } from '../support/property.js';
import { onCluster } from '../support/redis.js';
import { Protocol } from './growth-protocol.js';
import type { Job, Op } from './one-id.js';
import { bury, cancel, hold, keep, moved, putBack, replace, requeue, restore, show } from './operations.js';
import { RealActor, RealQueue, SteppedConnection } from './real.js';
import { type Edge, type Instance, Search } from './search.js';
import type { Actor, Partition, World } from './world.js';

/*
 * The model that growth-protocol.test.ts searches is the code: both take the same steps, in any order of their actors, and
 * after each step the keys are what the model says, and so is each answer.
 */

const cancelWaiting: Op = { do: 'cancel', states: ['pending', 'dead'] };

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
  // What a move has taken over from another, it does not put back.
  ...(['moving', 'pending', 'dead', 'active'] as const).flatMap((begins) =>
    (begins === 'moving' ? [moved] : [moved, putBack]).map((end): Small => {
      return { clients: [[hold, end], [replace]], begins, takes: 1 };
    }),
  ),
];

/** Small ones, in which each kind of step is sought. */
const TOURS: readonly Small[] = [
  { clients: [[keep]], begins: 'pending' },
  { clients: [[replace]], begins: 'active' },
  { clients: [[cancel]], begins: 'active' },
  { clients: [[keep]], begins: 'done' },
  { clients: [[cancel]], begins: 'done' },
  { clients: [[keep]], begins: 'active' },
  { clients: [[requeue]], begins: 'dead' },
  { clients: [[bury]], begins: 'pending', takes: 1, expiries: 1 },
  { clients: [[show]], begins: 'pending' },
  { clients: [[restore]], begins: 'active' },
  { clients: [[restore]], begins: 'brought' },
  { clients: [[restore]], begins: 'moving' },
  { clients: [[hold, moved]], begins: 'moving' },
  { clients: [[hold, putBack]], begins: 'pending' },
];

/** Steps that need no call if there is nothing to do. */
const OPTIONAL = ['help 0', 'help', 'open', 'advance', 'put back'];
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

/** Doctor sweeps, much later. */
const isDoctors = ({ events }: Edge) => events.did === 'sweep';

/** What happens in a step: whose it is, what it does, and what comes of it. */
function kindOf(before: World, { who, world, events, consumes }: Edge): string {
  const [was, is] = [before.actors[who] as Actor, world.actors[who] as Actor];
  const { did = 'learn', begins = was.op, answers } = events;
  if (consumes) return `${consumes.op.do}: ${consumes.answer}`;
  const { job } = before.parts.at(-2) as Partition;
  // These look at what p holds.
  const found = did === 'linger' || did === 'in place' ? `${job?.set} ${job?.lease?.by}, ` : '';
  return `${found}${was.kind === 'grower' ? 'grower' : begins?.do} ${did} to ${answers ?? is.at}`;
}

/** Steps that were taken, and what must be the same. */
class Walk {
  readonly #queue: RealQueue;
  readonly #real: readonly (RealActor | undefined)[];
  readonly #search: Search;
  readonly #trace: string[] = [];
  readonly #p: number;
  #world: World;
  /** Who has learned a layout between the two steps of a move. */
  readonly #learned = new Set<RealActor>();

  readonly #compared: Map<string, number>;

  constructor(instance: Instance, connections: readonly SteppedConnection[], compared: Map<string, number>) {
    this.#compared = compared;
    this.#search = new Search(instance);
    this.#world = this.#search.first();
    this.#queue = new RealQueue(instance.apart);
    this.#p = instance.apart ? 1 : 0;
    this.#real = this.#world.actors.map(({ kind }, i) => {
      const redis = connections[i] as SteppedConnection;
      return kind === 'consumer' ? undefined : new RealActor(this.#queue, redis, kind === 'grower');
    });
  }

  /** Takes steps in a random order, until none is left. */
  async run(random: () => number): Promise<void> {
    let who = -1;
    await this.#walk(() => {
      const edges = [...this.#search.successors(this.#world)].filter((edge) => this.#isMeant(edge));
      // Who begins goes on for a while, so that others sleep; and what is rare comes first.
      const own = edges.filter((edge) => edge.who === who);
      const from = own.length > 0 && random() < 0.75 ? own : edges;
      const rare = from.sort((a, b) => this.#countOf(a) - this.#countOf(b)).slice(0, random() < 0.5 ? 1 : undefined);
      const edge = rare[Math.floor(random() * rare.length)];
      who = edge?.who ?? -1;
      return edge;
    });
  }

  /** Takes these of the possible steps. */
  async go(way: readonly number[]): Promise<void> {
    const steps = way.values();
    await this.#walk(() => {
      const { value, done } = steps.next();
      return done ? undefined : [...this.#search.successors(this.#world)][value];
    });
  }

  async #walk(next: () => Edge | undefined): Promise<void> {
    await this.#queue.write(this.#world.parts);
    for (const real of this.#real) await real?.learn();
    try {
      for (let n = 0; n < 300; n++) {
        const edge = next();
        if (!edge || !(await this.#take(edge))) return;
      }
    } catch (error) {
      (error as Error).message += `\n${this.#trace.join('\n')}`;
      throw error;
    }
  }

  /** Who waits for consumers need not do so all the time. */
  #isMeant(edge: Edge): boolean {
    const {
      who,
      world,
      events: { did },
    } = edge;
    return did !== 'sweep' && !(did === 'linger' && world.actors[who]?.at === 'linger' && this.#countOf(edge) > 0);
  }

  #countOf(edge: Edge): number {
    return this.#compared.get(kindOf(this.#world, edge)) ?? 0;
  }

  /** False: the walk ends here. */
  async #take(edge: Edge): Promise<boolean> {
    const before = this.#world;
    const kind = kindOf(before, edge);
    this.#compared.set(kind, this.#countOf(edge) + 1);
    const { who, world, events, consumes, learns } = edge;
    this.#trace.push(edge.told());
    const [was, is] = [before.actors[who] as Actor, world.actors[who] as Actor];
    const real = this.#real[who];
    if (consumes) {
      const { part, op, answer } = consumes;
      const state = before.parts[part] as World['parts'][0];
      expect(await this.#queue.consume(part, state, op)).toBe(answer);
    } else if (learns) {
      await (real as RealActor).learn();
      if (was.todo[0]?.do === 'finish') this.#learned.add(real as RealActor);
    } else if (events.did !== undefined) {
      if (!(await this.#step(real as RealActor, edge, was, is))) return false;
    }
    this.#world = world;
    expect(await this.#queue.read(world.parts)).toEqual(world.parts.map((part) => ({ ...part })));
    return true;
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
      expect(real.waited, `${did} waits for replicas`).toBe(events.waits);
    }
    const goesOn = await this.#answer(real, events, op, is);
    await real.settled();
    // A grower that found the growth done has ended: it looks once more if it is begun again.
    const hasEnded = isGrower && is.at === 'read' && !real.isRunning;
    if (goesOn && !hasEnded && !['idle', 'done', 'sweep', ...OPTIONAL].includes(is.at))
      expect(real.next, `after ${did}`).toContain(LABELS[is.at] ?? is.at);
    return goesOn;
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
    // A move that the layout refuses at its end holds its job anew, or leaves it to a repeat, whatever it has learned since
    // it held it: the model tries to end it.
    if (op?.do === 'finish' && (answers === undefined || this.#learned.has(real))) return false;
    if (answers === undefined) {
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

/** All steps of the model: those of clients and growers, but for waits and what doctor does later; and of consumers. */
const STEPS = [
  ...[...readFileSync(new URL('growth-protocol.ts', import.meta.url), 'utf8').matchAll(/^ {6}case '(.*)':/gm)]
    .map(([, name]) => name as string)
    .filter((name) => name !== 'wait' && name !== 'sweep'),
  ...['take', 'expire', 'ack', 'retry', 'refuse'],
];

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

/** Ways of the model that lead past each kind of step but those of `planned`, and adds theirs to them. */
function toursOf(instance: Instance, planned: Set<string>): { instance: Instance; way: readonly number[] }[] {
  const search = new Search(instance);
  const ways = [...search.ways((before, edge) => (isDoctors(edge) ? undefined : kindOf(before, edge)))];
  const found: { instance: Instance; way: readonly number[] }[] = [];
  // The longest ways come first: they lead past others.
  for (const [kind, way] of ways.sort(([, a], [, b]) => b.length - a.length)) {
    if (planned.has(kind)) continue;
    found.push({ instance, way });
    let world = search.first();
    for (const step of way) {
      const edge = [...search.successors(world)][step] as Edge;
      planned.add(kindOf(world, edge));
      world = edge.world;
    }
  }
  return found;
}

/** Walks of each instance. */
const WALKS = LONG ? 20 : 1;
/** At the same time: while one waits for Redis, another goes on. */
const LANES = 4;

/** Runs `act` for the numbers below `count`, some at a time. */
async function inLanes(
  count: number,
  act: (i: number, connections: readonly SteppedConnection[], lane: number) => Promise<void>,
): Promise<void> {
  const run = async (lane: number) => {
    const connections = Array.from({ length: 4 }, () => new SteppedConnection());
    afterwards(() => {
      for (const one of connections) one.close();
    });
    for (let i = lane; i < count; i += LANES) await act(i, connections, lane);
  };
  await Promise.all(Array.from({ length: LANES }, (_, lane) => run(lane)));
}

// The keys of all partitions are read at once.
it.skipIf(onCluster)(
  'the code takes each kind of step that the model has, and each leaves and answers the same',
  async () => {
    const [counts, planned] = [new Map<string, number>(), new Set<string>()];
    const walks = TOURS.flatMap((tour, i) =>
      (LONG ? [false, true] : [i % 2 === 0]).map((apart) => toursOf({ ...tour, apart }, planned)),
    ).flat();
    await inLanes(walks.length, async (i, connections) => {
      const { instance, way } = walks[i] as (typeof walks)[0];
      await new Walk(instance, connections, counts).go(way);
    });
    const steps = new Set(
      [...counts.keys()].map((kind) => /(?:.*, )?\S+ (.*) to /.exec(kind)?.[1] ?? kind.split(':')[0]),
    );
    expect(STEPS.filter((step) => !steps.has(step))).toEqual([]);
  },
  600_000,
);

it.skipIf(onCluster)(
  'the code does what the model does, in whatever order two clients, a consumer and two growers take their steps',
  async () => {
    // Each its own: so that the steps depend on the seed alone.
    const counts = Array.from({ length: LANES }, () => new Map<string, number>());
    await inLanes(INSTANCES.length * WALKS, async (i, connections, lane) => {
      const instance = { ...(INSTANCES[i % INSTANCES.length] as Small), apart: Math.floor(i / LANES) % 2 === 1 };
      await new Walk(instance, connections, counts[lane] as Map<string, number>).run(randomOf(SEED + i));
    });
  },
  600_000,
);

describe.skipIf(onCluster)('each script leaves and answers what the model says', () => {
  const held = (by: 'consumer' | 'transfer' | 'move', was: 'pending' | 'dead'): Job => {
    const more = by === 'consumer' ? {} : { token: 'T', was };
    return { set: 'active', version: 'v0', lease: { receipt: 'R', by, ...more } };
  };
  const jobs: readonly (Job | null)[] = [
    ...[null, { set: 'pending', version: 'v0' } as const, { set: 'dead', version: 'v0' } as const],
    ...[held('consumer', 'pending'), held('transfer', 'pending'), held('transfer', 'dead'), held('move', 'pending')],
    held('move', 'dead'),
  ];
  const receipts = ['R', 'M'];
  const ops: readonly Op[] = [
    ...[{ do: 'take', receipt: 'W' } as const, { do: 'expire' } as const, { do: 'forget', token: 'M' } as const],
    ...[keep, replace, cancel, cancelWaiting, { do: 'cancel', states: ['active'] } as const, requeue, bury, show],
    ...(['transfer', 'move'] as const).map((by): Op => ({ do: 'hold', receipt: 'H', by })),
    ...receipts.flatMap((receipt) => (['ack', 'retry', 'refuse'] as const).map((how): Op => ({ do: how, receipt }))),
    ...receipts.flatMap((receipt) => (['moved', 'back'] as const).map((how): Op => ({ do: 'finish', receipt, how }))),
    ...(['pending', 'dead'] as const).flatMap((set) =>
      ['M', 'N'].flatMap((token) => ['v0', 'v1'].map((version): Op => ({ do: 'restore', set, token, version }))),
    ),
  ];

  /** Where an id belonged before a growth, only an active job is replaced; while it is open, no id is freed. */
  const expectedOf = (world: World, part: number, op: Op) => {
    const { job, done, level } = world.parts[part] as Partition;
    const isOld = part === 0 && level === 1;
    if (op.do === 'replace' && isOld && (job?.set !== 'active' || job.lease?.by === 'transfer')) return 'none';
    if (op.do === 'cancel' && level === 1 && done) return 'refused';
    return new Protocol({ apart: false }).runAt(world, part, op);
  };

  it.each([
    ['before a growth', 0] as const,
    ['while it is open', 1] as const,
    // The scripts are those before it.
    ...(LONG ? [['after it', 2] as const] : []),
  ])('%s', async (_, level) => {
    const cells = jobs.flatMap((job) =>
      [[], ['M']].flatMap((marks) =>
        [null, false, true].flatMap((done) =>
          [0, 1].map((part) => ({ part, state: { job, marks, done, returned: 0, level, era: 0 } })),
        ),
      ),
    );
    await inLanes(cells.length, async (i) => {
      if (!LONG && i % 3 !== SEED % 3) return;
      const { part, state } = cells[i] as (typeof cells)[0];
      // Only a growth makes q, and transfers.
      if (level === 0 && (part === 1 || state.job?.lease?.by === 'transfer')) return;
      for (const op of ops) {
        if (op.do === 'expire' && state.job?.lease?.by !== 'consumer') continue;
        const queue = new RealQueue(false);
        const other = { job: null, marks: [], done: state.done === null ? null : false, returned: 0, level, era: 0 };
        const parts: Partition[] = [{ ...other }, { ...other }];
        parts[part] = { ...state };
        const world: World = { parts, actors: [], plain: 0, logs: null };
        await queue.write(parts);
        const answer = await queue.script(part, state, op);
        const said = `${JSON.stringify(op)} at ${part}: ${JSON.stringify(state)}`;
        expect(answer, said).toBe(expectedOf(world, part, op));
        expect(await queue.read(world.parts), said).toEqual(world.parts);
      }
    });
  });
});
