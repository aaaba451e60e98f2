import {
  formatDuration,
  formatTime,
  LATE_MS,
  lag,
  orphans,
  pausedUntil,
  type Snapshot,
  stalled,
  type Trend,
} from '../../internal.js';
import { grouped, many, type Paint, visible } from '../terminal/output.js';
import type { Row } from './snapshot.js';

/*
 * The problems of a queue in words, the worst first, and the words and colours for its figures.
 */

/** Stands for a figure that does not exist or is unknown. */
export const NONE = '–';

/** Something to know about a queue: a problem (`bad`), or a notice. */
export interface Sign {
  readonly bad: boolean;
  readonly text: string;
}

/** A lag that changes by less than this (ms per ms) counts as steady. */
const STEADY = 0.05;

/** The problems and notices of a queue. Times are shown in `zone`. */
export function signsOf({ snapshot, trend }: Row, zone: string): Sign[] {
  const signs: Sign[] = [];
  const { now, due } = snapshot;
  const waiting =
    due > 0
      ? `${many(due, 'job')} ${due === 1 ? 'is' : 'are'} due, the oldest for ${formatDuration(lag(snapshot))}`
      : `${many(snapshot.runOut, 'lease')} ${snapshot.runOut === 1 ? 'has' : 'have'} expired`;
  const idle = stalled(snapshot);
  const until = pausedUntil(snapshot);
  if (idle !== undefined)
    signs.push({
      bad: true,
      text: `${idle === Number.POSITIVE_INFINITY ? 'never drained' : `no drain for ${formatDuration(idle)}`}: ${waiting}`,
    });
  if (until !== undefined) {
    const end = until === Number.POSITIVE_INFINITY ? 'until resumed' : `until ${timeOf(until, now, zone)}`;
    signs.push({ bad: due > 0 && lag(snapshot) >= LATE_MS, text: `paused ${end}${due > 0 ? `: ${waiting}` : ''}` });
  }
  if (trend && trend.out === 0 && trend.retried + trend.dead > 0) {
    const times = (rate: number) => grouped(Math.round((rate * trend.spanMs) / 1_000));
    const fates = [
      ...(trend.retried > 0 ? [`${times(trend.retried)} will be retried`] : []),
      ...(trend.dead > 0 ? [`${times(trend.dead)} dead`] : []),
    ];
    signs.push({
      bad: true,
      text: `handlers are failing: ${fates.join(', ')}, none done in ${formatDuration(trend.spanMs)}`,
    });
  }
  if (trend && idle === undefined && until === undefined && lag(snapshot) >= LATE_MS) {
    // If many jobs fell due at once, the lag stays until the last of them is taken, even if drains keep up.
    if (trend.emptyInMs !== undefined)
      signs.push({ bad: false, text: `catching up: ${waiting}; empty in ${formatDuration(trend.emptyInMs)}` });
    else if (trend.lag > STEADY) signs.push({ bad: true, text: `falling behind: ${waiting}, ${courseOf(trend)}` });
  }
  return signs;
}

/** Damage in the stored data, in words. */
export function faultsOf(snapshot: Snapshot): string[] {
  const { ids, payloads } = orphans(snapshot);
  // A drain or doctor moves orphans to dead, where they do no harm.
  const dead = ids <= snapshot.dead ? ', perhaps among the dead' : '';
  return [
    ...(ids > 0 ? [`${many(ids, 'id')} without a payload (${ids === 1 ? 'orphan' : 'orphans'})${dead}`] : []),
    ...(payloads > 0 ? [`${many(payloads, 'payload')} without an id (${payloads === 1 ? 'orphan' : 'orphans'})`] : []),
  ];
}

/** How the lag changes, such as "growing by 2m per minute"; empty if it is unknown, or will end with the backlog. */
export function courseOf(trend: Trend | undefined): string {
  if (!trend || (trend.lag > STEADY && trend.emptyInMs !== undefined)) return '';
  const slope = trend.lag;
  const each = `${formatDuration(Math.abs(slope) * 60_000)} per minute`;
  return slope > STEADY ? `growing by ${each}` : slope < -STEADY ? `falling by ${each}` : 'steady';
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

/** Formats a problem or notice as a line for a terminal. */
export function signLine(sign: Sign, paint: Paint, queue?: string): string {
  const text = `${queue === undefined ? '' : `${queue}: `}${sign.text}`;
  return sign.bad ? paint.red.bold(`! ${text}`) : `${paint.bold('·')} ${text}`;
}
