import { formatDuration, heldBackBy, lag, pausedUntil } from '../../internal.js';
import { columns, fold, grouped, many, type Paint, type Room, shortened, table, visible } from '../terminal/output.js';
import { arrowOf, bad, emptyInMs, late, NONE, paceOf, signLines, signsOf } from './problems.js';
import { type Look, type Row, reasonOf } from './snapshot.js';

/** The least room for a queue's name, columns: no column is left out for a longer one. */
const MIN_NAME = 11;

const COLUMNS: readonly { readonly name: string; readonly cell: (row: Row, paint: Paint) => string }[] = [
  { name: 'pending', cell: ({ snapshot }) => grouped(snapshot.pending) },
  { name: 'due', cell: ({ snapshot }, paint) => (snapshot.due > 0 ? paint.bold(grouped(snapshot.due)) : '0') },
  {
    name: 'lag',
    cell: ({ snapshot, trend }, paint) => {
      const limited = heldBackBy(snapshot, trend?.delivered) && 'limited';
      const words = [formatDuration(lag(snapshot)), arrowOf(trend).trim(), limited];
      return late(snapshot, words.filter(Boolean).join(' '), paint);
    },
  },
  {
    name: 'drained',
    cell: ({ snapshot }, paint) => {
      const { stats, now } = snapshot;
      if (pausedUntil(snapshot) !== undefined) return paint.magenta.bold('paused');
      return stats.drained === undefined ? 'never' : ago(now - stats.drained);
    },
  },
  { name: 'in', cell: ({ trend }) => paceOf(trend?.in) },
  { name: 'done', cell: ({ trend }) => paceOf(trend?.out) },
  { name: 'failed', cell: ({ trend }) => paceOf(trend && trend.retried + trend.dead) },
  {
    name: 'empty in',
    cell: (row) => {
      const ms = emptyInMs(row);
      return ms === undefined ? NONE : formatDuration(ms);
    },
  },
  {
    name: 'next',
    cell: ({ snapshot: { upcoming, now } }) => (upcoming[0] ? formatDuration(upcoming[0].due - now) : NONE),
  },
  { name: 'active', cell: ({ snapshot }) => grouped(snapshot.active) },
  { name: 'run out', cell: ({ snapshot: { runOut } }, paint) => (runOut > 0 ? paint.bold(grouped(runOut)) : '0') },
  { name: 'dead', cell: ({ snapshot }, paint) => bad(snapshot.dead, paint) },
];

/** The order in which columns are left out if the terminal is too narrow. */
const EXPENDABLE = ['run out', 'empty in', 'next', 'in', 'done', 'failed', 'drained', 'active'];

/** Formats all queues as lines that fit into `room`: what is wrong, then a table. */
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
    ].flatMap((line) => fold(line, room));
  // What is wrong comes first, worst of all what cannot be read, then the queues with most due jobs: a screen may be full.
  const refusals = new Set(rows.flatMap(({ snapshot }) => snapshot.refusal ?? []));
  const found = rows
    .flatMap((row) => signsOf(row, zone).map((sign) => ({ ...sign, row })))
    .filter(({ what }) => !refusals.has(what));
  found.sort((a, b) => Number(b.urgent) - Number(a.urgent) || b.row.snapshot.due - a.row.snapshot.due);
  const line = (urgent: boolean, queue: string, what: string) =>
    signLines({ urgent, what: `${visible(queue)}: ${what}` }, paint, room);
  const warnings = [
    // Of the server, so once for all queues.
    ...[...refusals].map((what) => signLines({ urgent: true, what }, paint, room)),
    ...broken.map(({ queue, error }) => line(true, queue, `cannot be read: ${visible(reasonOf(error))}`)),
    ...found.map(({ urgent, what, row }) => line(urgent, row.queue, what)),
  ];
  const above = cut(warnings, Math.max(2, Math.floor(room.height / 3), room.height - rows.length - 2));
  const left = room.height - above.length - 1;
  const wrong = [...new Set(found.filter(({ urgent }) => urgent).map(({ row }) => row))];
  const chosen = [...wrong, ...rows.filter((row) => !wrong.includes(row))].slice(0, Math.max(1, left - 1));
  // Still ordered by name, so that a queue keeps its place.
  const shown = rows.length > left ? rows.filter((row) => chosen.includes(row)) : rows;
  const more = rows.length - shown.length;
  return [
    ...above,
    ...(await tableOf(shown, room, paint)),
    ...(more > 0 ? [`… and ${many(more, 'more queue')}: delayq inspect | less`] : []),
  ];
}

/** As many of the warnings, one line or several each, as fit into `most` lines. */
function cut(warnings: readonly string[][], most: number): string[] {
  if (warnings.flat().length <= most) return warnings.flat();
  let lines = 0;
  const fits = warnings.filter((warning, i) => {
    lines += warning.length;
    return i === 0 || lines < most;
  });
  return [...fits.flat(), `… and ${many(warnings.length - fits.length, 'more warning')}: delayq inspect | less`];
}

/** Fits the table to the width, for names that are cut if need be: leaves out columns. A pipe gets whole names. */
async function tableOf(rows: readonly Row[], { width, height }: Room, paint: Paint): Promise<string[]> {
  if (rows.length === 0) return [];
  const names = rows.map(({ queue }) => visible(queue));
  const cells = COLUMNS.map(({ cell }) => rows.map((row) => cell(row, paint)));
  const widths = COLUMNS.map(({ name }, i) => 2 + Math.max(name.length, ...(cells[i] ?? []).map(columns)));
  // Columns that are empty for every queue are never shown.
  const kept = new Set(COLUMNS.map(({ name }) => name));
  if (rows.every(({ snapshot }) => snapshot.runOut === 0)) kept.delete('run out');
  if (rows.every(({ trend }) => !trend || trend.retried + trend.dead === 0)) kept.delete('failed');
  if (rows.every((row) => emptyInMs(row) === undefined)) kept.delete('empty in');
  const used = () => COLUMNS.reduce((sum, { name }, i) => sum + (kept.has(name) ? (widths[i] ?? 0) : 0), 0);
  const room = () => width - used();
  const needed = Math.min(MIN_NAME, Math.max('queue'.length, ...names.map(columns)));
  for (const name of EXPENDABLE) if (room() < needed) kept.delete(name);
  const nameRoom = height === Number.POSITIVE_INFINITY ? height : Math.max(needed, room());
  const wanted = COLUMNS.map(({ name }, i) => ({ name, cells: cells[i] ?? [] })).filter(({ name }) => kept.has(name));
  const text = await table(
    ['queue', ...wanted.map(({ name }) => name)].map((name) => paint.underline(name)),
    names.map((name, i) => [shortened(name, nameRoom), ...wanted.map(({ cells: column }) => column[i] ?? '')]),
  );
  return text.split('\n');
}

function ago(ms: number): string {
  return ms < 1_000 ? 'now' : formatDuration(ms);
}
