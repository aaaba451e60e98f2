import {
  heldBackBy,
  LATE_MS,
  lag,
  orphans,
  partitionsOf,
  pausedUntil,
  stalled,
  stoppedGrowth,
} from '../admin/snapshot.js';
import type { Trend } from '../admin/trend.js';
import { packSettings, readSettings, SETTING_NAMES, type SettingsChange } from '../model/settings.js';
import { many, queueWord } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Snapshot } from '../store/inspect.js';
import { failing, hanging, MANY } from './failing.js';
import { bad, type Finding } from './finding.js';

/** What else is known of a queue. */
interface Known {
  /** Shows whether handlers fail, and whether the queue catches up. */
  readonly trend?: Trend | undefined;
  /** Formats the end of a pause; default: `for another 5m`. */
  readonly until?: (ms: number) => string;
}

/**
 * Returns the problems of a queue, the worst first; with the level `fail`, an operator should act now. The only place
 * that decides what is wrong, for inspect, doctor and {@link standing}.
 */
export function problems(queue: string, snapshot: Snapshot, known: Known = {}): Finding[] {
  const stopped = notDrained(snapshot) ?? paused(queue, snapshot, known.until);
  const broken = failingHandlers(queue, snapshot, known.trend);
  const stuck = stopped || broken?.level === 'fail' ? undefined : hangingHandlers(queue, snapshot);
  const found = [
    refusing(snapshot),
    stopped,
    broken,
    stuck,
    stopped || stuck || broken?.level === 'fail' ? undefined : lagging(queue, snapshot, known.trend),
    dead(queue, snapshot),
    growth(queue, snapshot),
    ...settings(queue, snapshot),
    withoutOther(queue, snapshot),
  ];
  return found.filter((problem) => problem !== undefined).map((problem) => ({ ...problem, queue }));
}

/** The problems of which check warns whatever its limits are, in words. */
export function standing(snapshot: Snapshot): string[] {
  const growth = growthInWords(snapshot);
  const repeat = growth && `${growth}: repeat config partitions=${partitionsOf(snapshot).count}`;
  return [pauseOf(snapshot), hanging(snapshot), repeat].filter((words) => words !== undefined);
}

/** A drain age in words. */
export function noDrainFor(ms: number): string {
  return ms === Number.POSITIVE_INFINITY ? 'never drained' : `no drain for ${formatDuration(ms)}`;
}

/** A pause in words; undefined: the queue is not paused. */
function pauseOf(snapshot: Snapshot, until?: Known['until']): string | undefined {
  const end = pausedUntil(snapshot);
  if (end === undefined) return undefined;
  if (end === Number.POSITIVE_INFINITY) return 'paused until resumed';
  return `paused ${until?.(end) ?? `for another ${formatDuration(end - snapshot.now)}`}`;
}

/** A stalled growth in words; undefined: there is none. */
function growthInWords(snapshot: Snapshot): string | undefined {
  const stopped = stoppedGrowth(snapshot);
  if (!stopped) return undefined;
  const { from, count, ms } = stopped;
  const since = ms === undefined ? '' : ` ${formatDuration(ms)} ago`;
  return `its growth from ${from} to ${count} partitions has stopped${since}`;
}

/** The command that resumes a growth. */
export const growthLine = (queue: string, count: number) => `delayq config ${queueWord(queue)} partitions=${count}`;

/** A lag that changes by less than this (ms per ms) counts as steady. */
export const STEADY = 0.05;

/** How the lag changes, such as "growing by 2m per minute"; empty if it is unknown, or will end with the backlog. */
export function courseOf(trend: Trend | undefined): string {
  if (!trend || (trend.lag > STEADY && trend.emptyInMs !== undefined)) return '';
  const slope = trend.lag;
  const each = `${formatDuration(Math.abs(slope) * 60_000)} per minute`;
  return slope > STEADY ? `growing by ${each}` : slope < -STEADY ? `falling by ${each}` : 'steady';
}

/** What there is to deliver, in words. */
function waiting(snapshot: Snapshot): string {
  const { due, runOut } = snapshot;
  if (due > 0)
    return `${many(due, 'job')} ${due === 1 ? 'is' : 'are'} due, the oldest for ${formatDuration(lag(snapshot))}`;
  return runOut > 0
    ? `${many(runOut, 'lease')} ${runOut === 1 ? 'has' : 'have'} expired`
    : `a recurring job has been due for ${formatDuration(lag(snapshot))}`;
}

function notDrained(snapshot: Snapshot): Finding | undefined {
  const age = stalled(snapshot);
  if (age === undefined) return undefined;
  const why = 'nothing is delivered: the consumer has stopped, or was never started';
  const next = 'check that cron, systemd or your loop still runs delayq drain, and what it logged';
  return bad('fail', 'no-drain', `${noDrainFor(age)}: ${waiting(snapshot)}`, why, next);
}

function paused(queue: string, snapshot: Snapshot, until: Known['until']): Finding | undefined {
  const pause = pauseOf(snapshot, until);
  if (pause === undefined) return undefined;
  const isLate = lag(snapshot) >= LATE_MS;
  const what = `${pause}${snapshot.due > 0 || isLate ? `: ${waiting(snapshot)}` : ''}`;
  const why = 'drains take no jobs from a paused queue';
  return bad(isLate ? 'fail' : 'warn', 'paused', what, why, `delayq resume ${queueWord(queue)}`);
}

