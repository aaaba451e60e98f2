import { formatDuration, type StoredJob } from '../../internal.js';
import { parse, withPayload } from '../lines/drain-line.js';
import { clip, columns, type Paint, table, visible } from '../terminal/output.js';
import { FAR_MS } from './problems.js';

/*
 * Stored jobs as they are told of: a line of JSON, or rows of a table.
 */

const NEWLINE = Buffer.from('\n');

/** A job as a whole line of JSON, its payload byte for byte, `more` before everything else. What is not there is null. */
export function jobJson(queue: string, job: StoredJob, more: object = {}): Buffer {
  const { payload, lease, ...rest } = job;
  const { by, since, ends } = lease ?? {};
  const head = JSON.stringify(
    { ...more, queue, ...rest, leasedBy: by, leasedAt: since, leaseEnds: ends },
    (_, value) => value ?? null,
  );
  if (!payload) return Buffer.from(`${head.slice(0, -1)},"payload":null}\n`);
  return Buffer.concat([withPayload(head, payload, parse(payload.toString('utf8')) !== undefined), NEWLINE]);
}

const REASONS: Record<string, string> = {
  failed: 'failed too often',
  refused: 'refused by its handler',
  lost: 'lost too often',
  buried: 'buried by an operator',
  orphaned: 'without a payload',
  'bad id': 'with an id no handler can be given',
  found: 'found without an id',
  'bad due': 'due at no sane time',
};

/** Why a job is dead, in words. */
export function reasonOf({ reason }: StoredJob): string {
  return reason === undefined ? 'no reason known' : (REASONS[reason] ?? reason);
}

/** The least that errors and payloads are given of a line together, columns, unless all of them is asked for. */
const LEAST = 24;

/** The least that ids are given: those of delayq are no longer. */
const ID_LEAST = 13;

/** A job with no more of its payload than can be seen on a line of `width` columns: to be kept until its row is drawn. */
export function brief(job: StoredJob, width: number): StoredJob {
  return { ...job, payload: job.payload && Buffer.from(job.payload.subarray(0, 16 * width + 1024)) };
}

/** Rows of a table, cut to `width` columns if that is given, below a head when they are the `first`. */
export async function jobTable(
  rows: readonly StoredJob[],
  how: { now: number; paint: Paint; first: boolean; width: number | undefined; states: readonly string[] },
): Promise<string> {
  const { now, paint, first, width, states } = how;
  // The state is left out when all have the same.
  const several = states.length > 1;
  const others = rows.map((job) => [...(several ? [job.state] : []), whenOf(job, now), String(job.attempts)]);
  const head = ['id', ...(several ? ['state'] : []), several ? 'since or due' : 'when', 'attempts'];
  /** The width of a column with the space behind it. */
  const wide = (name: string, cells: readonly string[]) => Math.max(...[name, ...cells].map(columns)) + 2;
  const column = (i: number) => others.map((row) => row[i] as string);
  const taken = head.slice(1).reduce((sum, name, i) => sum + wide(name, column(i)), 0);
  // An id that leaves no room for anything else is cut: `--full` and JSON have all of it.
  const idRoom = width === undefined ? Number.POSITIVE_INFINITY : Math.max(ID_LEAST, width - taken - LEAST - 4);
  const ids = rows.map((job) => clip(visible(job.id), idRoom));
  const used = wide('id', ids) + taken;
  const room = width === undefined ? Number.POSITIVE_INFINITY : Math.max(LEAST, width - used - 2);
  const why = rows.map((job) => cut(whyOf(job), Math.ceil(room * 0.6)));
  const payloadRoom = room - Math.max('why'.length, ...why.map(columns));
  const cells = rows.map((job, i) => [
    ids[i] as string,
    ...(others[i] ?? []).map((cell) => (cell === 'dead' ? paint.red.bold(cell) : cell)),
    why[i] as string,
    job.payload ? cut(job.payload.toString('utf8'), payloadRoom) : paint.red.bold('none'),
  ]);
  const names = [...head, 'why', 'payload'].map((name) => paint.underline(name));
  return table(first ? names : undefined, cells, several ? [0, 1, 4, 5] : [0, 3, 4]);
}

function whenOf({ due, died, lease }: StoredJob, now: number): string {
  const ago = (ms: number) => (now - ms > FAR_MS ? 'long ago' : `${formatDuration(now - ms)} ago`);
  if (died !== undefined) return ago(died);
  if (lease) return ago(lease.since);
  if (due === undefined) return '';
  if (Math.abs(due - now) > FAR_MS) return due > now ? 'never' : 'long ago';
  return due > now ? `in ${formatDuration(due - now)}` : `${formatDuration(now - due)} late`;
}

/** Why a job stands where it does, as far as there is more to say than its state. */
function whyOf(job: StoredJob): string {
  const error = job.error?.split('\n')[0];
  if (job.state === 'dead') return error && job.reason !== 'lost' ? error : reasonOf(job);
  return error ?? '';
}

/** `text` on one line, cut to `room` columns. */
function cut(text: string, room: number): string {
  // No more of it is looked at than can be seen: payloads may be large.
  const some = room === Number.POSITIVE_INFINITY ? text : text.slice(0, 4 * room + 8);
  return clip(`${visible(some)}${some.length < text.length ? '…' : ''}`, room);
}
