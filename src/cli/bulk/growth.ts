import type { Inspector } from '../../internal.js';
import type { Context } from '../host/context.js';
import { say } from '../terminal/output.js';

/**
 * To be called before jobs are listed. The function that it resolves with says, also by the exit status, if a growth has
 * moved jobs since: some may be missing from the list, or come twice.
 */
export async function warnerOfGrowth(
  context: Context,
  inspector: Inspector,
  queue: string,
): Promise<() => Promise<void>> {
  const before = await inspector.movement(queue);
  return async () => {
    if (before !== null && (await inspector.movement(queue)) === before) return;
    say(
      context,
      `partitions of ${queue} were growing: some jobs may be missing here, or come twice; repeat the command`,
    );
    context.outcomes.add('incomplete');
  };
}
