import {
  courseOf,
  durationAt,
  type Failures,
  formatDuration,
  formatSetting,
  heldBackBy,
  lag,
  limitsOf,
  OWN_FIELDS,
  partitionsOf,
  pausedUntil,
  queueWord,
  readSettings,
  type Settings,
  type Snapshot,
  settingWord,
  stalled,
  type Trend,
} from '../../internal.js';
import { histogram } from '../terminal/chart.js';
import {
  clip,
  columns,
  field,
  fold,
  grouped,
  many,
  type Paint,
  padded,
  type Room,
  visible,
} from '../terminal/output.js';
import { bad, emptyInMs, FAR_MS, holderOf, late, momentOf, paceOf, signLines, signsOf, timeOf } from './problems.js';
import { aheadOf, type Row } from './snapshot.js';

const HOLDERS = 5;

/** Columns before a value. */
const MARGIN = 14;

/** The least number of lines for a chart: its title, bars, its axis. */
const MIN_CHART = 3;

/** The widest that a consumer's name is shown, columns. */
const WHO = 40;

/** Formats one queue as lines that fit into `room`: problems first, then the figures, then what falls due next. */
export function detail(row: Row, { zone, paint, room }: { zone: string; paint: Paint; room: Room }): string[] {
  const { queue, snapshot, trend, rates } = row;
  const { now, pending, due, active, runOut, dead, stats, upcoming, recurring, remembered } = snapshot;
  const kept = [many(snapshot.events, 'event'), many(snapshot.finished, 'job')].filter(
    (text) => !text.startsWith('0 '),
  );
  const { payload, lease, meta, failures } = snapshot;
  const { drained, ...totals } = stats;
  const { count, from } = partitionsOf(snapshot);
  const counters = Object.entries(totals).map(([name, n]): [string, string] => [name, grouped(n)]);
  const at = (ms: number) => momentOf(ms, now, zone);
  const line = (name: string, value: string) => fold(field(name, value), room, MARGIN + 2);
  const list = (entries: [string, string][]) => entries.map((words) => words.map(visible).join(' ')).join(', ');
  const { maxActive } = limitsOf(snapshot);
  const most = maxActive === undefined ? '' : ` of at most ${grouped(maxActive)}`;
  const expired = runOut > 0 ? `, ${paint.bold(grouped(runOut))} with an expired lease` : '';
  const p50 = durationAt(snapshot, 0.5);
  const took = (share: number) => formatDuration(durationAt(snapshot, share) ?? 0);
  const never = due > 0 ? paint.red.bold('never') : 'never';
  const lines = [
    ...signsOf(row, zone).flatMap((sign) => signLines(sign, paint, room)),
    paint.bold(queue),
    ...(count > 1 ? line('partitions', `${count}${from === undefined ? '' : `, still growing from ${from}`}`) : []),
    ...line('pending', `${grouped(pending)}${due > 0 ? `, ${paint.bold(grouped(due))} of them due` : ', none due'}`),
    ...(due > 0 ? line('lag', lagText(row, paint)) : []),
    ...(due > 0 ? line('empty in', emptyText(row)) : []),
    ...(trend ? line('rates', ratesText(trend)) : []),
    ...(rates ? line('just now', `in ${paceOf(rates.in)}, done ${paceOf(rates.out)}`) : []),
    ...(p50 === undefined ? [] : line('handlers', `p50 ${took(0.5)}, p99 ${took(0.99)}`)),
    ...(failures ? line('last error', errorText(failures, at)) : []),
    ...line('last drain', drained === undefined ? never : at(drained)),
    ...line('active', `${grouped(active)}${most}${expired}`),
  ];
  const below = [
    ...line('dead', bad(dead, paint)),
    ...line('stored', [many(payload, 'payload'), many(lease, 'lease'), many(meta, 'record')].join(', ')),
    ...(recurring ? line('recurring', recurringText(recurring, at)) : []),
    ...(remembered > 0 ? line('remembered', `${many(remembered, 'id')} of jobs that have ended`) : []),
    ...(kept.length > 0 ? line('kept', `${kept.join(', ')}${snapshot.finished > 0 ? ' that are done' : ''}`) : []),
    ...line('config', list(settingsOf(snapshot, zone)) || 'defaults'),
    ...line('totals', list(counters.sort()) || 'none'),
  ];
  const held = heldBy(row, zone, (room.height - lines.length - below.length) / 2 - 1);
  lines.push(...held.flatMap((text) => line('', text)), ...below);
  const next = upcoming.flatMap((job, i) => line(i === 0 ? 'next due' : '', `${at(job.due)}  ${visible(job.id)}`));
  const left = room.height - lines.length;
  const reserved = left >= next.length + 2 * MIN_CHART ? next.length : 1;
  const charts = chartsOf(snapshot, { width: room.width, height: left - reserved });
  const all = [...lines, ...next.slice(0, Math.max(0, left - charts.length)), ...charts];
  return all.length <= room.height
    ? all
    : [...all.slice(0, room.height - 1), `… delayq inspect ${queueWord(queue)} | less`];
}

function recurringText({ count, next }: NonNullable<Snapshot['recurring']>, at: (ms: number) => string): string {
  return `${many(count, 'job')}, ${next === undefined ? 'all paused' : `next ${at(next)}`}`;
}

