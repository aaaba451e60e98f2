// Counts what consumers ask of Redis.
import { once } from 'node:events';
import { connect } from 'node:net';
import { createInterface } from 'node:readline';

/**
 * Counts the calls of the clients that are connected now, and the commands that Redis runs for them: the calls, and what
 * scripts call inside. By a socket of its own: ioredis's monitor fails if a command comes in the same packet as the OK.
 *
 * @param {import('./rig.js').Rig} rig
 */
export async function tally({ admin, port }) {
  const clients = new Set(String(await admin.client('LIST')).match(/(?<=\baddr=)\S+/g));
  const counts = { calls: 0, commands: 0 };
  let ours = false;
  const socket = connect(port, '127.0.0.1');
  const lines = createInterface({ input: socket });
  socket.write('MONITOR\r\n');
  const [answer] = await once(lines, 'line');
  if (answer !== '+OK') throw new Error(`MONITOR: ${answer}`);
  lines.on('line', (line) => {
    const [, source] = /^\+\S+ \[\d+ (\S+?)\]/.exec(line) ?? [];
    // What a script calls follows the call of the script.
    if (source !== 'lua') {
      ours = clients.has(source);
      counts.calls += ours ? 1 : 0;
    }
    counts.commands += ours ? 1 : 0;
  });
  return { counts, end: () => socket.destroy() };
}
