import type { Batch } from '../../index.js';

/** Takes the jobs of a drain off its hands. */
export interface Sink {
  /** Takes a batch; resolves when there is room for the next. False: no more are wanted. */
  take(batch: Batch): Promise<boolean>;
  /** Called once, when no batch follows: finishes or gives back whatever is still in hand. */
  end(): Promise<void>;
}
