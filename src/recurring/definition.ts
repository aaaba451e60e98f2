import { DelayqError } from '../model/errors.js';
import { randomWord } from '../model/id.js';
import { type NewJob, recordOf } from '../model/job.js';
import { type Bytes, jsonOf } from '../model/payload.js';
import { checkId, checkWord, keysOf } from '../model/validate.js';
import { isInterval, type Occurrences, occurrencesOf, specOf } from './occurrences.js';

/** Which of several missed occurrences make jobs. */
export type Missed = 'once' | 'skip' | 'all';

/** A recurring job to put. */
export interface NewRecurring extends Pick<NewJob, 'payload' | 'tries' | 'maxLost' | 'ttl' | 'onceFor' | 'attributes'> {
  /** Names it in its queue: its jobs have the ids `ID@2026-11-23T08:00:00Z`. */
  readonly id: string;
  /** A cron expression such as `0 9 * * 1-5`, or an interval such as `15m`. */
  readonly when: string;
  /** When an interval begins, ms since 1970; default: when it is put. */
  readonly from?: number | undefined;
  /** The time zone of the expression, an IANA name; default: UTC. */
  readonly tz?: string | undefined;
  /**
   * What to do with missed occurrences: `once` (default) makes one job for the latest, `skip` only if that is at most a
   * minute old, `all` a job for each, at most the latest 1,000.
   */
  readonly missed?: Missed | undefined;
  /** `skip`: an occurrence makes no job while the last one is pending or active. Default: `allow`. */
  readonly overlap?: 'allow' | 'skip' | undefined;
}

const checkRecurring = keysOf<NewRecurring>('a recurring job', {
  id: true,
  when: true,
  payload: true,
  from: true,
  tz: true,
  missed: true,
  overlap: true,
  tries: true,
  maxLost: true,
  ttl: true,
  onceFor: true,
  attributes: true,
});

/** How the ids of its jobs end. */
const JOB_TIME = '@2026-11-23T08:00:00Z';

/** The longest id of a recurring job: those of its jobs are longer by the time. */
const MAX_ID = 256 - JOB_TIME.length;

export const ID_ADVICE = 'choose another id, for example daily-report; list() returns those that exist';

/** What is stored about a recurring job, except its payload. Times are ms. */
export interface Header {
  /** A random word, new with each change. */
  readonly rev: string;
  /** A cron expression, or `every MS`. */
  readonly spec: string;
  /** Empty for an interval. */
  readonly tz: string;
  readonly missed: Missed;
  readonly overlap: 'allow' | 'skip';
  readonly paused: boolean;
  /** Intervals count from here. */
  readonly created: number;
  /** The record of its jobs, as JSON; '' if they need none. */
  readonly record: string;
}

/** A stored recurring job. */
export interface Definition extends Header {
  readonly payload: Bytes;
  /** The id of the last job made; empty: none yet. */
  readonly last: string;
}

/**
 * Checks a recurring job, at the time `now`, ms. Throws `usage` or `data` if a part of it is invalid, and `usage` if it
 * never occurs.
 */
export async function definitionOf(job: NewRecurring, now: number): Promise<Definition> {
  const { id, when, from, tz = 'UTC', missed = 'once', overlap = 'allow' } = checkRecurring(job);
  if (checkId(id, ID_ADVICE).length > MAX_ID) {
    throw new DelayqError('usage', 'the id of a recurring job is too long', {
      why: `it has ${id.length} characters; the ids of its jobs are longer by the time`,
      next: `choose one of at most ${MAX_ID} characters`,
    });
  }
  checkWord(missed, ['once', 'skip', 'all'], 'missed');
  checkWord(overlap, ['allow', 'skip'], 'overlap');
  if (missed === 'all' && overlap === 'skip') {
    throw new DelayqError('usage', 'missed all and overlap skip exclude each other', {
      why: 'of the jobs of missed occurrences all but the first would overlap',
      next: 'use missed once, or overlap allow',
    });
  }
  if (typeof when !== 'string') {
    const next = "write a cron expression such as '0 9 * * 1-5', or an interval such as 15m";
    throw new DelayqError('usage', 'when is not text', { next });
  }
  const spec = specOf(when);
  const record = recordOf(job);
  const payload = Buffer.from(jsonOf(job.payload).text);
  const zone = isInterval(spec) ? '' : tz;
  if (from !== undefined && !(isInterval(spec) && Number.isSafeInteger(from) && from >= 0)) {
    const why = isInterval(spec) ? 'it is no whole number of ms' : 'a cron expression says when by itself';
    throw new DelayqError('usage', `${when} cannot count from ${from}`, { why, next: 'leave from out' });
  }
  const created = from ?? now;
  const made = { rev: randomWord(12), spec, tz: zone, missed, overlap, paused: false, created, record };
  if ((await occurrencesIn(made)).after(now) === undefined) {
    throw new DelayqError('usage', `${JSON.stringify(spec)} never comes`, {
      why: 'no date matches all its fields',
      next: "change the day or the month: '0 0 L 2 *' is the last day of February",
    });
  }
  return { ...made, payload, last: '' };
}

