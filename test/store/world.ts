import type { Cell, Job, Op } from './one-id.js';

/** A guard of the protocol. A test leaves out one at a time, to show that the search can fail. */
export type Guard =
  | 'old maps are refused'
  | 'hold compares the layout'
  | 'restore compares the layout'
  | 'the grower advances p before it looks'
  | 'p is clean before partition 0 is advanced'
  | 'what nack and expired leases return is counted'
  | 'what is put back is counted'
  | 'what replace returns is counted'
  | 'active jobs are looked at'
  | 'a takeover keeps the token'
  | 'only who made a token removes it'
  | 'only who finished removes a token'
  | 'marks are copied'
  | 'restore asks p for the token'
  | 'restore asks p for the token after its transfer'
  | 'a restore that keeps an active job marks it'
  | 'a call by id transfers first'
  | 'replace and cancel of an active job are done in place'
  | 'a call in place is done only if the id is still active'
  | 'a call in place leaves holds of transfers alone'
  | 'show asks p first'
  | 'show transfers what a transfer holds'
  | 'a move takes over its hold at p'
  | 'a call by id takes along what is remembered'
  | 'the grower takes along what is remembered'
  | 'what is remembered is looked at last'
  | 'remember compares the layout'
  | 'no id is freed while a growth is open'
  | 'replicas have the marks before p is clean'
  | 'replicas have what is remembered before the call goes on'
  | 'replicas have what is remembered before it is removed'
  | 'replicas have what p lacks before q is asked'
  | 'replicas have the hold before restore'
  | 'replicas have the copy before finish'
  | 'replicas have the end before the token is removed'
  | 'replicas have the clean p before partition 0 is advanced'
  | 'p is looked through again after that'
  | 'left tokens are removed after the end of the growth'
  | 'what has left partition 0 is not sought there';

/** 0: the layout before the growth, 1: it is open, 2: it is done. A new partition begins without a layout: 0. */
export type Level = 0 | 1 | 2;

export interface Partition extends Cell {
  level: Level;
  /** Grows with each failover: a call that waits for replicas learns that its write may be lost. */
  era: number;
}

/** What a grower has found in a round: so p was not clean. */
export type Found = 'moved' | 'active' | 'remembered';

export interface Actor {
  readonly kind: 'client' | 'consumer' | 'grower' | 'failover';
  readonly name: string;
  /** Where it is: the next step. */
  at: string;
  /** The layout it believes. */
  level: Level;
  /** What is left to do. */
  todo: readonly Op[];
  /** The partition of the next step, or the one that refused. */
  part: number;
  /** The step after a transfer or a question, and that after a wait. */
  back: string;
  waited: string;
  /** How often a consumer may still take, or a server fail. */
  budget: number;
  receipt: string;
  token: string;
  copy: Job | null;
  /** The partition where its move holds the id, -1: none. */
  holds: number;
  /** Of a consumer: receipts with their partitions. */
  receipts: readonly (readonly [string, number])[];
  /** Of a grower: what it saw in this round. */
  returned: number;
  found: readonly Found[];
  /** p was clean before, and its replicas have that. */
  sure: boolean;
  marks: readonly string[];
  era: number;
  /** An operation that has begun, and what it will be answered. */
  op: Op | null;
  answer: string;
}

export interface World {
  parts: Partition[];
  actors: Actor[];
  /** What the queue without partitions may look like: a number of search.ts. */
  plain: number;
  /** In a world with failovers: what each partition was, since the last wait. */
  logs: string[][] | null;
}

export interface Shape {
  /** Partition 0 is not p: it only knows how many there are. */
  readonly apart: boolean;
  readonly without?: readonly Guard[];
}

export const emptyPart = (): Partition => ({ job: null, marks: [], returned: 0, done: null, level: 0, era: 0 });

export function actor(kind: Actor['kind'], name: string, todo: readonly Op[] = []): Actor {
  const at = kind === 'grower' ? 'read' : 'idle';
  const none = {
    part: 0,
    back: '',
    waited: '',
    budget: 0,
    receipt: '',
    token: '',
    copy: null,
    holds: -1,
    receipts: [],
    returned: -1,
  };
  return {
    kind,
    name,
    at,
    level: 0,
    todo,
    ...none,
    found: [],
    sure: false,
    marks: [],
    era: 0,
    op: null,
    answer: '',
  };
}
