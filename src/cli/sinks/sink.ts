import type { Batch } from '../../index.js';

/** Takes the jobs of a drain off its hands. */
export interface Sink {
  /** Takes a batch; resolves when there is room for the next. False: no more are wanted. */
  take(batch: Batch): Promise<boolean>;
  /** Makes the jobs of a batch that was not taken pending again. */
  giveBack(batch: Batch): Promise<void>;
  /**
   * Called once, when no batch follows: because all was taken (`done`), because the drain was told to stop (`stopped`),
   * or because it failed. Whatever is not known to be done by then is given back.
   */
  end(why: 'done' | 'stopped' | 'failed'): Promise<void>;
}