function lagText({ snapshot, trend }: Row, paint: Paint): string {
  const beside = [courseOf(trend), heldBackBy(snapshot, trend?.delivered)].filter(Boolean);
  return [late(snapshot, formatDuration(lag(snapshot)), paint), ...beside].join(', ');
}

function ratesText({ in: arrivals, out, retried, dead, spanMs }: Trend): string {
  const failing = retried + dead > 0 ? `, failed ${paceOf(retried + dead)}` : '';
  const over = formatDuration(Math.round(spanMs / 1_000) * 1_000);
  return `in ${paceOf(arrivals)}, done ${paceOf(out)}${failing} over the last ${over}`;
}

function errorText({ at: ms, error, by }: Failures, at: (ms: number) => string): string {
  return `${at(ms)}${by === '' ? '' : `, ${visible(by)}`}: ${visible(error ?? 'no error given')}`;
}

/** When no job will be due any more. */
function emptyText(row: Row): string {
  const { trend, snapshot } = row;
  const ms = emptyInMs(row);
  if (ms !== undefined) return formatDuration(ms);
  if (pausedUntil(snapshot) !== undefined) return 'never: it is paused';
  if (stalled(snapshot) !== undefined) return 'never: nothing drains it';
  if (!trend) return 'not known yet: check again in a minute';
  return `never at this rate${trend.out > 0 ? '' : `: nothing was done in ${formatDuration(trend.spanMs)}`}`;
}

/** Up to `most` of the consumers that hold leases, since when and until when. */
function heldBy({ snapshot }: Row, zone: string, most: number): string[] {
  const { now, held, active } = snapshot;
  if (held.holders.length === 0) return [];
  const lines = [...held.holders]
    .sort((a, b) => (a.since ?? now) - (b.since ?? now))
    .map(({ by, jobs, since, ends }) => {
      const moving = by.startsWith('move:');
      const who = moving ? `moving to ${visible(by.slice(5).replace(/^.*\//, 'partition '))}` : holderOf(by);
      const from = since === undefined ? '' : ` since ${timeOf(since, now, zone)} (${formatDuration(now - since)})`;
      return `${clip(who, WHO)}: ${many(jobs, 'job')}${from}, ${endOfLeases(ends, now, moving)}`;
    });
  const shown = lines.slice(0, Math.max(1, Math.min(HOLDERS, Math.floor(most))));
  const more = lines.length > shown.length ? [`… and ${grouped(lines.length - shown.length)} more`] : [];
  const part = held.seen < active ? [`(among the ${grouped(held.seen)} leases that expire first)`] : [];
  return [...shown, ...more, ...part];
}

/** When the first lease of a consumer expires, ms. A lease without an end belongs to a move, or is damaged. */
function endOfLeases(ends: number, now: number, moving: boolean): string {
  if (ends - now > FAR_MS) return moving ? 'until the move is done' : 'a lease never expires: run delayq doctor';
  if (ends > now) return `first lease expires in ${formatDuration(ends - now)}`;
  return `first lease expired ${formatDuration(now - ends)} ago`;
}

/** Charts of when jobs fall due: side by side if the terminal is wide enough. Only those that fit. */
function chartsOf(snapshot: Snapshot, { width, height }: Room): string[] {
  const { hour, day } = aheadOf(snapshot);
  if (snapshot.pending === snapshot.due) return [];
  const beside = width >= 130;
  if (height < MIN_CHART) return [];
  const isOne = !beside && height < 2 * MIN_CHART;
  const rows = height === Number.POSITIVE_INFINITY ? 6 : Math.min(10, Math.floor(height / (beside || isOne ? 1 : 2)));
  // A title and an axis take two lines of each chart.
  const size = { width: beside ? Math.floor((width - 8) / 2) : width - 4, height: Math.max(1, rows - 2) };
  const hourMarks = ['now', '+15m', '+30m', '+45m', '+1h'];
  const dayMarks = ['now', '+6h', '+12h', '+18h', '+24h'];
  const a = histogram(hour, { title: 'due in the next hour', each: '5 minutes', marks: hourMarks, ...size });
  const b = histogram(day, { title: 'due in the next day', each: 'an hour', marks: dayMarks, ...size });
  if (!beside) return [...(isOne ? [] : a), ...b].map((text) => `  ${text}`);
  const left = Math.max(...a.map(columns)) + 4;
  return Array.from({ length: Math.max(a.length, b.length) }, (_, i) =>
    `  ${padded(a[i] ?? '', left)}${b[i] ?? ''}`.trimEnd(),
  );
}

function settingsOf(snapshot: Snapshot, zone: string): [string, string][] {
  const settings = readSettings(snapshot.config);
  const given = Object.entries(snapshot.config).filter(([name]) => !OWN_FIELDS.some((own) => own === name));
  return given.map(([name, text]) => {
    if (name === 'paused' && text !== '') return [name, pauseInWords(snapshot, text, zone)];
    const value = settings[name as keyof Settings];
    if (value === undefined) return [name, text];
    return [settingWord(name as keyof Settings), formatSetting(name as keyof Settings, value)];
  });
}

/** The end of a pause, which is stored as ms; as it is if it is no time. */
function pauseInWords(snapshot: Snapshot, text: string, zone: string): string {
  const until = pausedUntil(snapshot);
  if (until === Number.POSITIVE_INFINITY) return 'until resumed';
  if (until !== undefined) return `until ${timeOf(until, snapshot.now, zone)}`;
  return Number.isFinite(Number(text)) ? 'no longer' : text;
}
