import { Connection } from './redis/connection.js';

/**
 * Connects to Redis, by default at redis://127.0.0.1:6379. Throws `usage` for a URL that cannot be read, and
 * `unreachable`, `refused` or `config` when there is no connection to be had, within 6 s. Close it when done.
 */
export async function connect(url?: string): Promise<Connection> {
  const redis = new Connection(url);
  await redis.connect();
  return redis;
}

export type { AdoptedSlice, AdoptOptions, ForeignQueue, LeftReason } from './admin/adopt.js';
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
} from './admin/inspector.js';
export { Operator } from './admin/operator.js';
export { type Exported, type ExportSlice, type Moved, SCORE, Transfer } from './admin/transfer.js';
export { type Trend, trend } from './admin/trend.js';
export { type AuditOptions, Auditor, type Found } from './health/audit.js';
export {
  CHECK_STATES,
  type Checked,
  type CheckState,
  check,
  DEFAULT_THRESHOLDS,
  type Limits,
  type Thresholds,
} from './health/check.js';
export { Doctor } from './health/doctor.js';
export { type Finding, type Level, shellWord, worst } from './health/finding.js';
export { type Measured, metricsText } from './health/metrics.js';
export { type Backoff, formatBackoff, parseBackoff } from './model/backoff.js';
export { Spread } from './model/due-times.js';
export { DelayqError, type ErrorCode, isDelayqError, isPassing } from './model/errors.js';
export { type Id, idOf, idWord, timeOfId } from './model/id.js';
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
} from './model/job.js';
export { decodeUtf8, JsonText, MAX_PAYLOAD, tooLarge } from './model/payload.js';
export {
  DEFAULT_SETTINGS,
  formatSetting,
  parseSetting,
  readSettings,
  SETTING_NAMES,
  type Settings,
  type SettingsChange,
} from './model/settings.js';
export { grouped, many } from './model/text.js';
export {
  exactDuration,
  formatDuration,
  formatTime,
  type Instant,
  parseAt,
  parseDuration,
  parseMoment,
  systemZone,
} from './model/time.js';
export type { BatchResult } from './queue/batches.js';
export type { EnqueueOptions } from './queue/enqueuer.js';
export { type NackOptions, Queue } from './queue/queue.js';
export { type Patience, patiently, settlePatiently } from './queue/retry.js';
export { Connection } from './redis/connection.js';
export type { Durability } from './redis/durability.js';
export { DEFAULT_PREFIX } from './redis/keys.js';
export { MAX_CALL } from './redis/script.js';
export { DEFAULT_URL, hasLogin, loginHider } from './redis/url.js';
export type { Buried, Cancelled, Paused, Purged, Requeued, Rescheduled } from './scripts/edit.js';
export type { Holder, Lateness, Snapshot, Span } from './scripts/inspect.js';
export type { Drained } from './scripts/jobs.js';
export type { Sample } from './scripts/samples.js';
export type { Parcel, Restored } from './scripts/transfer.js';
export { type GiveBack, Leases, type LeasesOptions, LONGEST_TIMER_MS, type Taken } from './worker/leases.js';
export { drainLoop, type LoopOptions } from './worker/poller.js';
export { Dead, Release, Retry, Task, type TaskOutcome, type TaskResult } from './worker/task.js';
export { BatchWorker, type Summary, Worker, type WorkerOptions } from './worker/worker.js';
