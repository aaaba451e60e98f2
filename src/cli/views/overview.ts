import { formatDuration, lag, pausedUntil } from '../../internal.js';
import { clip, columns, grouped, type Paint, table, visible } from '../terminal/output.js';
import { arrowOf, bad, faultsOf, late, NONE, paceOf, signLine, signsOf } from './problems.js';
import type { Look, Row } from './snapshot.js';

/** The size of the terminal. A height of Infinity: no limit. */
export interface Room {
  readonly width: number;
  readonly height: number;
}

/** The least room for a queue's name, columns. */
const MIN_NAME = 12;

const COLUMNS: readonly { readonly name: string; readonly cell: (row: Row, paint: Paint) => string }[] = [
  { name: 'pending', cell: ({ snapshot }) => grouped(snapshot.pending) },
  { name: 'due', cell: ({ snapshot }, paint) => (snapshot.due > 0 ? paint.bold(grouped(snapshot.due)) : '0') },
  {
    name: 'lag',
    cell: ({ snapshot, trend }, paint) =>
      late(snapshot, `${formatDuration(lag(snapshot))} ${arrowOf(trend)}`.trimEnd(), paint),
  },
  {
    name: 'drained',
    cell: ({ snapshot: { stats, now } }) => (stats.drained === undefined ? 'never' : ago(now - stats.drained)),
  },
  { name: 'in', cell: ({ trend }) => paceOf(trend?.in) },
  { name: 'out', cell: ({ trend }) => paceOf(trend?.out) },
  { name: 'empty in', cell: ({ trend }) => (trend?.emptyInMs === undefined ? NONE : formatDuration(trend.emptyInMs)) },
  {
    name: 'next',
    cell: ({ snapshot: { upcoming, now } }) => (upcoming[0] ? formatDuration(upcoming[0].due - now) : NONE),
  },
  { name: 'active', cell: ({ snapshot }) => grouped(snapshot.active) },
  { name: 'run out', cell: ({ snapshot: { runOut } }, paint) => (runOut > 0 ? paint.bold(grouped(runOut)) : '0') },
  { name: 'dead', cell: ({ snapshot }, paint) => bad(snapshot.dead, paint) },
];

/** The order in which columns are left out if the terminal is too narrow. */
const EXPENDABLE = ['run out', 'empty in', 'next', 'in', 'out', 'drained', 'active'];

/** Formats all queues as lines for a terminal: problems, a table, and damage. */
export async function overview(
  { rows, broken }: Look,
  how: { address: string; prefix: string; zone: string; paint: Paint; room: Room },
): Promise<string[]> {
  const { address, prefix, zone, paint, room } = how;
  if (rows.length + broken.length === 0)
    return [
      `No queues at ${address} with the prefix ${prefix} yet. Enqueue a first job:`,
      `  delayq enqueue --in 15m order-close '{"orderId":42}'`,
      'Queues filled only by other software are not listed: give their names, or run delayq doctor.',
    ];
  // Problems come first, those of the queues with most due jobs at the top: the rest may be cut off.
  const signs = rows
    .flatMap((row) => signsOf(row, zone).map((sign) => ({ sign, row })))
    .sort((a, b) => Number(b.sign.urgent) - Number(a.sign.urgent) || b.row.snapshot.due - a.row.snapshot.due);
  const faults = [
    ...rows.flatMap((row) => faultsOf(row).map((fault) => `${visible(row.queue)}: ${fault}`)),
    ...broken.map(({ queue, error }) => `${visible(queue)}: cannot be read: ${visible(error.why ?? error.message)}`),
  ].map((fault) => `${paint.red.bold('!')} ${fault}`);
  const third = Math.max(1, Math.floor(room.height / 3));
  const warnings = signs.map(({ sign, row }) => signLine(sign, paint, visible(row.queue)));
  const above = cut(warnings, third, 'warnings');
  const below = cut(faults, third, 'problems');
  const left = room.height - above.length - below.length - 1;
  const wrong = [...new Set(signs.filter(({ sign }) => sign.urgent).map(({ row }) => row))];
  const chosen = [...wrong, ...rows.filter((row) => !wrong.includes(row))].slice(0, Math.max(1, left - 1));
  // Still ordered by name, so that a queue keeps its place.
  const shown = rows.length > left ? rows.filter((row) => chosen.includes(row)) : rows;
  const more = rows.length > shown.length ? [`… and ${grouped(rows.length - shown.length)} more queues`] : [];
  return [...above, ...(await tableOf(shown, room.width, paint)), ...more, ...below];
}

function cut(lines: string[], most: number, things: string): string[] {
  if (lines.length <= most) return lines;
  return [...lines.slice(0, most - 1), `… and ${grouped(lines.length - most + 1)} more ${things}`];
}

/** Fits the table to `width`: leaves out columns first, then cuts names. */
async function tableOf(rows: readonly Row[], width: number, paint: Paint): Promise<string[]> {
  if (rows.length === 0) return [];
  const names = rows.map((row) => nameOf(row, paint));
  const cells = COLUMNS.map(({ cell }) => rows.map((row) => cell(row, paint)));
  const widths = COLUMNS.map(({ name }, i) => 2 + Math.max(name.length, ...(cells[i] ?? []).map(columns)));
  // Columns that are empty for every queue are never shown.
  const kept = new Set(COLUMNS.map(({ name }) => name));
  if (rows.every(({ snapshot }) => snapshot.runOut === 0)) kept.delete('run out');
  if (rows.every(({ trend }) => trend?.emptyInMs === undefined)) kept.delete('empty in');
  const used = () => COLUMNS.reduce((sum, { name }, i) => sum + (kept.has(name) ? (widths[i] ?? 0) : 0), 0);
  const room = () => width - used();
  const longest = Math.max('queue'.length, ...names.map(columns));
  for (const name of EXPENDABLE) if (room() < longest) kept.delete(name);
  const nameRoom = Math.max(MIN_NAME, room());
  const wanted = COLUMNS.map(({ name }, i) => ({ name, cells: cells[i] ?? [] })).filter(({ name }) => kept.has(name));
  const text = await table(
    ['queue', ...wanted.map(({ name }) => name)].map((name) => paint.underline(name)),
    names.map((name, i) => [clip(name, nameRoom), ...wanted.map(({ cells: column }) => column[i] ?? '')]),
  );
  return text.split('\n');
}

function nameOf({ queue, snapshot }: Row, paint: Paint): string {
  return pausedUntil(snapshot) === undefined ? visible(queue) : `${visible(queue)} ${paint.magenta.bold('paused')}`;
}

function ago(ms: number): string {
  return ms < 1_000 ? 'now' : formatDuration(ms);
}
