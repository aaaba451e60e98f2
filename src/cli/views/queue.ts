import {
  courseOf,
  formatDuration,
  formatSetting,
  lag,
  readSettings,
  type Settings,
  type Snapshot,
  stalled,
} from '../../internal.js';
import { histogram } from '../terminal/chart.js';
import { clip, columns, grouped, many, type Paint, padded, visible } from '../terminal/output.js';
import type { Room } from './overview.js';
import { bad, FAR_MS, faultsOf, holderOf, late, momentOf, paceOf, signLine, signsOf, timeOf } from './problems.js';
import { aheadOf, type Row } from './snapshot.js';

const HOLDERS = 5;

/** The widest that a consumer's name is shown, columns. */
const WHO = 40;

/** Formats one queue as lines for a terminal: problems first, then the figures, then what falls due next. */
export function detail(row: Row, { zone, paint, room }: { zone: string; paint: Paint; room: Room }): string[] {
  const { queue, snapshot, trend, rates } = row;
  const { now, pending, due, active, runOut, dead, lease, payload, meta, stats, config, upcoming } = snapshot;
  const { drained, ...totals } = stats;
  const counters = Object.entries(totals).map(([name, n]): [string, string] => [name, grouped(n)]);
  const at = (ms: number) => momentOf(ms, now, zone);
  const line = (name: string, value: string) => `  ${name.padEnd(10)}  ${value}`;
  const list = (entries: [string, string][]) => entries.map((words) => words.map(visible).join(' ')).join(', ');
  const lines = [
    ...signsOf(row, zone).map((sign) => signLine(sign, paint)),
    ...faultsOf(row).map((fault) => paint.red.bold(`! ${fault}`)),
    paint.bold(queue),
    line('pending', `${grouped(pending)}${due > 0 ? `, ${paint.bold(grouped(due))} of them due` : ', none due'}`),
  ];
  if (due > 0) {
    const course = courseOf(trend);
    lines.push(line('lag', `${late(snapshot, formatDuration(lag(snapshot)), paint)}${course && `, ${course}`}`));
    lines.push(line('empty in', trend?.emptyInMs === undefined ? notFalling(row) : formatDuration(trend.emptyInMs)));
  }
  if (trend) {
    const failing = trend.retried + trend.dead > 0 ? `, failed ${paceOf(trend.retried + trend.dead)}` : '';
    const over = formatDuration(Math.round(trend.spanMs / 1_000) * 1_000);
    lines.push(line('rates', `in ${paceOf(trend.in)}, out ${paceOf(trend.out)}${failing} over the last ${over}`));
  }
  if (rates) lines.push(line('just now', `in ${paceOf(rates.in)}, out ${paceOf(rates.out)}`));
  lines.push(
    line('last drain', drained === undefined ? (due > 0 ? paint.red.bold('never') : 'never') : at(drained)),
    line('active', `${grouped(active)}${runOut > 0 ? `, ${paint.bold(grouped(runOut))} with an expired lease` : ''}`),
    ...heldBy(row, zone).map((text) => line('', text)),
    line('dead', bad(dead, paint)),
    line('stored', `payload ${grouped(payload)}, lease ${grouped(lease)}, meta ${grouped(meta)}`),
    line('config', list(settingsOf(config)) || 'defaults'),
    line('totals', list(counters.sort()) || 'none'),
  );
  const charts = chartsOf(snapshot, { width: room.width, height: room.height - lines.length });
  return [
    ...lines,
    ...upcoming
      .slice(0, Math.max(0, room.height - lines.length - charts.length))
      .map((job, i) => line(i === 0 ? 'next due' : '', `${at(job.due)}  ${visible(job.id)}`)),
    ...charts,
  ];
}

function notFalling({ trend, snapshot }: Row): string {
  if (stalled(snapshot) !== undefined) return 'never: nothing drains it';
  if (!trend) return 'not known yet: check again in a minute';
  return `never at this rate${trend.out > 0 ? '' : `: nothing was done in ${formatDuration(trend.spanMs)}`}`;
}

/** The consumers that hold leases, since when and until when. */
function heldBy({ held, snapshot }: Row, zone: string): string[] {
  if (!held) return [];
  const { now } = snapshot;
  const lines = held.holders
    .sort((a, b) => (a.since ?? now) - (b.since ?? now))
    .map(({ by, jobs, since, ends }) => {
      const moving = by.startsWith('move:');
      const who = moving ? `moving to ${visible(by.slice(5))}` : holderOf(by);
      const from = since === undefined ? '' : ` since ${timeOf(since, now, zone)} (${formatDuration(now - since)})`;
      return `${clip(who, WHO)}: ${many(jobs, 'job')}${from}, ${endOfLeases(ends, now, moving)}`;
    });
  const more = lines.length > HOLDERS ? [`… and ${grouped(lines.length - HOLDERS)} more`] : [];
  const part = held.seen < held.active ? [`(among the ${grouped(held.seen)} leases that expire first)`] : [];
  return [...lines.slice(0, HOLDERS), ...more, ...part];
}

/** When the first lease of a consumer expires, ms. A lease without an end belongs to a move, or is damaged. */
function endOfLeases(ends: number, now: number, moving: boolean): string {
  if (ends - now > FAR_MS) return moving ? 'until the move is done' : 'a lease never expires: run delayq doctor';
  if (ends > now) return `first lease expires in ${formatDuration(ends - now)}`;
  return `first lease expired ${formatDuration(now - ends)} ago`;
}

/** Charts of when jobs fall due: side by side if the terminal is wide enough. */
function chartsOf(snapshot: Snapshot, { width, height }: Room): string[] {
  const { hour, day } = aheadOf(snapshot);
  if (snapshot.pending === snapshot.due) return [];
  const beside = width >= 130;
  const rows = height === Number.POSITIVE_INFINITY ? 6 : Math.min(10, Math.floor(height / (beside ? 1 : 2)));
  // A title and an axis take two lines of each chart.
  const size = { width: beside ? Math.floor((width - 8) / 2) : width - 4, height: Math.max(1, rows - 2) };
  const hourMarks = ['now', '+15m', '+30m', '+45m', '+1h'];
  const dayMarks = ['now', '+6h', '+12h', '+18h', '+24h'];
  const a = histogram(hour, { title: 'due in the next hour', each: '5 minutes', marks: hourMarks, ...size });
  const b = histogram(day, { title: 'due in the next day', each: 'an hour', marks: dayMarks, ...size });
  if (!beside) return [...a, ...b].map((text) => `  ${text}`);
  const left = Math.max(...a.map(columns)) + 4;
  return Array.from({ length: Math.max(a.length, b.length) }, (_, i) =>
    `  ${padded(a[i] ?? '', left)}${b[i] ?? ''}`.trimEnd(),
  );
}

function settingsOf(config: Readonly<Record<string, string>>): [string, string][] {
  const settings = readSettings(config);
  return Object.entries(config).map(([name, text]) => {
    const value = settings[name as keyof Settings];
    return [name, value === undefined ? text : formatSetting(name as keyof Settings, value)];
  });
}
