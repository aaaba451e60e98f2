import { isDelayqError } from './model/errors.js';
import type { ConnectOptions } from './net/url.js';
import { Connection } from './redis/connection.js';

/**
 * Connects to Redis: at a URL (`redis://`, `rediss://` or `unix://`) or by options; the default is
 * redis://127.0.0.1:6379. A client of another library is not accepted: its settings may send a script twice. Call
 * `close()` on the connection when you are done.
 *
 * Throws `usage` for an invalid URL or option, and `unreachable`, `refused` or `config`, within 6 s, if it cannot
 * connect.
 */
export async function connect(to?: string | ConnectOptions): Promise<Connection> {
  const redis = new Connection(to);
  await redis.connect();
  // Redis rejects no connection without a password, but the first call on it.
  await redis.now().catch((error: unknown) => {
    if (!isDelayqError(error, 'refused')) return;
    redis.close();
    throw error;
  });
  return redis;
}

export type { AdoptedSlice, AdoptOptions } from './admin/adopt.js';
export type { ErrorGroup } from './admin/error-groups.js';
export { type DoneFilter, type Filter, Inspector } from './admin/inspector.js';
export { Operator } from './admin/operator.js';
export { sampleOf } from './admin/snapshot.js';
export { type MoveOptions, Transfer } from './admin/transfer.js';
export { type Trend, trend } from './admin/trend.js';
export { Auditor, type Found } from './health/audit.js';
export { type Checked, check, type Limits, type Thresholds } from './health/check.js';
export type { Finding } from './health/finding.js';
export type { AuditOptions } from './health/id-audit.js';
export { type Measured, metricsText } from './health/metrics.js';
export type { Attributes } from './model/attributes.js';
export type { Backoff } from './model/backoff.js';
export { Spread } from './model/due-times.js';
export { DelayqError, type ErrorCode, isDelayqError, isPassing } from './model/errors.js';
export type { EventType, JobEvent } from './model/event.js';
export { type Id, timeOfId } from './model/id.js';
export type {
  Answer,
  Confirmed,
  DoneJob,
  Enqueued,
  Finishing,
  Given,
  Held,
  Job,
  NackAnswer,
  Nacked,
  NewJob,
  Outcome,
  StoredJob,
} from './model/job.js';
export { type Bytes, JsonText, MAX_PAYLOAD, RawPayload } from './model/payload.js';
export type { Schema } from './model/schema.js';
export type { Rate, Settings, SettingsChange } from './model/settings.js';
export type { ConnectOptions, SentinelOptions, TlsOptions } from './net/url.js';
export type { BatchResult } from './queue/batches.js';
export { Queue, type QueueOptions } from './queue/queue.js';
export type { JobResult, ResultOptions } from './queue/result.js';
export type { Missed, NewRecurring } from './recurring/definition.js';
export { type Put, Recurring, type RecurringJob } from './recurring/recurring.js';
export { Connection, type Reply } from './redis/connection.js';
export { Doctor } from './server/doctor.js';
export type { Durability } from './store/durability.js';
export type { Buried, Cancelled, Edited, Paused, Purged, Requeued, Rescheduled } from './store/edit.js';
export type { EnqueueOptions } from './store/enqueue.js';
export type { EventsOptions } from './store/events.js';
export type { ExportSlice } from './store/export.js';
export type { ForeignQueue } from './store/foreign.js';
export type { Growth, Partitioning } from './store/grow.js';
export type { Failures, Holder, Snapshot } from './store/inspect.js';
export type { Drained } from './store/jobs.js';
export type { Moved } from './store/move-steps.js';
export type { Finished, FinishOptions } from './store/remove.js';
export type { Sample } from './store/samples.js';
export type { AckOptions, NackOptions } from './store/settle.js';
export type { Part } from './store/sum.js';
export type { Parcel, Restored } from './store/transfer.js';
export type { BatchWorkerOptions, WorkerOptions } from './worker/options.js';
export { Dead, type DeadJob, Release, Retry, Task, type TaskOutcome, type TaskResult } from './worker/task.js';
export { BatchWorker, type PayloadOf, type Summary, Worker } from './worker/worker.js';
