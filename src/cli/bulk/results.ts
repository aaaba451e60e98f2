import type { Buried, Cancelled, Moved, Requeued, Rescheduled } from '../../internal.js';

/** The result of an edit for a job, and the words that report it. */
export interface EditResult {
  /** The job is as the caller wants it. Otherwise the exit status is 1. */
  readonly isDone: boolean;
  /** Printed after the id of the job. */
  readonly text?: string;
  /** Printed after the number of such jobs that a filter has found, instead of a line for each. */
  readonly total?: string;
  /** The job has gone, or is in another state. For jobs that a filter has found this is not reported, and no failure. */
  readonly isElsewhere?: boolean;
}

const DONE: EditResult = { isDone: true };

/** The results of all edits of jobs of `queue`; `into` is the other queue of a move. */
export const resultsOf = (queue: string, into = '') => {
  const missing = { isDone: false, isElsewhere: true, text: `is not in ${queue}: it is done, or never existed` };
  const active = { isDone: false, isElsewhere: true, text: 'is active, and was left as it is' };
  const stays = (why: string): EditResult => ({ isDone: false, text: `stays in ${queue}: ${why}` });
  return {
    cancel: {
      pending: DONE,
      active: {
        isDone: true,
        text: 'was active: its handler keeps running',
        total: 'were active: their handlers keep running',
      },
      dead: DONE,
      freed: { isDone: true, isElsewhere: true, text: 'was done, but remembered: its id is free again' },
      missing,
    },
    reschedule: {
      rescheduled: DONE,
      active,
      dead: { isDone: false, isElsewhere: true, text: 'is dead, and was left as it is: to retry it, delayq requeue' },
      missing,
    },
    requeue: {
      requeued: DONE,
      missing: { isDone: false, isElsewhere: true, text: `is not in the dead set of ${queue}` },
      orphaned: { isDone: false, text: 'has no payload and stays dead: to give it one, delayq edit' },
      'bad-id': {
        isDone: false,
        text: 'stays dead: its id is not UTF-8 or has a NUL byte; export it, then import it under another id',
        total: 'stay dead: their ids are not UTF-8 or have NUL bytes; export them, then import them under other ids',
      },
    },
    bury: {
      buried: DONE,
      active,
      dead: { isDone: false, isElsewhere: true, text: 'is dead already' },
      missing,
    },
    move: {
      moved: DONE,
      kept: {
        isDone: true,
        text: `was in ${into} already, with the same payload: only that one is left`,
        total: `were in ${into} already, with the same payload: only those are left`,
      },
      differs: stays(`${into} has another job under this id`),
      'kept-dead': stays(`it is dead in ${into}`),
      held: stays(`an interrupted move holds this id in ${into} (see: delayq show ${into} ID)`),
      active: { ...stays('it is active'), isElsewhere: true },
      orphaned: stays('it has no payload'),
      missing: { isDone: false, isElsewhere: true, text: `is not in ${queue}` },
      superseded: { isDone: false, text: `was cancelled or replaced; its copy in ${into} stays` },
    },
  } satisfies {
    cancel: Record<Cancelled, EditResult>;
    reschedule: Record<Rescheduled, EditResult>;
    requeue: Record<Requeued, EditResult>;
    bury: Record<Buried, EditResult>;
    move: Record<Moved, EditResult>;
  };
};
