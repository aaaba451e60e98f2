import type { RecurringJob } from '../../internal.js';

/** A recurring job in a JSON document. Times are ms since 1970. */
export function recurringJson(job: RecurringJob) {
  const { id, when, tz, missed, overlap, paused, created, next, last, tries, maxLost, ttl, attributes, payload } = job;
  return {
    id,
    when,
    tz: tz ?? null,
    missed,
    overlap,
    paused,
    created,
    next: next ?? null,
    last: last ?? null,
    ...(tries !== undefined && { tries }),
    ...(maxLost !== undefined && { maxLost }),
    ...(ttl !== undefined && { ttl }),
    ...(Object.keys(attributes).length > 0 && { attributes }),
    payload: JSON.parse(payload.toString('utf8')),
  };
}
