/*
 * What the command `serve` loads: a file of its own, beside that of all other commands.
 */
import { DelayqError } from '../index.js';
import { framesOf } from './http/log.js';
import { Server, type ServerOptions } from './server.js';

/**
 * Serves until the signal aborts and what runs has ended. Resolves to the number of requests that were cut off because
 * they took too long. Throws `config` if it cannot listen, or must not without a token; `internal` for an error that
 * nothing has caught.
 */
export async function serve(options: ServerOptions): Promise<number> {
  const server = new Server(options);
  const { warn } = console;
  // ioredis warns of a password that Redis does not ask for, on each connection.
  const warned = new Set<string>();
  console.warn = (text: string) => {
    if (!warned.has(text)) options.log(`delayq serve: ${text.replace(/^\[\w+\] /, '')}\n`);
    warned.add(text);
  };
  const failed = new Promise<never>((_, reject) => {
    process.setUncaughtExceptionCaptureCallback((error) => {
      // Its message may hold what no log may.
      const next = 'please report this as a bug';
      reject(new DelayqError('internal', 'delayq serve itself failed', { why: framesOf(error), next }));
    });
  });
  try {
    return await Promise.race([server.run(), failed]);
  } finally {
    await server.cut();
    process.setUncaughtExceptionCaptureCallback(null);
    console.warn = warn;
  }
}
