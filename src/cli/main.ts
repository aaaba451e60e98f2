import { exitStatus } from './exit.js';
import { ownProcess } from './host/host.js';
import { run } from './run.js';

export { run };

/** Runs the command line of this process, and ends it. bin/start.js calls this. */
export function main(): void {
  // If Node finds nothing left to wait for before the run has ended, that is a bug, not a success.
  process.exitCode = exitStatus('internal');
  const host = ownProcess();
  run(host).then((status) => host.exit(status));
}
