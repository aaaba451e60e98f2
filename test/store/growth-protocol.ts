import { type Op, script } from './one-id.js';
import type { Actor, Found, Guard, Level, Partition, Shape, World } from './world.js';

/*
 * The protocol of docs/internals/partitions.md, for one id that a growth moves from partition `p` to the new
 * partition `q`. A step is one script at one partition; between two steps anybody may do anything, and whoever does
 * not come to his next step has died, or sleeps.
 */

/** What the replicas of q must have; of all others, those of p. */
const AT_Q: readonly Guard[] = [
  'replicas have the copy before finish',
  'replicas have what is remembered before the call goes on',
];

/** What happened in a step. */
export interface Events {
  /** An operation begins, or is answered. */
  begins?: Op;
  answers?: string;
  /** The name of the step, and the partition that the actor was concerned with. */
  did?: string;
  part?: number;
  /** The partition whose replicas are waited for. */
  waits?: number;
}

/** Operations that ask partition 0 as well if the id is not where it belongs: foreign producers know no other. */
const STRAYS: readonly Op['do'][] = ['cancel', 'requeue', 'bury', 'show', 'hold'];
const MISSING: readonly string[] = ['missing', 'not dead'];

export class Protocol {
  readonly #shape: Shape;
  readonly #p: number;
  readonly #q: number;
  #waited: number | undefined;

  constructor(shape: Shape) {
    this.#shape = shape;
    this.#p = shape.apart ? 1 : 0;
    this.#q = this.#p + 1;
  }

