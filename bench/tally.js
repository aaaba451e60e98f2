// Counts what consumers ask of Redis.

/**
 * Counts the calls of the clients that are connected now, and the commands that Redis runs for them: the calls, and what
 * scripts call inside.
 *
 * @param {import('ioredis').Redis} admin
 */
export async function tally(admin) {
  const clients = new Set(String(await admin.client('LIST')).match(/(?<=\baddr=)\S+/g));
  const counts = { calls: 0, commands: 0 };
  let ours = false;
  const monitor = await admin.monitor();
  monitor.on('monitor', (_, __, source) => {
    // What a script calls follows the call of the script.
    if (source !== 'lua') {
      ours = clients.has(source);
      counts.calls += ours ? 1 : 0;
    }
    counts.commands += ours ? 1 : 0;
  });
  return { counts, end: () => monitor.disconnect() };
}
