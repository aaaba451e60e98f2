/**
 * What the scripts do to one id, in one partition or in a queue without partitions. The scripts themselves are compared
 * with a model in test/store/model.test.ts; here only what growth can disturb is kept: sets, leases, tokens.
 */
interface Lease {
  readonly receipt: string;
  /** A consumer, a transfer between partitions, or a move to another queue. */
  readonly by: 'consumer' | 'transfer' | 'move';
  /** Of a hold: the word that restore remembers, and where the job goes if it is put back. */
  readonly token?: string;
  readonly was?: 'pending' | 'dead';
}

export interface Job {
  readonly set: 'pending' | 'active' | 'dead';
  /** Which enqueue wrote the payload. */
  readonly version: string;
  readonly lease?: Lease;
}

export interface Cell {
  job: Job | null;
  /** Tokens that restore has brought, and receipts of superseded leases. Sorted. */
  marks: string[];
  /** How often the id went from active back to pending or dead. */
  returned: number;
  /** Whether the id is remembered since its job was done; null: the queue has no windows. */
  done: boolean | null;
}

export type Op =
  | { readonly do: 'keep' | 'replace'; readonly version: string }
  | { readonly do: 'cancel'; readonly states: readonly Job['set'][] }
  | { readonly do: 'requeue' | 'bury' | 'show' | 'expire' }
  | { readonly do: 'take' | 'ack' | 'retry' | 'refuse'; readonly receipt: string }
  | { readonly do: 'hold'; readonly receipt: string; readonly by: 'transfer' | 'move'; readonly supersede?: boolean }
  | { readonly do: 'restore'; readonly version: string; readonly set: 'pending' | 'dead'; readonly token: string }
  | { readonly do: 'finish'; readonly receipt: string; readonly how: 'moved' | 'back' }
  | { readonly do: 'forget'; readonly token: string };

const mark = (cell: Cell, word: string) => {
  if (!cell.marks.includes(word)) cell.marks = [...cell.marks, word].sort();
};
const unmark = (cell: Cell, word: string) => {
  cell.marks = cell.marks.filter((other) => other !== word);
};
const supersede = (cell: Cell) => {
  if (cell.job?.lease) mark(cell, cell.job.lease.receipt);
};

/** Runs one script. Changes `cell`, and returns what the script answers. */
export function script(cell: Cell, op: Op): string {
  const { job } = cell;
  switch (op.do) {
    case 'keep':
      if (!job && cell.done) return 'kept-done';
      if (job) return job.set === 'dead' ? 'kept-dead' : 'kept';
      cell.job = { set: 'pending', version: op.version };
      return 'created';
    case 'replace':
      if (!job && cell.done) return 'kept-done';
      supersede(cell);
      // Of an active mover: it is pending again where it was active.
      if (job?.set === 'active') cell.returned++;
      cell.job = { set: 'pending', version: op.version };
      return job ? 'replaced' : 'created';
    case 'cancel':
      if (!job && cell.done) {
        cell.done = false;
        return 'freed';
      }
      // What a transfer holds may be at q already.
      if (!job || !op.states.includes(job.set) || job.lease?.by === 'transfer') return 'missing';
      supersede(cell);
      cell.job = null;
      // An earlier job of this id may be remembered, too.
      if (cell.done) cell.done = false;
      return job.set;
    case 'requeue':
      if (job?.set !== 'dead') return 'not dead';
      cell.job = { set: 'pending', version: job.version };
      return 'requeued';
    case 'bury':
      if (job?.set !== 'pending') return job?.set ?? 'missing';
      cell.job = { set: 'dead', version: job.version };
      return 'buried';
    case 'show':
      return job ? `${job.set} ${job.version}` : 'missing';
    case 'take':
      if (job?.set !== 'pending') return 'none';
      cell.job = { ...job, set: 'active', lease: { receipt: op.receipt, by: 'consumer' } };
      return `took ${job.version}`;
    case 'expire':
      if (job?.lease?.by !== 'consumer') return 'none';
      cell.returned++;
      cell.job = { set: 'pending', version: job.version };
      return 'expired';
    case 'ack':
    case 'retry':
    case 'refuse':
      return settle(cell, op.do, op.receipt);
    case 'hold':
      return hold(cell, op);
    case 'restore':
      if (cell.marks.includes(op.token)) return 'kept';
      if (job?.lease?.token) return 'held';
      if (job && job.version !== op.version) return 'differs';
      if (job?.set === 'dead' && op.set === 'pending') return 'kept-dead';
      mark(cell, op.token);
      if (job) return 'kept';
      cell.job = { set: op.set, version: op.version };
      return 'created';
    case 'finish': {
      if (!job?.lease || job.lease.receipt !== op.receipt) return answerOf(cell, op.receipt);
      if (op.how === 'back') cell.returned++;
      cell.job = op.how === 'back' ? { set: job.lease.was ?? 'pending', version: job.version } : null;
      return 'held';
    }
    case 'forget':
      unmark(cell, op.token);
      return 'forgotten';
  }
}

function answerOf(cell: Cell, receipt: string): string {
  const was = cell.marks.includes(receipt);
  unmark(cell, receipt);
  return was ? 'superseded' : 'lost';
}

function settle(cell: Cell, how: 'ack' | 'retry' | 'refuse', receipt: string): string {
  const { job } = cell;
  if (job?.lease?.receipt !== receipt) return answerOf(cell, receipt);
  cell.job = how === 'ack' ? null : { set: how === 'retry' ? 'pending' : 'dead', version: job.version };
  if (how !== 'ack') cell.returned++;
  else if (cell.done !== null) cell.done = true;
  return 'held';
}

function hold(cell: Cell, op: Op & { do: 'hold' }): string {
  const { job } = cell;
  if (!job) return 'missing';
  const { lease } = job;
  const mine = lease?.by === op.by;
  if (lease && !mine && !op.supersede) return 'active';
  if (lease && !mine) supersede(cell);
  const token = (mine && lease?.token) || op.receipt;
  const was = lease?.was ?? (job.set === 'dead' ? 'dead' : 'pending');
  cell.job = { set: 'active', version: job.version, lease: { receipt: op.receipt, by: op.by, token, was } };
  return 'held';
}