function refusing({ refusal }: Snapshot): Finding | undefined {
  if (refusal === undefined) return undefined;
  const why = 'producers get errors; drain, ack and cancel still work while it is full';
  return bad('fail', 'refusal', refusal, why, 'delayq doctor');
}

function failingHandlers(queue: string, snapshot: Snapshot, trend: Trend | undefined): Finding | undefined {
  const found = failing(snapshot, trend);
  if (!found || found.share < MANY) return undefined;
  const all = found.share === 1;
  const what = all && snapshot.due > 0 ? `${found.what}; ${waiting(snapshot)}` : found.what;
  const why = all ? 'no handler succeeds' : 'at least half of the attempts fail';
  const word = queueWord(queue);
  const next = `delayq list --errors ${word}  # when it is mended: delayq reschedule --failed --in 0s --rate 10/s ${word}`;
  return bad(all ? 'fail' : 'warn', 'failing', what, why, next);
}

function hangingHandlers(queue: string, snapshot: Snapshot): Finding | undefined {
  const what = hanging(snapshot);
  if (what === undefined) return undefined;
  const why = 'jobs are due, and handlers do not end';
  const next = `delayq list --active ${queueWord(queue)}; stop what hangs, and limit its time: drain --timeout`;
  return bad(lag(snapshot) >= LATE_MS ? 'fail' : 'warn', 'hanging', `${what}; ${waiting(snapshot)}`, why, next);
}

function lagging(queue: string, snapshot: Snapshot, trend: Trend | undefined): Finding | undefined {
  if (lag(snapshot) < LATE_MS) return undefined;
  if (snapshot.due === 0) {
    const why = 'drains failed to make its job; their logs say why';
    return bad('fail', 'recurring', waiting(snapshot), why, `delayq doctor ${queueWord(queue)}`);
  }
  const limit = heldBackBy(snapshot, trend?.delivered);
  const why = limit ? 'jobs fall due faster than its limits allow' : 'jobs fall due faster than they are handled';
  const next = limit
    ? `raise the limit, if that is safe: delayq config ${queueWord(queue)}`
    : `see how long handlers take: delayq list --active ${queueWord(queue)}; then run more handlers (drain -P) or drains`;
  const found = (level: 'warn' | 'fail', what: string) =>
    bad(level, 'lag', limit ? `${what}; ${limit}` : what, why, next);
  if (!trend) return found('fail', `drained, but behind: ${waiting(snapshot)}`);
  // If many jobs fell due at once, the lag stays until the last of them is taken, even if drains keep up.
  if (trend.emptyInMs !== undefined) {
    return found('warn', `catching up: ${waiting(snapshot)}; empty in ${formatDuration(trend.emptyInMs)}`);
  }
  return trend.lag > STEADY ? found('fail', `falling behind: ${waiting(snapshot)}, ${courseOf(trend)}`) : undefined;
}

function dead(queue: string, snapshot: Snapshot): Finding | undefined {
  if (snapshot.dead === 0) return undefined;
  const why = 'they failed or were lost too often, or were set aside, and are not retried';
  const next = `delayq list --dead ${queueWord(queue)}; then delayq requeue, edit or cancel`;
  return { ...bad('warn', 'dead', many(snapshot.dead, 'dead job'), why, next), count: snapshot.dead };
}

function growth(queue: string, snapshot: Snapshot): Finding | undefined {
  const what = growthInWords(snapshot);
  if (what === undefined) return undefined;
  const why = 'the command that ran it has ended; until it is repeated, calls by id take longer';
  const next = growthLine(queue, partitionsOf(snapshot).count);
  return bad('fail', 'growth', `${what}: repeat ${next}`, why, next);
}

function settings(queue: string, snapshot: Snapshot): Finding[] {
  const { config } = snapshot;
  const read = readSettings(config);
  const unreadable = (name: string, next: string) => {
    const what = `its setting ${name} is ${JSON.stringify((config[name] ?? '').slice(0, 40))}`;
    return bad('warn', 'bad-setting', what, 'this cannot be read, so the default applies', next);
  };
  const found = SETTING_NAMES.filter((name) => config[name] !== undefined && !isValid(name, read[name])).map((name) =>
    unreadable(name, `delayq config ${queueWord(queue)} ${name}=`),
  );
  const isTime = pausedUntil(snapshot) !== undefined || Number.isFinite(Number(config.paused ?? 0));
  return isTime ? found : [...found, unreadable('paused', `delayq resume ${queueWord(queue)}`)];
}

function isValid(name: string, value: unknown): boolean {
  try {
    return value !== undefined && packSettings({ [name]: value } as SettingsChange).length > 0;
  } catch {
    return false;
  }
}

function withoutOther(queue: string, snapshot: Snapshot): Finding | undefined {
  const { ids, payloads } = orphans(snapshot);
  const count = ids + payloads;
  if (count === 0) return undefined;
  const orphan = `(${count === 1 ? 'orphan' : 'orphans'})`;
  // A drain or doctor moves ids without a payload to dead, where they do no harm.
  const where = ids <= snapshot.dead ? ', perhaps among the dead' : '';
  const [what, why] =
    ids > 0
      ? [`${many(ids, 'id')} without a payload ${orphan}${where}`, 'they cannot be delivered']
      : [`${many(payloads, 'payload')} without an id ${orphan}`, 'they are never delivered'];
  return { ...bad('fail', 'orphans', what, why, `delayq doctor ${queueWord(queue)}`), count };
}
