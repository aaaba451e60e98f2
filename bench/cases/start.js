// The time of one start, from the shell's fork to the exit: what every call from cron or a script costs.
import { writeFileSync } from 'node:fs';
import { installed, timedShell } from '../processes.js';
import { DELAYQ } from '../rig.js';
import { interleave } from '../rounds.js';
import { costs } from '../table.js';

/**
 * One sample is five starts in a row by a shell: forking a small shell costs almost nothing, forking a large Node process
 * costs milliseconds. The shell's own start adds a fraction of a ms to each.
 */
const STARTS = 5;
const LOOP = 'n=$1; shift; i=0; while [ $((i += 1)) -le "$n" ]; do "$@" </dev/null || exit; done';

/** A PHP producer: writes the same keys with MULTI. */
const PHP = `<?php
$redis = new Redis();
$redis->connect('127.0.0.1', (int) $argv[1]);
$id = bin2hex(random_bytes(8));
$redis->multi()->hSet('delayq:{start}:payload', $id, '{}')->zAdd('delayq:{start}:pending', time() * 1000, $id)->exec();
`;

/** @param {import('../rig.js').Rig} rig @returns {Promise<import('../table.js').Section[]>} */
export async function measure(rig) {
  const starts = rig.of({ full: STARTS, quick: STARTS, smoke: 1 });
  const php = rig.file('enqueue.php');
  writeFileSync(php, PHP);
  const hasPhp = installed('php') && (await works(['php', '-r', 'new Redis();']));
  const port = String(rig.port);
  /** @type {Record<string, string[] | undefined>} */
  const commands = {
    node: [process.execPath, '-e', '0'],
    'redis-cli': installed('redis-cli') ? ['redis-cli', '-p', port, 'ping'] : undefined,
    php: hasPhp ? ['php', php, port] : undefined,
    '--version': [DELAYQ, '--version'],
    '--help': [DELAYQ, '--help'],
    enqueue: [DELAYQ, 'enqueue', '-q', 'start', '{}'],
    drain: [DELAYQ, 'drain', 'empty'],
    inspect: [DELAYQ, 'inspect'],
  };
  const contender = (command) =>
    command &&
    (async () => ((await timedShell(LOOP, [String(starts), ...command], { env: rig.env })).seconds * 1e3) / starts);
  // The first starts do not count: they read from disk and write the cache of compiled code.
  for (const command of Object.values(commands)) await contender(command)?.();
  await rig.flush();
  const contenders = Object.fromEntries(Object.entries(commands).map(([name, command]) => [name, contender(command)]));
  // At least 20 starts of each.
  const ms = await interleave(Math.max(rig.rounds(5), rig.of({ full: 4, quick: 4, smoke: 1 })), contenders);
  const row = (name, what, target) => ({ name: what, ours: ms[name], theirs: ms.node, target });
  return [
    costs('One start of the command line, against node -e 0', 'ms', [
      row('--version', 'delayq --version', { ratio: 1.5 }),
      row('--help', 'delayq --help', { ratio: 1.5 }),
      row('enqueue', "delayq enqueue Q '{}'", { ratio: 2.3 }),
      row('drain', 'delayq drain Q, nothing due', { ratio: 2.3 }),
      row('inspect', 'delayq inspect'),
      { name: 'enqueue, against PHP (php-redis)', ours: ms.enqueue, theirs: ms.php },
      { name: 'enqueue, against redis-cli ping', ours: ms.enqueue, theirs: ms['redis-cli'] },
    ]),
  ];
}

async function works(command) {
  return timedShell('"$@"', command).then(
    () => true,
    () => false,
  );
}
