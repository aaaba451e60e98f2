// The measured rows, and as text; and what a text says.
import { median } from './rounds.js';

const WIDTHS = [35, 19, 19, 7, 9];
export const RULE = '-'.repeat(WIDTHS.reduce((sum, width) => sum + width) + 11);
/** Where the columns begin. */
const STARTS = [0, ...WIDTHS].map((_, i) => WIDTHS.slice(0, i).reduce((sum, width) => sum + width + 1, 0));
export const HEAD = `${['', 'delayq', 'the other', 'ratio', 'target'].map((cell, i) => cell.padEnd(WIDTHS[i])).join(' ')} met?`;

/**
 * @typedef {object} Row
 * @property {string} name what is measured, or the other that delayq is compared with
 * @property {number[]} [ours] samples of delayq
 * @property {number[] | undefined} [theirs] samples of the other; undefined if it is not installed
 * @property {boolean} [alone] whether there is no other
 * @property {{ ratio?: number, value?: number }} [target] the target of the ratio, or of our own median
 * @property {(string | undefined)[]} [shown] text for ours and theirs instead of median and spread
 * @property {string} [note] a line below the row
 */

/** @typedef {{ title: string, unit: string, more: boolean, rows: Row[] }} Section */

/** A section in jobs per second. @param {string} title @param {Row[]} rows */
export const rates = (title, rows) => ({ title, unit: 'jobs/s', more: true, rows });

/** A section in which less is better. @param {string} title @param {string} unit @param {Row[]} rows */
export const costs = (title, unit, rows) => ({ title, unit, more: false, rows });

/** A number with three digits. @param {number} n */
export function short(n) {
  if (Number.isNaN(n)) return '?';
  if (n >= 999_500) return `${trimmed(n / 1e6)}M`;
  if (n >= 9_995) return `${trimmed(n / 1e3)}k`;
  if (n >= 1_000) return String(Math.round(n));
  return trimmed(n);
}

/** @param {number} n */
function trimmed(n) {
  if (Number.isInteger(n)) return String(n);
  if (n < 0.095) return n.toPrecision(1);
  return n >= 99.95 ? n.toFixed(0) : n >= 9.995 ? n.toFixed(1) : n.toFixed(2);
}

/** Median and spread. @param {number[]} samples */
function spread(samples) {
  if (samples.length === 1 || Math.min(...samples) === Math.max(...samples)) return short(samples[0]);
  return `${short(median(samples))} (${short(Math.min(...samples))}-${short(Math.max(...samples))})`;
}

/** The ratio, and whether it reaches the target. @param {Row} row @param {boolean} more */
function judged({ ours, theirs, target }, more) {
  if (!ours) return {};
  const mine = median(ours);
  // 0 / 0 counts as equal.
  const ratio = theirs && (mine === median(theirs) ? 1 : mine / median(theirs));
  const measured = target?.value !== undefined ? mine : ratio;
  const goal = target?.value ?? target?.ratio;
  if (goal === undefined || measured === undefined) {
    const verdict = Math.abs(ratio - 1) < 0.05 ? 'equal' : (more ? ratio > 1 : ratio < 1) ? 'better' : 'worse';
    return { ratio, verdict: ratio === undefined ? '' : verdict };
  }
  return { ratio, reached: more ? measured >= goal : measured <= goal };
}

/** The lines of a section, at most 100 columns wide. @param {Section} section */
export function sectionText({ title, unit, more, rows }) {
  const head = `${title}: ${unit}, ${more ? 'more' : 'less'} is better`;
  return [head, ...rows.map((row) => line(row, more))].join('\n');
}

/** @param {Row} row @param {boolean} more */
function line(row, more) {
  const { name, ours, theirs, alone, shown, target, note } = row;
  const { ratio, reached, verdict } = judged(row, more);
  const goal = target && `${more ? '>=' : '<='} ${target.value ?? `${target.ratio} x`}`;
  const met = reached === undefined ? verdict : reached ? 'yes' : 'MISSED';
  const cells = [
    `  ${name}`,
    shown?.[0] ?? (ours ? spread(ours) : 'not measured'),
    shown?.[1] ?? (theirs ? spread(theirs) : alone ? '' : 'not installed'),
    Number.isFinite(ratio) ? `${trimmed(ratio)} x` : '',
    goal ?? '',
  ];
  return `${cells.map((cell, i) => cell.padEnd(WIDTHS[i])).join(' ')} ${met ?? ''}${note ? `\n      ${note}` : ''}`.trimEnd();
}

/** The rows of sections as text. @param {string} text */
export function parsed(text) {
  let section = '';
  return text.split('\n').flatMap((line) => {
    if (/^\S/.test(line)) section = line;
    if (!/^ {2}\S/.test(line)) return [];
    const cells = STARTS.map((start, i) => line.slice(start, STARTS[i + 1]).trim());
    const [name, ours, theirs, ratio, target, met] = cells;
    return [{ section, name, ours, theirs, ratio: Number.parseFloat(ratio), target, met }];
  });
}

/** Whether rows have no figure, or none of the other, without a note that says why. @param {Section[]} sections */
export function unmeasured(sections) {
  const broken = (samples) => samples && (samples.length === 0 || !samples.every(Number.isFinite));
  const rows = sections.flatMap(({ title, rows }) =>
    rows.flatMap(({ name, ours, theirs, note }) =>
      (!ours && !note) || broken(ours) || broken(theirs) ? [`${title}: ${name}`] : [],
    ),
  );
  if (sections.length === 0) return ['nothing was measured'];
  return rows.length === 0 ? [] : [`${rows.length} rows not measured, the first: ${rows[0]}`];
}

/** Rows whose target is none: what was lost, early, or there twice. @param {Section[]} sections */
export function lost(sections) {
  return sections.flatMap(({ title, more, rows }) =>
    rows.flatMap((row) =>
      row.target?.value === 0 && judged(row, more).reached === false
        ? [`${title}: ${row.name}: ${median(row.ours)}`]
        : [],
    ),
  );
}

export const LEGEND = `Medians of all rounds, with minimum and maximum in brackets; k: thousand, M: million.
ratio: delayq / the other. Without a target, the last column says whether delayq is
better or worse.`;
