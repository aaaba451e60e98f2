import { type Op, script } from './one-id.js';
import type { Actor, Guard, Level, Partition, Shape, World } from './world.js';

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

/** What happened in a step: an operation begins, or is answered. */
export type Events = { begins?: Op; answers?: string };

export class Protocol {
  readonly #shape: Shape;
  readonly #p: number;
  readonly #q: number;

  constructor(shape: Shape) {
    this.#shape = shape;
    this.#p = shape.apart ? 1 : 0;
    this.#q = this.#p + 1;
  }

  #has(guard: Guard): boolean {
    return this.#shape.without !== guard;
  }

  /** The next step of a client or a grower. Changes `world`; undefined: it has nothing to do. */
  step(world: World, me: Actor): Events | undefined {
    const events: Events = {};
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
    const known = this.#common(world, me, events) || this.#growth(world, me);
    if (!known) throw new Error(`no step ${me.at}`);
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
    else if (op.do === 'restore' && this.#has('restore asks p for the token')) me.at = 'ask';
    else if (this.#has('a call by id transfers first') && op.do !== 'forget') me.at = 'hold';
    if (me.at !== 'act') me.part = this.#p;
  }

  /** Whether a partition accepts a call. If not, the caller learns, or helps, and comes back. */
  #accepts(world: World, me: Actor, part = me.part): boolean {
    const there = world.parts[part] as Partition;
    if (there.level === me.level) return true;
    const unguarded =
      (me.at === 'hold' && !this.#has('hold compares the layout')) ||
      (me.at === 'ask' && !this.#has('the question for the token compares the layout')) ||
      (me.at === 'restore' && !this.#has('restore compares the layout')) ||
      (me.at === 'remember' && !this.#has('remember compares the layout')) ||
      (me.at === 'act' && !this.#has('old maps are refused'));
    if (unguarded) return true;
    if (there.level > me.level) {
      me.level = there.level;
      if (me.kind === 'grower') me.at = 'read';
      else if (me.at === 'restore') me.at = 'put back';
      else this.#route(me);
    } else {
      me.back = me.at;
      me.part = part;
      me.at = 'help 0';
    }
    return false;
  }

  /** Runs a script in a partition, and counts what returned as far as the guards say. */
  #run(world: World, part: number, op: Op): string {
    const there = world.parts[part] as Partition;
    const before = there.returned;
    const answer = script(there, op);
    let counts = there.level === 1;
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
      me.at = at === 'act' && me.kind === 'grower' ? 'pending' : at;
      if (at === 'act' || at === 'hold' || at === 'in place') Object.assign(me, { receipt: '', token: '', copy: null });
      me.part = ['act', 'restore', 'forget', 'remember'].includes(at) ? this.#q : this.#p;
    };
    const answer = (text: string) => {
      me.answer = text;
      me.era = (world.parts[me.part] as Partition).era;
      if (world.logs) {
        me.back = 'answer';
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
        there.level = Math.max(there.level, me.level) as Level;
        me.at = me.at === 'help 0' && me.part !== 0 ? 'help' : me.back;
        return true;
      }
      case 'wait': {
        // Waiting proves something only for the server that executed the write.
        const same = (world.parts[me.part] as Partition).era === me.era;
        if (world.logs && same) world.logs[me.part] = [JSON.stringify(world.parts[me.part])];
        if (me.back === 'answer') {
          if (same) events.answers = me.answer;
          // Nobody learns whether it was done.
          me.at = same ? 'idle' : 'done';
        } else if (same) after(me.back);
        else if (me.kind === 'grower') me.at = 'read';
        else this.#route(me);
        return true;
      }
      case 'look':
        if (this.#accepts(world, me)) this.#look(p, after, answer);
        return true;
      case 'ask':
        if (!this.#accepts(world, me)) return true;
        if (op.do === 'restore' && p.marks.includes(op.token)) answer('kept');
        else after('hold');
        return true;
      case 'hold':
        this.#hold(world, me, p, after, answer);
        return true;
      case 'in place': {
        if (!this.#accepts(world, me)) return true;
        const still = p.job?.set === 'active' && p.job.lease?.by !== 'transfer';
        const held = p.job?.lease?.by === 'transfer' && !this.#has('a call in place leaves holds of transfers alone');
        const acts = still || held || (!p.job && !this.#has('a call in place is done only if the id is still active'));
        if (acts) answer(this.#act(world, me, this.#p));
        else after('hold');
        return true;
      }
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
        this.#route(me);
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
        if (!this.#accepts(world, me)) return true;
        if (op.do === 'cancel' && me.level === 1 && q.done && this.#has('no id is freed while a growth is open')) {
          // Refused: tried again.
          this.#route(me);
          return true;
        }
        answer(this.#act(world, me, me.part));
        return true;
    }
    return false;
  }

  #act(world: World, me: Actor, part: number): string {
    const text = this.#run(world, part, me.op as Op);
    if (me.op?.do === 'hold') me.holds = text === 'held' ? part : -1;
    return text;
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
    if (p.job?.set === 'active' && p.job.lease?.by !== 'transfer' && !supersede) {
      if (me.kind === 'grower') after('act');
      else if (!this.#has('active jobs are looked at')) after('act');
      else if (op?.do === 'hold' && !this.#has('a move takes over its hold at p')) answer('active');
      else after('in place');
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
    if (me.kind === 'grower') me.dirty = true;
    this.#waits(world, me, p, 'replicas have the hold before restore', 'restore', after);
  }

  /** A word that is used nowhere: as good as one that never was. */
  #word(world: World, me: Actor): string {
    const used = JSON.stringify(world);
    let n = 1;
    while (used.includes(`"${me.name}${n}"`)) n++;
    return `${me.name}${n}`;
  }

  #waits(world: World, me: Actor, { era }: Partition, guard: Guard, then: string, after: (at: string) => void): void {
    if (!world.logs || !this.#has(guard)) {
      after(then);
      return;
    }
    const part = AT_Q.includes(guard) ? this.#q : this.#p;
    Object.assign(me, { era, back: then, part, at: 'wait' });
  }

  /** The steps of growers alone. */
  #growth(world: World, me: Actor): boolean {
    const zero = world.parts[0] as Partition;
    const [p, q] = [world.parts[this.#p], world.parts[this.#q]] as [Partition, Partition];
    const waited = (part: number) => {
      if (world.logs) world.logs[part] = [JSON.stringify(world.parts[part])];
    };
    switch (me.at) {
      case 'read':
        Object.assign(me, { returned: -1, dirty: false, receipt: '', token: '', copy: null });
        me.level = Math.max(zero.level, 1) as Level;
        me.at = zero.level === 0 ? 'begin' : zero.level === 1 ? 'advance' : 'end p';
        return true;
      case 'begin':
        q.level = Math.max(q.level, 1) as Level;
        waited(this.#q);
        me.at = 'open';
        return true;
      case 'open':
        zero.level = Math.max(zero.level, 1) as Level;
        waited(0);
        me.at = this.#shape.apart ? 'advance' : 'marks';
        return true;
      case 'advance':
        if (this.#has('the grower advances p before it looks')) p.level = Math.max(p.level, 1) as Level;
        waited(this.#p);
        me.at = 'marks';
        return true;
      case 'marks':
        if (zero.level !== 1) {
          me.at = 'read';
          return true;
        }
        me.marks = this.#has('marks are copied') ? p.marks : [];
        me.at = me.marks.length > 0 ? 'copy' : 'round';
        return true;
      case 'copy':
        if (!this.#accepts(world, me, this.#q)) return true;
        for (const word of me.marks) if (!q.marks.includes(word)) q.marks = [...q.marks, word].sort();
        waited(this.#q);
        me.marks = [];
        me.at = 'round';
        return true;
      case 'round':
        if (p.level > 1) {
          me.at = 'read';
          return true;
        }
        Object.assign(me, { returned: p.returned, dirty: false, era: p.era, at: 'pending' });
        if (!this.#has('what is remembered is looked at last')) me.at = 'remembered';
        return true;
      case 'pending':
      case 'dead': {
        if (p.job?.set === me.at) return this.#sweep(me);
        me.at = me.at === 'pending' ? 'dead' : 'active';
        return true;
      }
      case 'active':
        if (p.job?.lease?.by === 'transfer') return this.#sweep(me);
        if (p.job?.set === 'active' && this.#has('active jobs are looked at')) me.dirty = true;
        me.at = this.#has('what is remembered is looked at last') && !me.dirty ? 'remembered' : 'check';
        return true;
      case 'remembered': {
        const takes = p.done && this.#has('the grower takes along what is remembered');
        me.at = takes ? 'copy remembered' : this.#afterRemembered();
        return true;
      }
      case 'copy remembered':
        if (!this.#accepts(world, me, this.#q)) return true;
        q.done = true;
        if (this.#has('replicas have what is remembered before it is removed')) waited(this.#q);
        me.dirty = true;
        me.at = 'drop remembered';
        return true;
      case 'drop remembered':
        p.done = false;
        me.at = this.#afterRemembered();
        return true;
      case 'check': {
        const clean = !me.dirty && p.returned === me.returned;
        me.at = clean || !this.#has('p is clean before partition 0 is advanced') ? 'confirm' : 'round';
        Object.assign(me, { returned: -1, dirty: false });
        return true;
      }
      case 'confirm': {
        const same =
          p.era === me.era || !this.#has('a round counts only if no failover came before its end was replicated');
        if (this.#has('replicas have the clean p before partition 0 is advanced')) waited(this.#p);
        me.at = same ? 'flip' : 'round';
        return true;
      }
      case 'flip':
        zero.level = 2;
        waited(0);
        me.at = 'end p';
        return true;
      case 'end p':
        p.level = 2;
        me.at = 'end q';
        return true;
      case 'end q':
        q.level = 2;
        if (this.#has('replicas have the end of the growth before left tokens are removed')) waited(this.#q);
        me.at = 'sweep';
        return true;
      case 'sweep':
        // What transfers have left: words of clients and growers. Those of moves and leases stay.
        q.marks = q.marks.filter((word) => !/^[ABCST]\d/.test(word));
        me.at = 'done';
        return true;
    }
    return false;
  }

  #afterRemembered(): string {
    return this.#has('what is remembered is looked at last') ? 'check' : 'pending';
  }

  #sweep(me: Actor): boolean {
    me.at = 'hold';
    me.part = this.#p;
    return true;
  }
}
