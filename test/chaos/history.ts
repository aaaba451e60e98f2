/*
 * The history of each id: what callers asked for, from when to when, and what they were told. A history is linearizable
 * if the calls can be put into one order, each at a moment between its start and its end, in which a queue without
 * partitions gives these very answers. Ids do not depend on each other, so each is judged alone, by the search of Wing
 * and Gong, with Lowe's memory of what was tried.
 */

/** A call about one id. Times are ms since 1970. */
export interface Operation {
  readonly act: Act;
  readonly from: number;
  /** When the answer came. Infinity: none came. Then it may have happened at any time since, or never. */
  readonly to: number;
  /** What the caller was told. Undefined: nothing, so its outcome is unknown. */
  readonly answer?: string | undefined;
  /** Which payload was enqueued, or seen. Undefined: it was not looked at. */
  readonly version?: number | undefined;
  readonly receipt?: string | undefined;
  /** The lease that was asked for, ms. */
  readonly leaseMs?: number | undefined;
  /** The states from which a cancel removes. */
  readonly states?: readonly string[] | undefined;
  /** It may have been sent more than once, because a reply was lost. */
  readonly repeated?: boolean | undefined;
  /** Redis may have forgotten what it did: a master was killed before its replica had it. */
  readonly forgettable?: boolean | undefined;
}

/** Somebody who may have taken jobs that nobody saw, from a time on, for at least so long. */
export interface Unseen {
  readonly from: number;
  readonly leaseMs: number;
}

interface State {
  readonly kind: 'none' | 'pending' | 'active' | 'dead';
  readonly version: number;
  /** Who holds it; '?' is somebody unseen. */
  readonly receipt: string;
  /** When the lease may end, at the earliest. */
  readonly ends: number;
}

const NONE: State = { kind: 'none', version: 0, receipt: '', ends: 0 };

/** Redis counts in whole ms. */
const MARGIN_MS = 2;

const pending = (version = 0): State => ({ ...NONE, kind: 'pending', version });
const dead = ({ version }: State): State => ({ ...NONE, kind: 'dead', version });
const holds = (state: State, { receipt }: Operation) => state.kind === 'active' && state.receipt === receipt;
const endOf = ({ from, leaseMs = 0 }: Operation) => from + leaseMs - MARGIN_MS;

/** For each act and each answer, the state after it; undefined if a queue in this state would answer otherwise. */
const QUEUE = {
  keep: {
    created: ({ kind }, { version }) => (kind === 'none' ? pending(version) : undefined),
    kept: (state) => (state.kind === 'pending' || state.kind === 'active' ? state : undefined),
    'kept-dead': (state) => (state.kind === 'dead' ? state : undefined),
  },
  replace: {
    created: ({ kind }, { version }) => (kind === 'none' ? pending(version) : undefined),
    replaced: ({ kind }, { version }) => (kind === 'none' ? undefined : pending(version)),
  },
  cancel: {
    ...each(
      ['pending', 'active', 'dead'],
      (is) =>
        ({ kind }) =>
          kind === is ? NONE : undefined,
    ),
    missing: (state, { states = [] }) => (states.includes(state.kind) ? undefined : state),
  },
  reschedule: {
    rescheduled: (state) => (state.kind === 'pending' ? state : undefined),
    ...each(['active', 'dead', 'missing'], staysIf),
  },
  bury: {
    buried: (state) => (state.kind === 'pending' ? dead(state) : undefined),
    ...each(['active', 'dead', 'missing'], staysIf),
  },
  requeue: {
    requeued: ({ kind, version }) => (kind === 'dead' ? pending(version) : undefined),
    missing: (state) => (state.kind === 'dead' ? undefined : state),
  },
  edit: {
    edited: ({ kind }, { version }) => (kind === 'pending' ? pending(version) : undefined),
    requeued: ({ kind }, { version }) => (kind === 'dead' ? pending(version) : undefined),
    changed: (state) => state,
    ...each(['active', 'missing'], staysIf),
  },
  show: each(['pending', 'active', 'dead', 'missing'], (is) => (state, { version = state.version }) => {
    return is === 'missing' || version === state.version ? staysIf(is)(state) : undefined;
  }),
  take: {
    taken: (state, operation) => {
      const { version = state.version, receipt = '' } = operation;
      if (state.kind !== 'pending' || version !== state.version) return;
      return { kind: 'active', version, receipt, ends: endOf(operation) };
    },
  },
  ack: { held: (state, operation) => (holds(state, operation) ? NONE : undefined), ...notHeld() },
  release: {
    pending: (state, operation) => (holds(state, operation) ? pending(state.version) : undefined),
    ...notHeld(),
  },
  refuse: { dead: (state, operation) => (holds(state, operation) ? dead(state) : undefined), ...notHeld() },
  renew: {
    held: (state, operation) => (holds(state, operation) ? { ...state, ends: endOf(operation) } : undefined),
    ...notHeld(),
  },
} satisfies Record<string, Answers>;

