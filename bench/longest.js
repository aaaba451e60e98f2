// The longest calls of scripts, which block Redis, and the longest stall of the machine itself.
import { installed, printed } from './processes.js';

/** Has Redis log calls of 1 ms and more, until `slowest` is asked for. @param {import('./rig.js').Rig} rig */
export async function logSlowCalls(rig) {
  await rig.admin.config('SET', 'slowlog-max-len', '100000', 'slowlog-log-slower-than', '1000');
  await slowest(rig);
}

/** Calls of scripts since the last time: the longest, ms (at least 1), and how many. @param {import('./rig.js').Rig} rig */
export async function slowest(rig) {
  const entries = await rig.admin.slowlog('GET', 100_000);
  // EVAL is the first call of a script that Redis does not know yet.
  const stats = [await rig.commandStats('evalsha'), await rig.commandStats('eval')];
  const [calls, usec] = ['calls', 'usec'].map((name) => stats[0][name] + stats[1][name]);
  await rig.admin.slowlog('RESET');
  await rig.admin.config('RESETSTAT');
  const times = entries.filter(([, , , [name]]) => /^eval/i.test(name)).map(([, , us]) => us / 1_000);
  return { longest: Math.max(1, ...times), slow: times.filter((ms) => ms > 3).length, calls, usec };
}

/** A line about all calls. @param {Awaited<ReturnType<typeof slowest>>[]} rounds */
export function aboutCalls(rounds) {
  const sum = (name) => rounds.reduce((total, round) => total + round[name], 0);
  const mean = (sum('usec') / sum('calls') / 1_000).toFixed(2);
  return `over 3 ms: ${sum('slow')} of ${sum('calls').toLocaleString('en')} calls; mean ${mean} ms`;
}

/** The longest stall of a busy loop within 3 s, ms. Undefined without redis-cli. @param {import('./rig.js').Rig} rig */
export async function longestStall(rig) {
  if (!installed('redis-cli')) return;
  const said = await printed(['redis-cli', '--intrinsic-latency', rig.of({ full: '3', quick: '3', smoke: '1' })]);
  return [Number([...said.matchAll(/Max latency so far: (\d+)/g)].at(-1)?.[1]) / 1_000];
}