  #has(guard: Guard): boolean {
    return !this.#shape.without?.includes(guard);
  }

  /** The next step of a client or a grower. Changes `world`; undefined: it has nothing to do. */
  step(world: World, me: Actor): Events | undefined {
    const events: Events = {};
    this.#waited = undefined;
    if (me.at === 'idle') {
      const op = me.todo[0];
      if (!op) return undefined;
      me.todo = me.todo.slice(1);
      if (op.do === 'finish' && me.holds < 0) return {};
      me.op = op.do === 'hold' || op.do === 'finish' ? { ...op, receipt: `${me.name}:move` } : op;
      events.begins = me.op;
      this.#route(me);
    }
    if (me.at === 'done') return undefined;
    events.did = me.at;
    events.part = me.part;
    const known = this.#common(world, me, events) || this.#growth(world, me);
    if (!known) throw new Error(`no step ${me.at}`);
    if (me.kind === 'grower') this.#skip(me);
    if (this.#waited !== undefined) events.waits = this.#waited;
    return events;
  }

  /** Where a call by id begins. */
  #route(me: Actor): void {
    const op = me.op as Op;
    if (op.do === 'finish') me.part = me.holds;
    else if (me.level === 0) me.part = this.#p;
    else me.part = this.#q;
    me.at = 'act';
    if (me.level !== 1 || op.do === 'finish') return;
    if (op.do === 'show') me.at = this.#has('show asks p first') ? 'look' : 'act';
    else if (op.do === 'restore' && !this.#has('restore asks p for the token after its transfer')) {
      me.at = 'ask';
      me.back = 'hold';
    } else if (this.#has('a call by id transfers first') && op.do !== 'forget') me.at = 'hold';
    if (me.at !== 'act') me.part = this.#p;
  }

  /** Whether a partition accepts a call. If not, the caller learns or helps, and begins anew. */
  #accepts(world: World, me: Actor, part = me.part): boolean {
    const there = world.parts[part] as Partition;
    if (there.level === me.level) return true;
    const unguarded =
      (me.at === 'hold' && !this.#has('hold compares the layout')) ||
      (me.at === 'restore' && !this.#has('restore compares the layout')) ||
      (me.at === 'remember' && !this.#has('remember compares the layout')) ||
      (me.at === 'act' && !this.#has('old maps are refused'));
    if (unguarded) return true;
    if (me.at !== 'restore') this.#learn(me, there, part);
    else {
      me.at = 'put back';
      me.part = part;
    }
    return false;
  }

  #learn(me: Actor, there: Partition, part: number): void {
    if (me.kind === 'grower') me.at = 'read';
    else if (there.level < me.level) {
      me.part = part;
      me.at = 'help 0';
    } else {
      me.level = there.level;
      this.#route(me);
    }
  }

  /** Runs a script in a partition, and counts what returned as far as the guards say. */
  #run(world: World, part: number, op: Op): string {
    const there = world.parts[part] as Partition;
    const before = there.returned;
    const answer = script(there, op);
    let counts = there.level === 1 && part === this.#p;
    if (op.do === 'finish') counts &&= this.#has('what is put back is counted');
    else if (op.do === 'replace') counts &&= this.#has('what replace returns is counted');
    else counts &&= this.#has('what nack and expired leases return is counted');
    if (!counts) there.returned = before;
    return answer;
  }

  /** What a consumer, or time, does: one script at one partition. */
  runAt(world: World, part: number, op: Op): string {
    return this.#run(world, part, op);
  }

  /** The steps that clients and growers share: calls by id, transfers, help. */
  #common(world: World, me: Actor, events: Events): boolean {
    const [p, q] = [world.parts[this.#p], world.parts[this.#q]] as [Partition, Partition];
    const op = me.op as Op;
    const after = (at: string) => {
      const isDone = at === 'act' || at === 'in place';
      if (isDone && me.kind === 'grower') me.at = me.back;
      else if (isDone && op.do === 'restore' && this.#asks()) {
        me.back = at;
        me.at = 'ask';
      } else me.at = at;
      if (isDone || at === 'hold') Object.assign(me, { receipt: '', token: '', copy: null });
      me.part = ['act', 'restore', 'forget', 'remember'].includes(me.at) ? this.#q : this.#p;
    };
    const answer = (text: string) => {
      me.answer = text;
      me.era = (world.parts[me.part] as Partition).era;
      if (world.logs) {
        me.waited = 'answer';
        me.at = 'wait';
      } else {
        events.answers = text;
        me.at = 'idle';
      }
    };
    switch (me.at) {
      case 'help 0':
      case 'help': {
        const there = world.parts[me.at === 'help' ? me.part : 0] as Partition;
        if (there.level < me.level) this.#advance(world, me.at === 'help' ? me.part : 0, there.level, me.level);
        if (me.at === 'help 0' && me.part !== 0) me.at = 'help';
        else this.#route(me);
        return true;
      }
      case 'wait': {
        // Waiting proves something only for the server that executed the write.
        const same = (world.parts[me.part] as Partition).era === me.era;
        if (world.logs && same) world.logs[me.part] = [JSON.stringify(world.parts[me.part])];
        if (me.waited === 'answer') {
          if (same) events.answers = me.answer;
          // Nobody learns whether it was done.
          me.at = same ? 'idle' : 'done';
        } else if (same) after(me.waited);
        else if (me.kind === 'grower') me.at = 'read';
        else this.#route(me);
        me.waited = '';
        return true;
      }
      case 'look':
        if (this.#accepts(world, me)) this.#look(p, after, answer);
        return true;
      case 'ask':
        if (op.do === 'restore' && p.marks.includes(op.token)) answer('kept');
        else {
          me.at = me.back;
          me.part = me.at === 'act' ? this.#q : this.#p;
        }
        return true;
      case 'hold':
        this.#hold(world, me, p, after, answer);
        return true;
      case 'in place': {
        if (op.do === 'restore') {
          const found = p.job?.set === 'active' && p.job.lease?.by !== 'transfer' ? p.job : undefined;
          if (!found) this.#route(me);
          else if (found.lease?.by === 'move') answer('held');
          else if (found.version !== op.version) answer('differs');
          else if (this.#has('a restore that keeps an active job marks it')) me.at = 'mark';
          else answer('kept');
          return true;
        }
        if (!this.#accepts(world, me)) return true;
        const still = p.job?.set === 'active' && p.job.lease?.by !== 'transfer';
        const held = p.job?.lease?.by === 'transfer' && !this.#has('a call in place leaves holds of transfers alone');
        const acts = still || held || (!p.job && !this.#has('a call in place is done only if the id is still active'));
        if (!acts || !this.#act(world, me, this.#p, answer)) this.#route(me);
        return true;
      }
      case 'mark':
        if (op.do === 'restore' && !q.marks.includes(op.token)) q.marks = [...q.marks, op.token].sort();
        answer('kept');
        return true;
      case 'remember':
        if (!this.#accepts(world, me)) return true;
        q.done = true;
        this.#waits(world, me, q, 'replicas have what is remembered before the call goes on', 'act', after);
        return true;
      case 'restore': {
        if (!this.#accepts(world, me)) return true;
        const { set, version } = { set: me.copy?.lease?.was ?? 'pending', version: me.copy?.version ?? '' } as const;
        this.#run(world, this.#q, { do: 'restore', version, set, token: me.token });
        // Whatever the answer is: what q has is newer, because nothing of a mover is ever made at p.
        this.#waits(world, me, q, 'replicas have the copy before finish', 'finish', after);
        return true;
      }
      case 'put back': {
        // If the token is of another, that one may have copied it. Under another layout p holds nothing of us.
        const own = me.token === me.receipt && p.level === 1;
        if (own) this.#run(world, this.#p, { do: 'finish', receipt: me.receipt, how: 'back' });
        this.#learn(me, world.parts[me.part] as Partition, me.part);
        return true;
      }
      case 'finish': {
        if (!this.#accepts(world, me)) return true;
        const ended = this.#run(world, this.#p, { do: 'finish', receipt: me.receipt, how: 'moved' });
        const made = me.token === me.receipt || !this.#has('only who made a token removes it');
        const own = made && (ended === 'held' || !this.#has('only who finished removes a token'));
        const then = own ? 'forget' : 'act';
        this.#waits(world, me, p, 'replicas have the end before the token is removed', then, after);
        return true;
      }
      case 'forget':
        script(q, { do: 'forget', token: me.token });
        after('act');
        return true;
      case 'act':
      case 'stray':
        if (!this.#accepts(world, me)) return true;
        // Refused: tried again.
        if (!this.#act(world, me, me.part, answer)) this.#route(me);
        return true;
    }
    return false;
  }

  #asks(): boolean {
    return this.#has('restore asks p for the token') && this.#has('restore asks p for the token after its transfer');
  }

  /** Runs the operation in a partition. False: it is refused. */
  #act(world: World, me: Actor, part: number, answer: (text: string) => void): boolean {
    const [there, op] = [world.parts[part] as Partition, me.op as Op];
    const frees = op.do === 'cancel' && there.level === 1 && there.done;
    if (frees && this.#has('no id is freed while a growth is open')) return false;
    const text = this.#run(world, part, op);
    if (op.do === 'hold') me.holds = text === 'held' ? part : -1;
    // What has left partition 0 may still be held there, and be done already.
    const isLeft =
      part === 0 || (this.#p === 0 && me.level === 1 && this.#has('what has left partition 0 is not sought there'));
    if (me.at === 'act' && !isLeft && STRAYS.includes(op.do) && MISSING.includes(text)) {
      me.at = 'stray';
      me.part = 0;
    } else answer(text);
    return true;
  }

  /** A reader looks at p first. What a transfer holds may be another by now at q: so it is transferred. */
  #look({ job }: Partition, after: (at: string) => void, answer: (text: string) => void): void {
    if (!job) after('act');
    else if (job.lease?.by !== 'transfer') answer(`${job.set} ${job.version}`);
    else if (this.#has('show transfers what a transfer holds')) after('hold');
    else answer(`${job.lease.was} ${job.version}`);
  }

  #hold(world: World, me: Actor, p: Partition, after: (at: string) => void, answer: (text: string) => void): void {
    if (!this.#accepts(world, me)) return;
    const { op } = me;
    const ends = op?.do === 'replace' || (op?.do === 'cancel' && op.states.includes('active'));
    const supersede = ends && !this.#has('replace and cancel of an active job are done in place');
    this.#waited = this.#p;
    if (p.job?.set === 'active' && p.job.lease?.by !== 'transfer' && !supersede) {
      const isLooked = this.#has('active jobs are looked at');
      if (me.kind === 'grower') {
        note(me, 'active');
        after('act');
      } else if (!isLooked) after('act');
      else if (ends || op?.do === 'restore') after('in place');
      else if (op?.do === 'hold' && this.#has('a move takes over its hold at p')) after('in place');
      else if (op?.do === 'show') this.#route(me);
      else
        answer(
          op?.do === 'keep' ? 'kept' : op?.do === 'requeue' ? 'not dead' : op?.do === 'cancel' ? 'missing' : 'active',
        );
      return;
    }
    me.receipt = this.#word(world, me);
    const old = p.job?.lease?.token;
    const held = this.#run(world, this.#p, { do: 'hold', receipt: me.receipt, by: 'transfer', supersede });
    if (held === 'missing') {
      const takes = p.done && this.#has('a call by id takes along what is remembered');
      this.#waits(world, me, p, 'replicas have what p lacks before q is asked', takes ? 'remember' : 'act', after);
      return;
    }
    const lease = p.job?.lease;
    if (p.job && lease && old && !this.#has('a takeover keeps the token')) {
      p.job = { ...p.job, lease: { ...lease, token: me.receipt } };
    }
    me.copy = p.job;
    me.token = p.job?.lease?.token ?? '';
    if (me.kind === 'grower') note(me, 'moved');
    this.#waits(world, me, p, 'replicas have the hold before restore', 'restore', after);
  }

  /** A word that is used nowhere: as good as one that never was. */
  #word(world: World, me: Actor): string {
    const used = JSON.stringify(world);
    let n = 1;
    while (used.includes(`"${me.name}${n}"`)) n++;
    return `${me.name}${n}`;
  }

  /** Waits until all replicas of a partition have what was written there. */
  #waits(world: World, me: Actor, { era }: Partition, guard: Guard, then: string, after: (at: string) => void): void {
    const part = AT_Q.includes(guard) ? this.#q : this.#p;
    if (this.#has(guard)) this.#waited = part;
    if (!world.logs || !this.#has(guard)) {
      after(then);
      return;
    }
    me.waited = then;
    Object.assign(me, { era, part, at: 'wait' });
  }

  /** The same in one step: the growers' own writes, which may be repeated. */
  #waitsFor(world: World, part: number): void {
    this.#waited = part;
    if (world.logs) world.logs[part] = [JSON.stringify(world.parts[part])];
  }

  /** The steps of growers alone. */
  #growth(world: World, me: Actor): boolean {
    const zero = world.parts[0] as Partition;
    const [p, q] = [world.parts[this.#p], world.parts[this.#q]] as [Partition, Partition];
    const isLast = this.#has('what is remembered is looked at last');
    switch (me.at) {
      case 'read':
        Object.assign(me, { returned: -1, found: [], sure: false, receipt: '', token: '', copy: null, back: '' });
        me.level = 1;
        me.at = zero.level === 0 ? 'begin' : zero.level === 1 ? 'advance' : 'done';
        return true;
      case 'begin':
        this.#advance(world, this.#q, 0, 1);
        me.at = 'open';
        return true;
      case 'open':
        // If q is further than that, partition 0 has lost what it was.
        this.#advance(world, 0, 0, q.level);
        me.at = 'read';
        return true;
      case 'advance':
        if (this.#has('the grower advances p before it looks')) this.#advance(world, this.#p, 0, 1);
        me.at = 'round';
        return true;
      case 'round':
        Object.assign(me, { returned: p.returned, found: [], at: 'marks' });
        return true;
      case 'marks':
        me.marks = this.#has('marks are copied') ? p.marks : [];
        me.at = me.marks.length > 0 ? 'copy' : isLast ? 'pending' : 'remembered';
        return true;
      case 'copy':
        for (const word of me.marks) if (!q.marks.includes(word)) q.marks = [...q.marks, word].sort();
        if (this.#has('replicas have the marks before p is clean')) this.#waitsFor(world, this.#q);
        me.marks = [];
        me.at = isLast ? 'pending' : 'remembered';
        return true;
      case 'pending':
      case 'dead':
      case 'active': {
        const next = { pending: 'dead', dead: 'active', active: isLast ? 'remembered' : 'check' }[me.at];
        const isFound =
          p.job?.set === me.at &&
          (me.at !== 'active' || this.#has('active jobs are looked at') || p.job.lease?.by === 'transfer');
        me.back = next;
        me.at = isFound ? 'hold' : next;
        me.part = this.#p;
        return true;
      }
      case 'remembered': {
        const takes = p.done && this.#has('the grower takes along what is remembered');
        me.at = takes ? 'copy remembered' : isLast ? 'check' : 'pending';
        return true;
      }
      case 'copy remembered':
        if (!this.#accepts(world, me, this.#q)) return true;
        q.done = true;
        if (this.#has('replicas have what is remembered before it is removed')) this.#waitsFor(world, this.#q);
        note(me, 'remembered');
        me.at = 'drop remembered';
        return true;
      case 'drop remembered':
        p.done = false;
        me.at = isLast ? 'check' : 'pending';
        return true;
      case 'check': {
        const isClean = me.found.length === 0 && p.returned === me.returned;
        if (isClean || !this.#has('p is clean before partition 0 is advanced'))
          this.#nextRound(me, me.sure ? 'flip' : 'confirm');
        else this.#nextRound(me);
        return true;
      }
      case 'linger':
        if (p.job?.set !== 'active' || p.job.lease?.by === 'transfer') me.at = 'round';
        return true;
      case 'confirm':
        this.#advance(world, this.#p, 1, 1, 'replicas have the clean p before partition 0 is advanced');
        me.sure = true;
        me.at = this.#has('p is looked through again after that') ? 'round' : 'flip';
        return true;
      case 'flip':
        this.#advance(world, 0, 1, 2);
        if (!this.#has('left tokens are removed after the end of the growth')) sweep(q);
        me.at = this.#p === 0 ? 'end q' : 'end p';
        return true;
      case 'end p':
        this.#advance(world, this.#p, 1, 2);
        me.at = 'end q';
        return true;
      case 'end q':
        this.#advance(world, this.#q, 1, 2);
        me.at = 'sweep';
        return true;
      case 'sweep':
        if (q.level === 2) sweep(q);
        me.at = 'done';
        return true;
    }
    return false;
  }

  /** What a round that is not clean leaves out. */
  #skip(me: Actor): void {
    const isLast = this.#has('what is remembered is looked at last');
    if (me.at === 'remembered' && isLast && me.found.includes('active')) me.at = 'check';
    const counts = !me.found.includes('moved') || !this.#has('p is clean before partition 0 is advanced');
    if (me.at === 'check' && !counts) this.#nextRound(me);
  }

  #nextRound(me: Actor, next = me.found.includes('active') ? 'linger' : 'round'): void {
    if (next === 'linger' || next === 'round') me.sure = false;
    Object.assign(me, { at: next, returned: -1, found: [], back: '' });
  }

  /** Brings a partition from one layout to another, if it has still that one; then waits for its replicas. */
  #advance(world: World, part: number, from: Level, to: Level, guard?: Guard): void {
    const there = world.parts[part] as Partition;
    if (there.level !== from) return;
    Object.assign(there, { level: to, returned: 0 });
    if (!guard || this.#has(guard)) this.#waitsFor(world, part);
  }
}

function note(me: Actor, what: Found): void {
  if (!me.found.includes(what)) me.found = [...me.found, what].sort();
}

/** What doctor does later: removes what transfers have left, words of clients and growers. Those of moves and leases stay. */
function sweep(part: Partition): void {
  part.marks = part.marks.filter((word) => !/^[ABCST]\d/.test(word));
}
