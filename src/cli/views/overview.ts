import { formatDuration, lag, pausedUntil } from '../../internal.js';
import { clip, columns, grouped, type Paint, table, visible } from '../terminal/output.js';
import { arrowOf, bad, faultsOf, late, NONE, paceOf, signLine, signsOf } from './problems.js';
import type { Look, Row } from './snapshot.js';

/** How much room a picture has. A length of Infinity: as many lines as it takes. */
export interface Room {
  readonly width: number;
  readonly height: number;
}

/** The least that is kept of a queue's name, columns. */
const NAME_LEAST = 12;

interface Column {
  readonly name: string;
  readonly cell: (row: Row, paint: Paint) => string;
}

const COLUMNS: readonly Column[] = [
  { name: 'pending', cell: ({ snapshot }) => grouped(snapshot.pending) },
  { name: 'due', cell: ({ snapshot }, paint) => (snapshot.due > 0 ? paint.bold(grouped(snapshot.due)) : '0') },
  {
    name: 'lag',
    cell: ({ snapshot, trend }, paint) =>
      late(snapshot, `${formatDuration(lag(snapshot))} ${arrowOf(trend)}`.trimEnd(), paint),
  },
  {
    name: 'drained',
    cell: ({ snapshot }) => {
      const { drained } = snapshot.stats;
      return drained === undefined ? 'never' : ago(snapshot.now - drained);
    },
  },
  { name: 'in', cell: ({ trend }) => paceOf(trend?.in) },
  { name: 'out', cell: ({ trend }) => paceOf(trend?.out) },
  { name: 'empty in', cell: ({ trend }) => (trend?.emptyInMs === undefined ? NONE : formatDuration(trend.emptyInMs)) },
  {
    name: 'next',
    cell: ({ snapshot }) => {
      const next = snapshot.upcoming[0];
      return next ? formatDuration(next.due - snapshot.now) : NONE;
    },
  },
  { name: 'active', cell: ({ snapshot }) => grouped(snapshot.active) },
  {
    name: 'run out',
    cell: ({ snapshot }, paint) => (snapshot.runOut > 0 ? paint.bold(grouped(snapshot.runOut)) : '0'),
  },
  { name: 'dead', cell: ({ snapshot }, paint) => bad(snapshot.dead, paint) },
];

/** What goes first when the terminal is too narrow. */
const EXPENDABLE = ['run out', 'empty in', 'next', 'in', 'out', 'drained', 'active'];

/** All queues as lines for a terminal: what is wrong, a table, and what cannot be read. */
export async function overview(
  { rows, broken }: Look,
  how: { address: string; prefix: string; zone: string; paint: Paint; room: Room },
): Promise<string[]> {
  const { address, prefix, zone, paint, room } = how;
  if (rows.length + broken.length === 0)
    return [
      `No queues at ${address} with the prefix ${prefix} yet. Put a job into one:`,
      `  delayq enqueue --in 15m order-close '{"orderId":42}'`,
      'Queues that only other software has put jobs into are found by name, and by delayq doctor.',
    ];
  // What is cut off must not be the worst: where most jobs are due comes first.
  const signs = rows
    .flatMap((row) => signsOf(row, zone).map((sign) => ({ sign, row })))
    .sort((a, b) => Number(b.sign.bad) - Number(a.sign.bad) || b.row.snapshot.due - a.row.snapshot.due);
  const faults = [
    ...rows.flatMap(({ queue, snapshot }) => faultsOf(snapshot).map((fault) => `${visible(queue)}: ${fault}`)),
    ...broken.map(({ queue, error }) => `${visible(queue)}: cannot be read: ${visible(error.why ?? error.message)}`),
  ].map((fault) => `${paint.red.bold('!')} ${fault}`);
  const third = Math.max(1, Math.floor(room.height / 3));
  const above = cut(
    signs.map(({ sign, row }) => signLine(sign, paint, visible(row.queue))),
    third,
    'signs',
  );
  const below = cut(faults, third, 'faults');
  const left = room.height - above.length - below.length - 1;
  const wrong = [...new Set(signs.filter(({ sign }) => sign.bad).map(({ row }) => row))];
  const chosen = [...wrong, ...rows.filter((row) => !wrong.includes(row))].slice(0, Math.max(1, left - 1));
  // In the order of their names all the same, so that they can be found again.
  const shown = rows.length > left ? rows.filter((row) => chosen.includes(row)) : rows;
  const more = rows.length > shown.length ? [`… and ${grouped(rows.length - shown.length)} more queues`] : [];
  return [...above, ...(await tableOf(shown, room.width, paint)), ...more, ...below];
}

function cut(lines: string[], most: number, things: string): string[] {
  if (lines.length <= most) return lines;
  return [...lines.slice(0, most - 1), `… and ${grouped(lines.length - most + 1)} more ${things}`];
}

/** The widest table that fits: first columns are left out, then names are cut. */
async function tableOf(rows: readonly Row[], width: number, paint: Paint): Promise<string[]> {
  if (rows.length === 0) return [];
  const names = rows.map((row) => nameOf(row, paint));
  const cells = COLUMNS.map(({ cell }) => rows.map((row) => cell(row, paint)));
  const widths = COLUMNS.map(({ name }, i) => 2 + Math.max(name.length, ...(cells[i] ?? []).map(columns)));
  // A column that says nothing of any queue is no loss, however wide the terminal is.
  const kept = new Set(COLUMNS.map(({ name }) => name));
  if (rows.every(({ snapshot }) => snapshot.runOut === 0)) kept.delete('run out');
  if (rows.every(({ trend }) => trend?.emptyInMs === undefined)) kept.delete('empty in');
  const used = () => COLUMNS.reduce((sum, { name }, i) => sum + (kept.has(name) ? (widths[i] ?? 0) : 0), 0);
  const room = () => width - used();
  const longest = Math.max('queue'.length, ...names.map(columns));
  for (const name of EXPENDABLE) if (room() < longest) kept.delete(name);
  const nameRoom = Math.max(NAME_LEAST, room());
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
