import {
  formatDuration,
  formatTime,
  LATE_MS,
  lag,
  pausedUntil,
  problems,
  type Snapshot,
  STEADY,
  type Trend,
} from '../../internal.js';
import { fold, grouped, type Paint, type Room, visible } from '../terminal/output.js';
import type { Row } from './snapshot.js';

/** Stands for a figure that does not exist or is unknown. */
export const NONE = '–';

/** A problem as it is shown. */
interface Sign {
  readonly urgent: boolean;
  readonly what: string;
}

const SIGNS = ['refusal', 'no-drain', 'paused', 'failing', 'hanging', 'lag', 'growth', 'orphans'];

/** The problems of a queue that are shown at the top. Times are shown in `zone`. */
export function signsOf({ queue, snapshot, trend }: Row, zone: string): Sign[] {
  const until = (ms: number) => `until ${timeOf(ms, snapshot.now, zone)}`;
  const found = problems(queue, snapshot, { trend, until });
  // Of a queue too young for a trend, the column with the lag says enough.
  return found
    .filter(({ check }) => SIGNS.includes(check) && (check !== 'lag' || trend !== undefined))
    .map(({ level, what }) => ({ urgent: level === 'fail', what }));
}

/** When no job will be due any more, ms from now; undefined: never at this pace, or while the queue is paused. */
export function emptyInMs({ trend, snapshot }: Row): number | undefined {
  return pausedUntil(snapshot) === undefined ? trend?.emptyInMs : undefined;
}

/** How the lag changes, as one character. */
export function arrowOf(trend: Trend | undefined): string {
  if (!trend) return ' ';
  if (trend.emptyInMs !== undefined) return '↓';
  return Math.abs(trend.lag) <= STEADY ? ' ' : trend.lag > 0 ? '↑' : '↓';
}

/** A rate in a readable unit: 1,200/s, 12/min, 3/h. */
export function paceOf(perSecond: number | undefined): string {
  if (perSecond === undefined) return NONE;
  const [n, unit] =
    perSecond >= 1 ? [perSecond, 's'] : perSecond >= 1 / 60 ? [perSecond * 60, 'min'] : [perSecond * 3_600, 'h'];
  if (perSecond <= 0) return '0';
  return `${n >= 9.95 ? grouped(Math.round(n)) : (Math.round(n * 10) / 10).toString()}/${unit}`;
}

/** `text`, the lag; red if it is too long. */
export function late(snapshot: Snapshot, text: string, paint: Paint): string {
  if (snapshot.due === 0) return NONE;
  return lag(snapshot) >= LATE_MS ? paint.red.bold(text) : text;
}

/** A count that should be 0; red if it is not. */
export function bad(n: number, paint: Paint): string {
  return n > 0 ? paint.red.bold(grouped(n)) : grouped(n);
}

/** Formats a time; without the date if it is today. */
export function timeOf(ms: number, now: number, zone: string): string {
  const text = formatTime(ms, zone);
  return text.slice(0, 10) === formatTime(now, zone).slice(0, 10) ? text.slice(11, 19) : text.slice(0, 19);
}

/** A time further away than this is not a real time, ms: a thousand years. */
export const FAR_MS = 1_000 * 365 * 86_400_000;

/** Formats a time and how far away it is. */
export function momentOf(ms: number, now: number, zone: string): string {
  if (Math.abs(ms - now) > FAR_MS) return ms > now ? 'never' : 'long ago';
  return `${formatTime(ms, zone)}  ${ms > now ? `in ${formatDuration(ms - now)}` : `${formatDuration(now - ms)} ago`}`;
}

/** The consumer that holds a lease, from what the lease says. */
export function holderOf(by: string): string {
  return by === '' ? 'unknown consumer' : visible(by);
}

/** Formats a problem as lines for a terminal. Elsewhere it is one line. */
export function signLines({ urgent, what }: Sign, paint: Paint, room: Room): string[] {
  const lines = fold(`${urgent ? '!' : '·'} ${what}`, room);
  return urgent ? lines.map((line) => paint.red.bold(line)) : lines;
}
