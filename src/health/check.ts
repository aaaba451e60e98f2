import { drainAge, LATE_MS, lag, pausedUntil } from '../admin/snapshot.js';
import { grouped } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Snapshot } from '../scripts/inspect.js';

/*
 * Whether a queue keeps within limits, for monitoring: the states, words and performance data of a Nagios plugin.
 */

/** Limits of a queue; a value above one is out of it. Durations are ms. What is left out is not limited. */
export interface Limits {
  /** How long the oldest due job may have been due. */
  readonly lag?: number | undefined;
  /** How many jobs may be dead. */
  readonly dead?: number | undefined;
  /** How long ago the last drain may be, whether it found anything or not. */
  readonly drainAge?: number | undefined;
  /** How many jobs may wait, due or not. */
  readonly pending?: number | undefined;
}

/** Limits from which on somebody should look, and from which on somebody must. */
export interface Thresholds {
  readonly warn: Limits;
  readonly max: Limits;
}

/** What holds when nobody says anything: late by two minutes, or a dead job, is worth a look; late by five is an incident. */
export const DEFAULT_THRESHOLDS: Thresholds = { warn: { lag: LATE_MS, dead: 0 }, max: { lag: 300_000 } };

/** The states of a Nagios plugin. */
type CheckState = 'OK' | 'WARNING' | 'CRITICAL' | 'UNKNOWN';

/** How a queue was found. */
export interface Checked {
  readonly state: CheckState;
  /** What is out of its limits, or, when nothing is, how it stands. */
  readonly says: string;
  /** Performance data as monitoring takes it: name=value[unit];warn;crit;min. */
  readonly data: readonly string[];
}

interface Measure {
  readonly name: keyof Limits;
  /** Undefined: there has been none. */
  readonly value: number | undefined;
  readonly says: string;
}

/** Judges a queue by limits. */
export function check(snapshot: Snapshot, { warn, max }: Thresholds): Checked {
  const { pending, active, due, dead } = snapshot;
  const late = lag(snapshot);
  const age = drainAge(snapshot) === Number.POSITIVE_INFINITY ? undefined : drainAge(snapshot);
  const paused = pausedUntil(snapshot);
  const measures: Measure[] = [
    { name: 'lag', value: late, says: `the oldest of ${grouped(due)} due ${formatDuration(late)} late` },
    {
      name: 'drainAge',
      value: age,
      says: age === undefined ? 'never drained' : `no drain for ${formatDuration(age)}`,
    },
    { name: 'dead', value: dead, says: `${grouped(dead)} dead` },
    { name: 'pending', value: pending, says: `${grouped(pending)} pending` },
  ];
  const beyond = (limits: Limits) => measures.filter(({ name, value }) => isBeyond(value, limits[name]));
  const critical = beyond(max);
  const warned = beyond(warn).filter((measure) => !critical.includes(measure));
  const faults = [...critical, ...warned].map(({ name, says }) => {
    const limit = (critical.some((measure) => measure.name === name) ? max : warn)[name] as number;
    return `${says} (limit ${name === 'dead' || name === 'pending' ? grouped(limit) : formatDuration(limit)})`;
  });
  if (paused !== undefined) {
    faults.push(
      paused === Number.POSITIVE_INFINITY ? 'paused' : `paused for another ${formatDuration(paused - snapshot.now)}`,
    );
  }
  const seconds = (ms: number | undefined) => (ms === undefined ? undefined : Math.round(ms) / 1000);
  const data = (label: string, value: number | undefined, unit = '', name?: keyof Limits) => {
    const limit = (limits: Limits) => {
      const n = name === undefined ? undefined : limits[name];
      return (unit === 's' ? seconds(n) : n) ?? '';
    };
    return `${label}=${value === undefined ? 'U' : `${value}${unit}`};${limit(warn)};${limit(max)};0`;
  };
  return {
    state: critical.length > 0 ? 'CRITICAL' : faults.length > 0 ? 'WARNING' : 'OK',
    says:
      faults.join(', ') ||
      `${grouped(pending)} pending, ${grouped(due)} due, ${grouped(active)} active, ${grouped(dead)} dead`,
    data: [
      data('lag', seconds(late), 's', 'lag'),
      data('pending', pending, '', 'pending'),
      data('due', due),
      data('active', active),
      data('dead', dead, '', 'dead'),
      data('drain_age', seconds(age), 's', 'drainAge'),
    ],
  };
}

function isBeyond(value: number | undefined, limit: number | undefined): boolean {
  return limit !== undefined && (value === undefined || value > limit);
}
