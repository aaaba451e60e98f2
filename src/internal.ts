/*
 * What the command line and the server use besides the public API. This is not published, and may change in any version.
 */

export type { LeftReason } from './admin/adopt.js';
export { eachQueue } from './admin/each-queue.js';
export {
  durationAt,
  exists,
  heldBackBy,
  LATE_MS,
  lag,
  limitsOf,
  orphans,
  partitionsOf,
  pausedUntil,
  stalled,
} from './admin/snapshot.js';
export { Flood } from './consume/flood.js';
export { Leases, type TakenJobs } from './consume/leases.js';
export { poll } from './consume/poll.js';
export { type OnTrouble, troubleTeller } from './consume/trouble.js';
export { DEFAULT_THRESHOLDS } from './health/check.js';
export { worst } from './health/finding.js';
export { family, type Samples } from './health/metrics.js';
export { courseOf, problems, STEADY } from './health/problems.js';
export * from './index.js';
export { NO_ATTRIBUTES, packAttributes, readAttributes } from './model/attributes.js';
export { formatBackoff, parseBackoff } from './model/backoff.js';
export { errorKind } from './model/error-kind.js';
export { checkEventTypes, EVENT_TYPES } from './model/event.js';
export { idKey, idOf, idWord, randomWord } from './model/id.js';
export { GIVEN, MAX_ERROR, recordOf, type State } from './model/job.js';
export { decodeUtf8, TEXT_ADVICE, tooLarge } from './model/payload.js';
export {
  DEFAULT_SETTINGS,
  formatSetting,
  parseRate,
  parseSetting,
  readSettings,
  SETTING_NAMES,
  settingWord,
} from './model/settings.js';
export {
  closest,
  grouped,
  inParts,
  many,
  moveLine,
  type Parts,
  printable,
  queueWord,
  shellWord,
} from './model/text.js';
export {
  type Clock,
  exactDuration,
  formatDuration,
  formatTime,
  LONGEST_MS,
  LONGEST_TIMER_MS,
  parseAt,
  parseDuration,
  parseMoment,
  realClock,
  systemZone,
  ZONE_ADVICE,
} from './model/time.js';
export { checkId, checkName } from './model/validate.js';
export type { SettingNames } from './net/errors.js';
export { DEFAULT_URL, hasLogin, loginHider, parseUrl, withoutLogin } from './net/url.js';
export { nothingKept, Watch } from './queue/result.js';
export { ID_ADVICE } from './recurring/definition.js';
export { upcoming } from './recurring/recurring.js';
export { type RetryLimits, withRetries } from './redis/retry.js';
export { aclLine } from './server/rights.js';
export { type Exported, SCORE } from './store/export.js';
export type { Look } from './store/finished.js';
export { checkGrows, checkNoLimits, checkPartitions, MAX_PARTITIONS } from './store/grow.js';
export { TokenStore } from './store/http.js';
export type { Span } from './store/inspect.js';
export { countOf, type HandedOver, type StreamTarget } from './store/jobs.js';
export { DEFAULT_PREFIX, OWN_FIELDS, streamKey } from './store/keys.js';
export { MAX_CALL } from './store/script.js';
export { isOfTexts } from './store/settings.js';
export { triesLeft } from './store/stored.js';
export { sum } from './store/sum.js';
export { DeadJobs } from './worker/dead-jobs.js';
export { type Call, GivenBack } from './worker/task.js';