export type Act = keyof typeof QUEUE;
type Answers = Record<string, (state: State, operation: Operation) => State | undefined>;

function each(answers: readonly string[], rule: (answer: string) => Answers[string]): Answers {
  return Object.fromEntries(answers.map((answer) => [answer, rule(answer)]));
}

function staysIf(answer: string): (state: State) => State | undefined {
  return (state) => (state.kind === (answer === 'missing' ? 'none' : answer) ? state : undefined);
}

function notHeld(): Answers {
  return each(['lost', 'superseded'], () => (state, operation) => (holds(state, operation) ? undefined : state));
}

/** What else is sent again when a reply is lost. */
const SETTLING: ReadonlySet<Act> = new Set(['ack', 'release', 'refuse']);
const isEnqueue = ({ act }: Operation) => act === 'keep' || act === 'replace';

/** Answers that say that nothing was changed. */
const LOOKS: Partial<Record<Act, readonly string[]>> = {
  keep: ['kept', 'kept-dead'],
  cancel: ['missing'],
  reschedule: ['rescheduled', 'active', 'dead', 'missing'],
  bury: ['active', 'dead', 'missing'],
  requeue: ['missing'],
  edit: ['changed', 'active', 'missing'],
  show: ['pending', 'active', 'dead', 'missing'],
  ...Object.fromEntries(['ack', 'release', 'refuse', 'renew'].map((act) => [act, ['lost', 'superseded']])),
};

/** Whether an operation changes nothing, whenever it came. */
const isLook = (operation: Operation) =>
  LOOKS[operation.act]?.includes(operation.answer ?? '') && !(operation.repeated && isEnqueue(operation));

/** The states that an operation can lead to from a state. None: it cannot have been answered so. */
function statesAfter(state: State, operation: Operation): State[] {
  const rules: Answers = QUEUE[operation.act];
  const { answer, version, repeated = false, forgettable = false } = operation;
  const results: (State | undefined)[] = [];
  if (answer !== undefined) results.push(rules[answer]?.(state, operation));
  else for (const rule of Object.values(rules)) results.push(rule(state, operation));
  // A replace or a cancel that did not finish may have taken the job from its holder, and no more.
  const isHalf = answer === undefined && (operation.act === 'replace' || operation.act === 'cancel');
  if (isHalf && state.kind === 'active') results.push(pending(state.version));
  // The repeat of an enqueue keeps what is there, and other repeats find what was done.
  if (repeated && isEnqueue(operation)) {
    results.push(state.kind === 'none' ? pending(version) : state);
    if (operation.act === 'replace') results.push(pending(version));
  } else if (repeated && SETTLING.has(operation.act)) results.push(state);
  if (forgettable) results.push(state);
  return results.filter((one) => one !== undefined);
}

/** What else a state may have become by a time: leases end, and somebody unseen takes jobs. */
function drifted(state: State, by: number, unseen: readonly Unseen[]): State[] {
  const takers = unseen.filter(({ from }) => from <= by);
  const ends = Math.min(...takers.map(({ from, leaseMs }) => from + leaseMs - MARGIN_MS));
  const all = [state];
  if (state.kind === 'active' && state.ends <= by) all.push(pending(state.version));
  if (all.at(-1)?.kind === 'pending' && takers.length > 0) {
    all.push({ kind: 'active', version: state.version, receipt: '?', ends });
  }
  return all;
}

const nameOf = ({ kind, version, receipt, ends }: State) => `${kind} ${version} ${receipt} ${ends}`;

/** How many states of the search are visited before a history counts as undecided. */
const MAX_VISITS = 100_000;

/**
 * Judges the history of one id, which begins without a job. Returns undefined if it is linearizable, and otherwise what
 * the history is, and up to where it can be explained.
 */
