import { LATE_MS, lag, pausedUntil, stalled } from '../admin/snapshot.js';
import { packSettings, readSettings, SETTING_NAMES, type SettingsChange } from '../model/settings.js';
import { many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Snapshot } from '../scripts/inspect.js';
import { bad, type Finding } from './finding.js';

/*
 * What a single snapshot tells of a queue that is sound and yet needs somebody: nobody drains it, it lags, jobs are dead.
 */

/** What somebody should look after in a queue. All of it are warnings. */
export function conditions(queue: string, snapshot: Snapshot): Finding[] {
  const found: (Finding | undefined)[] = [
    drained(queue, snapshot),
    dead(queue, snapshot),
    ...settings(queue, snapshot),
  ];
  return found.filter((finding) => finding !== undefined).map((finding) => ({ ...finding, queue }));
}

function drained(queue: string, snapshot: Snapshot): Finding | undefined {
  const { due, runOut, now } = snapshot;
  const waiting = due > 0 ? `${many(due, 'job')} due` : `${many(runOut, 'lease')} run out`;
  const paused = pausedUntil(snapshot);
  if (paused !== undefined) {
    const until = paused === Number.POSITIVE_INFINITY ? '' : ` for another ${formatDuration(paused - now)}`;
    const meanwhile = due > 0 ? `: ${many(due, 'job')} due meanwhile` : '';
    return bad('warn', 'paused', `paused${until}${meanwhile}`, 'drains take nothing from it', `delayq resume ${queue}`);
  }
  const idle = stalled(snapshot);
  const late = lag(snapshot);
  if (idle !== undefined) {
    return bad(
      'warn',
      'no-drain',
      `${idle === Number.POSITIVE_INFINITY ? 'never drained' : `no drain for ${formatDuration(idle)}`}, with ${waiting}`,
      'its consumer has stopped, or was never started: nothing is delivered',
      'see that cron, systemd or the loop which runs delayq drain does, and what it logged',
    );
  }
  if (late < LATE_MS) return undefined;
  return bad(
    'warn',
    'lag',
    `drained, but behind: ${many(due, 'job')} due, the oldest ${formatDuration(late)} late`,
    'jobs come in faster than they are handled',
    `see how long handlers take: delayq list --active ${queue}; then run more at once (drain -P) or more drains`,
  );
}

function dead(queue: string, snapshot: Snapshot): Finding | undefined {
  if (snapshot.dead === 0) return undefined;
  return {
    ...bad(
      'warn',
      'dead',
      `${many(snapshot.dead, 'job')} dead`,
      'they failed, were lost or were set aside too often to be tried again by themselves',
      `delayq list --dead ${queue}; then delayq requeue or delayq cancel`,
    ),
    count: snapshot.dead,
  };
}

/** Settings that cannot be read. */
function settings(queue: string, snapshot: Snapshot): Finding[] {
  const { config } = snapshot;
  const read = readSettings(config);
  const broken = SETTING_NAMES.filter((name) => config[name] !== undefined && !sane(name, read[name]));
  const found = broken.map((name) => unreadable(name, config[name], `delayq config ${queue} ${name}=`));
  const { paused = '0' } = config;
  const isPause = pausedUntil(snapshot) !== undefined || Number.isFinite(Number(paused));
  return isPause ? found : [...found, unreadable('paused', paused, `delayq resume ${queue}`)];
}

function unreadable(name: string, value = '', next: string): Finding {
  const what = `its setting ${name} is ${JSON.stringify(value.slice(0, 40))}`;
  return bad('warn', 'bad-setting', what, 'that cannot be read, so the default of delayq holds', next);
}

function sane(name: string, value: unknown): boolean {
  try {
    return value !== undefined && packSettings({ [name]: value } as SettingsChange).length > 0;
  } catch {
    return false;
  }
}
