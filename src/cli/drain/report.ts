import type { Queue } from '../../internal.js';
import type { Form } from '../lines/drain-line.js';
import type { Notes } from '../terminal/notes.js';

/** A drain as every form of delivery sees it. Durations are ms. */
export interface Drain {
  readonly queues: readonly Queue[];
  /** The most jobs to take. */
  readonly limit: number | undefined;
  /** Left out: as each queue's config says. */
  readonly leaseMs: number | undefined;
  readonly watch: boolean;
  readonly forMs: number | undefined;
  /** How long a drain that is stopped waits for whoever has jobs in hand. */
  readonly graceMs: number;
  readonly stop: AbortSignal;
  /** Resolves when the drain was stopped and that time is over. */
  readonly graceOver: Promise<'over'>;
  /** What is written of a job. */
  readonly form: Form;
  readonly notes: Notes;
}
