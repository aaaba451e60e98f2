import { exitStatus } from './exit.js';
import { ownProcess } from './host/host.js';
import { run } from './run.js';

export { run };

/** Runs the command line of this process, and ends it. bin/start.js calls this. */
export function main(): void {
  // If Node finds nothing left to wait for before the run has ended, that is a bug, not a success.
  process.exitCode = exitStatus('internal');
  hushUnneededPassword();
  const host = ownProcess();
  run(host).then((status) => host.exit(status));
}

/**
 * ioredis prints a warning on each connection if a password was given to a Redis that asks for none. No command does
 * anything else because of that, and cron would mail it every minute. `serve`, which starts seldom, logs it once.
 */
function hushUnneededPassword(): void {
  const { warn } = console;
  console.warn = (...words: unknown[]) => {
    if (!String(words[0]).includes('does not require a password')) warn(...words);
  };
}