/** The occurrences of a recurring job. Throws `usage` if this version cannot read its expression. */
export const occurrencesIn = ({ spec, tz, created }: Header): Promise<Occurrences> => occurrencesOf(spec, tz, created);

/** If Redis's clock goes back by at most this, ms, no jobs are made again. If by more, it had been wrong before. */
const CLOCK_BACK_MS = 3_600_000;

/** The definition, with its interval counted from `now`, ms, if it was put while Redis's clock was ahead. */
export const startedBy = <D extends Header>(definition: D, now: number): D =>
  definition.created - now > CLOCK_BACK_MS ? { ...definition, created: now } : definition;

/**
 * The first occurrence after `now`, ms, that has made no job; Infinity: none (paused, or never again). Throws `usage`
 * if this version cannot read its expression.
 */
export async function nextOf(definition: Definition, now: number): Promise<number> {
  if (definition.paused) return Number.POSITIVE_INFINITY;
  const made = Date.parse(definition.last.slice(-JOB_TIME.length + 1));
  const from = made > now && made - now <= CLOCK_BACK_MS ? made : now;
  return (await occurrencesIn(definition)).after(from) ?? Number.POSITIVE_INFINITY;
}

/** The header as it is stored. Its rev comes first: scripts look for it there. */
export function packHeader({ rev, spec, tz, missed, overlap, paused, created, record }: Header): string {
  return JSON.stringify({ rev, spec, tz, missed, overlap, ...(paused && { paused }), created, record });
}

/** Reads what {@link packHeader} wrote; undefined if this version cannot read it. */
export function unpackHeader(text: string): Header | undefined {
  let found: Partial<Header>;
  try {
    found = Object(JSON.parse(text)) as Partial<Header>;
  } catch {
    return undefined;
  }
  const { rev, spec, tz, missed, overlap, paused = false, created, record } = found;
  const isWords = [rev, spec, tz, record].every((word) => typeof word === 'string');
  const isKnown = ['once', 'skip', 'all'].includes(missed as string) && ['allow', 'skip'].includes(overlap as string);
  if (!isWords || !isKnown || typeof paused !== 'boolean' || !Number.isFinite(created)) return undefined;
  // A newer version may have given the definition another meaning.
  const known = new Set(Object.keys({ rev, spec, tz, missed, overlap, paused, created, record }));
  if (!Object.keys(found).every((name) => known.has(name))) return undefined;
  return { rev, spec, tz, missed, overlap, paused, created, record } as Header;
}

/** Reads the three lines of a definition; undefined if this version cannot. */
export function unpack(text: Buffer): Definition | undefined {
  const first = text.indexOf('\n');
  const second = text.indexOf('\n', first + 1);
  if (first < 0 || second < 0) return undefined;
  const header = unpackHeader(text.toString('utf8', first + 1, second));
  if (!header) return undefined;
  return { ...header, last: text.toString('utf8', 0, first), payload: Buffer.from(text.subarray(second + 1)) };
}

/** The id of the job of an occurrence. */
export const jobIdOf = (id: string, ms: number) => `${id}@${new Date(ms).toISOString().slice(0, 19)}Z`;
