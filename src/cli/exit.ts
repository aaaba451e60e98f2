import type { ErrorCode } from '../internal.js';
import type { RunOutcome } from './host/context.js';

/** What the process exits with for each outcome: main.ts collects them, and nothing else knows these numbers. */
const STATUSES: Readonly<Record<RunOutcome | ErrorCode, number>> = {
  // Commands that ran to their end, or were stopped
  incomplete: 1,
  empty: 3,
  partial: 75,
  late: 75,
  interrupted: 130,
  // doctor
  ok: 0,
  warn: 1,
  fail: 2,
  // check: the statuses of a Nagios plugin
  OK: 0,
  WARNING: 1,
  CRITICAL: 2,
  UNKNOWN: 3,
  // Commands that failed: after sysexits.h
  missing: 3,
  usage: 64,
  data: 65,
  input: 66,
  unreachable: 69,
  internal: 70,
  output: 74,
  temporary: 75,
  unknown: 75,
  refused: 77,
  config: 78,
};

/** The exit status for these outcomes: the highest of theirs, and 0 for none. */
export function exitStatus(...outcomes: readonly (RunOutcome | ErrorCode)[]): number {
  return Math.max(0, ...outcomes.map((outcome) => STATUSES[outcome]));
}
