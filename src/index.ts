import { Connection } from './redis.js';

/**
 * Connects to Redis, by default at redis://127.0.0.1:6379. Throws `usage` for a URL that cannot be read, and
 * `unreachable`, `refused` or `config` when there is no connection to be had, within 6 s. Close it when done.
 */
export async function connect(url?: string): Promise<Connection> {
  const redis = new Connection(url);
  await redis.connect();
  return redis;
}

export type { Buried, Cancelled, Paused, Purged, Requeued, Rescheduled } from './acts.js';
export type { AdoptedSlice, AdoptOptions, ForeignQueue, LeftReason } from './adoption.js';
export { type AuditOptions, Auditor, type Found } from './audit.js';
export { type Backoff, formatBackoff, parseBackoff } from './backoff.js';
export type { BatchResult } from './batches.js';
export {
  CHECK_STATES,
  type Checked,
  type CheckState,
  check,
  DEFAULT_THRESHOLDS,
  type Limits,
  type Thresholds,
} from './check.js';
export { Doctor } from './doctor.js';
export type { Durability } from './durability.js';
export type { EnqueueOptions } from './enqueuer.js';
export { DelayqError, type ErrorCode, isDelayqError, isPassing } from './errors.js';
export { type Finding, type Level, shellWord, worst } from './finding.js';
export { type Id, idOf, idWord, timeOfId } from './ids.js';
export {
  drainAge,
  exists,
  type Filter,
  Inspector,
  LATE_MS,
  lag,
  orphans,
  pausedUntil,
  stalled,
  standing,
} from './inspector.js';
export {
  type Answer,
  type Confirmed,
  checkId,
  checkName,
  type Enqueued,
  type Given,
  type Held,
  type Job,
  MAX_ERROR,
  type NackAnswer,
  type Nacked,
  type NewJob,
  type Outcome,
  printable,
  type StoredJob,
} from './job.js';
export { DEFAULT_PREFIX } from './keys.js';
export { type GiveBack, Leases, type LeasesOptions, LONGEST_TIMER_MS, type Taken } from './leases.js';
export type { Holder, Lateness, Snapshot, Span } from './looks.js';
export { drainLoop, type LoopOptions } from './loop.js';
export { type Measured, metricsText } from './metrics.js';
export type { Parcel, Restored } from './moves.js';
export { grouped, many } from './numbers.js';
export { Operator } from './operator.js';
export { type Patience, patiently, settlePatiently } from './patience.js';
export { decodeUtf8, JsonText, MAX_PAYLOAD, tooLarge } from './payload.js';
export { type NackOptions, Queue } from './queue.js';
export { Connection } from './redis.js';
export { MAX_CALL } from './script.js';
export type { Drained } from './scripts.js';
export {
  DEFAULT_SETTINGS,
  formatSetting,
  parseSetting,
  readSettings,
  SETTING_NAMES,
  type Settings,
  type SettingsChange,
} from './settings.js';
export { Spread } from './spread.js';
export { Dead, Release, Retry, Task, type TaskOutcome, type TaskResult } from './task.js';
export {
  exactDuration,
  formatDuration,
  formatTime,
  type Instant,
  parseAt,
  parseDuration,
  parseMoment,
  systemZone,
} from './time.js';
export { type Exported, type ExportSlice, type Moved, SCORE, Transfer } from './transfer.js';
export { type Sample, type Trend, trend } from './trend.js';
export { DEFAULT_URL, hasLogin, loginHider } from './url.js';
export { BatchWorker, type Summary, Worker, type WorkerOptions } from './worker.js';
