import { drainAge, heldBackBy, LATE_MS, lag } from '../admin/snapshot.js';
import { grouped, many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import { keysOf } from '../model/validate.js';
import type { Snapshot } from '../store/inspect.js';
import { failing, MANY } from './failing.js';
import { noDrainFor, standing } from './problems.js';

/** The highest values that are in order. Durations are ms. A value that is left out has no limit. */
export interface Limits {
  /** How long the oldest due job has been due. */
  readonly lag?: number | undefined;
  /** The number of dead jobs. */
  readonly dead?: number | undefined;
  /** Time since the last drain, whether it found jobs or not. */
  readonly drainAge?: number | undefined;
  /** The number of pending jobs, due or not. */
  readonly pending?: number | undefined;
  /** The share of the last attempts that fails, 0 to 1 (see {@link failing}); also beyond its limit if it reaches that. */
  readonly failing?: number | undefined;
}

/** Beyond `warn` the state is WARNING, beyond `max` it is CRITICAL. */
export interface Thresholds {
  readonly warn: Limits;
  readonly max: Limits;
}

/**
 * The default limits: 2 minutes late, a dead job, or half of the attempts failing is a warning, 5 minutes late or all
 * failing is critical.
 */
export const DEFAULT_THRESHOLDS: Thresholds = {
  warn: { lag: LATE_MS, dead: 0, failing: MANY },
  max: { lag: 300_000, failing: 1 },
};

const checkThresholds = keysOf<Thresholds>('check', { warn: true, max: true });
const checkLimits = keysOf<Limits>('a limit', { lag: true, dead: true, drainAge: true, pending: true, failing: true });

/** The result of a check, for monitoring. */
export interface Checked {
  /** The states of a Nagios plugin. */
  readonly state: 'OK' | 'WARNING' | 'CRITICAL' | 'UNKNOWN';
  /** What is beyond its limits; if nothing is, the main figures. */
  readonly says: string;
  /** Performance data: name=value[unit];warn;crit;min. */
  readonly data: readonly string[];
}

/**
 * Checks a queue, by the snapshot that {@link Inspector.inspect} returned, against limits. A paused queue is at
 * least a warning, and so is one whose growth has stopped.
 */
export function check(snapshot: Snapshot, thresholds: Thresholds): Checked {
  const { warn, max } = checkThresholds(thresholds);
  for (const limits of [warn, max]) checkLimits(limits);
  const { pending, active, due, dead } = snapshot;
  const late = lag(snapshot);
  // Undefined: there was no drain yet.
  const age = drainAge(snapshot) === Number.POSITIVE_INFINITY ? undefined : drainAge(snapshot);
  const limit = heldBackBy(snapshot);
  const oldest = due > 0 ? `the oldest of ${many(due, 'due job')}` : 'a recurring job';
  const isLate = `${oldest} is ${formatDuration(late)} late`;
  const broken = failing(snapshot);
  const percent = (share: number) => `${Math.round(share * 100)}%`;
  const measures = [
    { name: 'failing', value: broken?.share ?? 0, says: broken?.what, format: percent, reaches: true },
    { name: 'lag', value: late, says: limit ? `${isLate}, ${limit}` : isLate, format: formatDuration },
    { name: 'drainAge', value: age, says: noDrainFor(drainAge(snapshot)), format: formatDuration },
    { name: 'dead', value: dead, says: `${grouped(dead)} dead`, format: grouped },
    { name: 'pending', value: pending, says: `${grouped(pending)} pending`, format: grouped },
  ] as const;
  const beyond = (limits: Limits, others: Limits = {}) =>
    measures.flatMap(({ name, value, says, format, ...measure }) => {
      const isBeyond = (limit: number | undefined) =>
        limit !== undefined && (value === undefined || value > limit || ('reaches' in measure && value === limit));
      const limit = limits[name];
      return limit === undefined || !isBeyond(limit) || isBeyond(others[name])
        ? []
        : `${says} (limit ${format(limit)})`;
    });
  const critical = [...(snapshot.refusal ? [snapshot.refusal] : []), ...beyond(max)];
  const faults = [...standing(snapshot), ...critical, ...beyond(warn, max)];
  const seconds = (ms: number | undefined) => (ms === undefined ? undefined : Math.round(ms) / 1000);
  const data = (label: string, value: string | number, limitOf?: (limits: Limits) => number | undefined) =>
    `${label}=${value};${limitOf?.(warn) ?? ''};${limitOf?.(max) ?? ''};0`;
  return {
    state: critical.length > 0 ? 'CRITICAL' : faults.length > 0 ? 'WARNING' : 'OK',
    says:
      faults.join(', ') ||
      `${grouped(pending)} pending, ${grouped(due)} due, ${grouped(active)} active, ${grouped(dead)} dead`,
    data: [
      data('lag', `${seconds(late)}s`, (limits) => seconds(limits.lag)),
      data('pending', pending, (limits) => limits.pending),
      data('due', due),
      data('active', active),
      data('dead', dead, (limits) => limits.dead),
      data('failing', percent(broken?.share ?? 0), (limits) => limits.failing && limits.failing * 100),
      data('drain_age', age === undefined ? 'U' : `${seconds(age)}s`, (limits) => seconds(limits.drainAge)),
    ],
  };
}
