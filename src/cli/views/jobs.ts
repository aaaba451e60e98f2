import { exactDuration, formatDuration, LONGEST_MS, NO_ATTRIBUTES, type StoredJob, triesLeft } from '../../internal.js';
import { textOf, withPayload } from '../lines/drain-line.js';
import { REASONS } from '../terminal/deaths.js';
import { clip, columns, orNull, type Paint, table, visible } from '../terminal/output.js';
import { FAR_MS } from './problems.js';

/**
 * Formats a job as a line of JSON, `more` first, its payload unchanged at the end. Missing values are null, but missing
 * attributes are left out.
 */
export function jobJson(queue: string, job: StoredJob, more: object = {}): Buffer {
  const { payload, lease, attributes, ...rest } = job;
  const { by, since, ends } = lease ?? {};
  const own = attributes === NO_ATTRIBUTES ? undefined : { attributes };
  const leased = { leasedBy: by, leasedAt: since, leaseEnds: ends };
  const head = JSON.stringify({ ...more, queue, ...rest, ...own, ...leased }, orNull);
  if (!payload) return Buffer.from(`${head.slice(0, -1)},"payload":null}\n`);
  return textOf([withPayload(head, payload)]);
}

/** The time to live of a job, in words. One without an end overrides that of the queue. */
export const lifetimeText = (ttl: number) => (ttl >= LONGEST_MS ? 'none' : exactDuration(ttl));

export function reasonOf({ reason }: Pick<StoredJob, 'reason'>): string {
  return reason === undefined ? 'reason unknown' : (REASONS[reason] ?? reason);
}

/** The least room for error and payload together, columns, when lines are cut. */
const MIN_REST = 24;

/** The least room for ids, columns: those that delayq makes fit. */
const MIN_ID = 13;

/** The most room for ids, columns: longer ones do not widen the rows of the others. */
const MAX_ID = 64;

/** A copy of a job with only as much of its payload as a line of `width` columns may show. Saves memory until then. */
export function brief(job: StoredJob, width: number): StoredJob {
  return { ...job, payload: job.payload && Buffer.from(job.payload.subarray(0, 16 * width + 1024)) };
}

/**
 * Formats jobs as rows of a table, cut to `width` columns if given, ids only unless `wholeIds`. `first`: with a head.
 * `tries`, those of the queue: tells when jobs failed, and which of how many tries that was.
 */
export async function jobTable(
  rows: readonly StoredJob[],
  how: {
    now: number;
    paint: Paint;
    first: boolean;
    width: number | undefined;
    states: readonly string[];
    wholeIds: boolean | undefined;
    tries?: number | undefined;
  },
): Promise<string> {
  const { now, paint, first, width, states, wholeIds, tries } = how;
  // No column for the state if all jobs have the same.
  const several = states.length > 1;
  const triedOf = (job: StoredJob) =>
    tries === undefined
      ? [String(job.attempts)]
      : [job.failed === undefined ? 'unknown' : agoOf(job.failed, now), triesOf(job, tries)];
  const others = rows.map((job) => [...(several ? [job.state] : []), whenOf(job, now), ...triedOf(job)]);
  const tried = tries === undefined ? ['attempts'] : ['failed', 'tries'];
  const head = ['id', ...(several ? ['state'] : []), several ? 'since or due' : 'when', ...tried];
  /** The width of a column and the space after it. */
  const wide = (name: string, cells: readonly string[]) => Math.max(...[name, ...cells].map(columns)) + 2;
  const column = (i: number) => others.map((row) => row[i] as string);
  const taken = head.slice(1).reduce((sum, name, i) => sum + wide(name, column(i)), 0);
  const isCut = width !== undefined && !wholeIds;
  const idRoom = isCut ? Math.max(MIN_ID, width - taken - MIN_REST - 4) : Number.POSITIVE_INFINITY;
  const ids = rows.map((job) => clip(visible(job.id), idRoom));
  const used = Math.min(MAX_ID + 2, wide('id', ids)) + taken;
  const room = width === undefined ? Number.POSITIVE_INFINITY : Math.max(MIN_REST, width - used - 2);
  const why = rows.map((job) => cut(whyOf(job), Math.ceil(room * 0.6)));
  const payloadRoom = room - Math.max('why'.length, ...why.map(columns));
  const cells = rows.map((job, i) => [
    ids[i] as string,
    ...(others[i] ?? []).map((cell) => (cell === 'dead' ? paint.red.bold(cell) : cell)),
    why[i] as string,
    job.payload ? cut(job.payload.toString('utf8'), payloadRoom) : paint.red.bold('none'),
  ]);
  const names = [...head, 'why', 'payload'].map((name) => paint.underline(name));
  const left = [0, ...(several ? [1] : []), names.length - 2, names.length - 1];
  return table(first ? names : undefined, cells, left, MAX_ID);
}

export const agoOf = (ms: number, now: number) =>
  now - ms > FAR_MS ? 'long ago' : `${formatDuration(Math.max(0, now - ms))} ago`;

/** How many tries have failed, of how many. */
function triesOf(job: StoredJob, ofQueue: number): string {
  const { failures, losses } = job;
  return `${failures} of ${failures + triesLeft(job, ofQueue)}${losses > 0 ? `, ${losses} lost` : ''}`;
}

function whenOf({ due, died, lease }: StoredJob, now: number): string {
  if (died !== undefined) return agoOf(died, now);
  if (lease) return agoOf(lease.since, now);
  if (due === undefined) return '';
  if (Math.abs(due - now) > FAR_MS) return due > now ? 'never' : 'long ago';
  return due > now ? `in ${formatDuration(due - now)}` : `${formatDuration(now - due)} late`;
}

function whyOf(job: StoredJob): string {
  const error = job.error?.split('\n')[0];
  // These did not die of their last error.
  const isOther = job.reason === 'lost' || job.reason === 'released';
  if (job.state === 'dead') return error && !isOther ? error : reasonOf(job);
  return error ?? '';
}

/** Fits `text` on one line of `room` columns. */
function cut(text: string, room: number): string {
  // Payloads may be large: only the part that may be visible is processed.
  const some = room === Number.POSITIVE_INFINITY ? text : text.slice(0, 4 * room + 8);
  return clip(`${visible(some)}${some.length < text.length ? '…' : ''}`, room);
}