export function judge(history: readonly Operation[], unseen: readonly Unseen[] = []): string | undefined {
  const nobody = history.find(
    ({ answer, to }) =>
      answer === 'superseded' &&
      !history.some(({ act, from }) => (act === 'replace' || act === 'cancel') && from <= to),
  );
  if (nobody) return `superseded by nobody:\n${line(nobody)}`;
  const receipts = history.filter(({ act }) => act === 'take').map(({ receipt }) => receipt);
  if (new Set(receipts).size < receipts.length)
    return `taken twice under one receipt:\n${history.map(line).join('\n')}`;
  // What may have been sent more often may have happened more often.
  const copies = history.filter((one) => isEnqueue(one) && (one.repeated || one.answer === undefined));
  const operations = [
    ...history,
    ...copies.map((one) => ({ ...one, answer: undefined, to: Number.POSITIVE_INFINITY })),
  ];
  operations.sort((a, b) => a.to - b.to || a.from - b.from);
  return new Search(operations, unseen).run();
}

class Search {
  readonly #operations: readonly Operation[];
  readonly #unseen: readonly Unseen[];
  readonly #done: boolean[];
  readonly #tried = new Set<string>();
  /** The longest explanation so far: which operations it has, and the state after it. */
  #best: { done: boolean[]; count: number; state: State } = { done: [], count: -1, state: NONE };

  constructor(operations: readonly Operation[], unseen: readonly Unseen[]) {
    this.#operations = operations;
    this.#unseen = unseen;
    this.#done = operations.map(() => false);
  }

  run(): string | undefined {
    if (this.#explains(NONE, 0)) return;
    const isOpen = this.#tried.size >= MAX_VISITS;
    const said = isOpen ? `undecided after ${MAX_VISITS} states: perhaps no order` : 'no order';
    const { done, state } = this.#best;
    const lines = this.#operations.map((one, i) => `${done[i] ? ' ' : '?'} ${line(one)}`);
    const first = done.indexOf(false);
    const last = this.#operations.findIndex(({ to }) => to === Number.POSITIVE_INFINITY);
    lines.splice(first + 15, Math.max(0, last - first - 15), '  …');
    lines.splice(0, Math.max(0, first - 15), '  …');
    return `${said} of these calls explains the answers; those with ? cannot follow "${nameOf(state)}":\n${lines.join('\n')}`;
  }

  #explains(state: State, count: number): boolean {
    // Operations are in the order of their answers.
    const first = this.#operations.findIndex(({ to }, i) => !this.#done[i] && to < Number.POSITIVE_INFINITY);
    if (first < 0) return true;
    const key = `${first} ${this.#done.slice(first).map(Number).join('')} ${nameOf(state)}`;
    if (this.#tried.has(key) || this.#tried.size >= MAX_VISITS) return false;
    this.#tried.add(key);
    if (count > this.#best.count) this.#best = { done: [...this.#done], count, state };
    const deadline = this.#operations[first]?.to as number;
    const before = drifted(state, deadline, this.#unseen);
    const look = this.#look(state, deadline);
    if (look !== undefined) {
      this.#done[look] = true;
      if (this.#explains(state, count + 1)) return true;
      this.#done[look] = false;
      return false;
    }
    const alike = new Set<string>();
    for (const [i, operation] of this.#operations.entries()) {
      if (this.#done[i] || operation.from > deadline) continue;
      const isCertain = operation.to < Number.POSITIVE_INFINITY;
      // Of those that may have happened, and would do the same, only the first needs to be tried.
      const { act, version, receipt, states } = operation;
      if (!isCertain && alike.size === alike.add([act, version, receipt, states].join()).size) continue;
      const after = new Map<string, State>();
      for (const one of before) for (const next of statesAfter(one, operation)) after.set(nameOf(next), next);
      // What nobody was told, and what changes nothing, need not have happened.
      if (!isCertain) for (const one of before) after.delete(nameOf(one));
      this.#done[i] = true;
      for (const next of after.values()) if (this.#explains(next, count + (isCertain ? 1 : 0))) return true;
      this.#done[i] = false;
    }
    return false;
  }

  /** A look that can come next. It may come at once, so no other order needs to be tried. */
  #look(state: State, deadline: number): number | undefined {
    const found = this.#operations.findIndex(
      (operation, i) =>
        !this.#done[i] && operation.from <= deadline && isLook(operation) && statesAfter(state, operation).length > 0,
    );
    return found < 0 ? undefined : found;
  }
}

function line({
  act,
  from,
  to,
  answer = 'unknown',
  version,
  receipt,
  leaseMs,
  repeated,
  forgettable,
}: Operation): string {
  const time = (ms: number) => (ms < Number.POSITIVE_INFINITY ? (ms % 10_000_000).toFixed(1) : '…');
  const more = { version, receipt, leaseMs, repeated, forgettable };
  const words = Object.entries(more).flatMap(([name, value]) => (value ? `${name}=${value}` : []));
  return [`${time(from)}-${time(to)}`, act, answer, ...words].join(' ');
}
