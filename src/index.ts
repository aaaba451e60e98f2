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

export { DelayqError, type ErrorCode, isDelayqError, isPassing } from './errors.js';
export { exists, Inspector, lag, orphans } from './inspector.js';
export {
  type Answer,
  checkId,
  checkName,
  decodeUtf8,
  type Enqueued,
  type Held,
  type Job,
  JsonText,
  MAX_PAYLOAD,
  type NackAnswer,
  type NewJob,
  type Outcome,
  printable,
  tooLarge,
} from './job.js';
export { DEFAULT_PREFIX } from './keys.js';
export { Leases } from './leases.js';
export { type Batch, drainLoop, type LoopOptions } from './loop.js';
export { type BatchResult, DEFAULT_LEASE_MS, type NackOptions, Queue } from './queue.js';
export { Connection, DEFAULT_URL } from './redis.js';
export { type Drained, MAX_CALL, type Snapshot } from './scripts.js';
export { formatDuration, formatTime, type Instant, parseAt, parseDuration, systemZone } from './time.js';
