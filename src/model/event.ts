import { DelayqError } from './errors.js';
import { printable } from './text.js';

/** What can happen to a job, and is kept by queues with `events`. docs/reference/json.md says what each means. */
export const EVENT_TYPES = [
  'enqueued',
  'replaced',
  'made',
  'restored',
  'adopted',
  'delivered',
  'removed',
  'returned',
  'acked',
  'retried',
  'released',
  'lost',
  'dead',
  'expired',
  'cancelled',
  'purged',
  'requeued',
  'rescheduled',
  'moved',
] as const;

export type EventType = (typeof EVENT_TYPES)[number];

/** Returns `words` if there are some, and all are types of events. Throws `usage` otherwise. */
export function checkEventTypes(words: readonly string[]): readonly EventType[] {
  const wrong = words.find((one) => !EVENT_TYPES.includes(one as EventType));
  if (wrong === undefined && words.length > 0) return words as EventType[];
  throw new DelayqError('usage', `${printable(wrong ?? '')} is no type of event`, {
    next: `the types are ${EVENT_TYPES.join(', ')}`,
  });
}

/** What happened to a job. */
export interface JobEvent {
  readonly type: EventType;
  /** The id of the job; empty if it is about many (`purged`). */
  readonly id: string;
  /** When, ms by the clock of the server that has the job. */
  readonly at: number;
  /** Who held the job, or takes it. */
  readonly by?: string;
  /** Which attempt it was. */
  readonly attempt?: number;
  /** When the job is due now, ms; of a delivery, when it was due. */
  readonly due?: number;
  /** Why a job is dead, as in StoredJob; where it was moved to; how many were purged. */
  readonly reason?: string;
  /** The error of a job that failed. */
  readonly error?: string;
  /** In which partition, if the queue has several. */
  readonly partition?: number;
}
