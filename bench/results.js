// The last results of each topic, as bench/README.md shows them between its markers: a line about the machine, then the
// topics in one table. A run replaces those that it measured.
import { readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, totalmem } from 'node:os';
import { HEAD, LEGEND, parsed, RULE, sectionText } from './table.js';

const FILE = new URL('README.md', import.meta.url);
const MARKERS = ['<!-- table -->', '<!-- end of table -->'];

/** This machine, as text. */
export function machineHere() {
  return `${cpus().length} cores (${cpus()[0]?.model.trim()}, ${arch()}), ${Math.round(totalmem() / 2 ** 30)} GiB`;
}

/** @typedef {{ topic: string, head: string, text: string }} Result the head says when and beside what; the text has the sections */

/** @param {import('./measured.js').Measured} measured @returns {Result} */
export function resultOf({ topic, sections, seconds, versions }) {
  const rounds = sections[0]?.rows.find(({ ours }) => ours)?.ours.length ?? 0;
  const date = new Date().toISOString().slice(0, 10);
  const times = rounds === 1 ? '1 round' : `${rounds} rounds`;
  return {
    topic,
    head: `${date}, ${times}, ${Math.ceil(seconds / 60)} min; ${versions.join(', ')}`,
    text: sections.map(sectionText).join('\n\n'),
  };
}

/** Reads the text between the markers. @param {string} text @returns {{ machine: string, results: Result[] }} */
function read(text) {
  const [, machine, table] = /^(.+?)\n.*?```text\n(.*?)\n```/s.exec(text.trim()) ?? [];
  if (!table) throw new Error('bench/README.md has no table between its markers');
  const parts = table.split(/^== (\S+): (.+)\n/m).slice(1);
  const results = [];
  for (let i = 0; i < parts.length; i += 3) {
    const [topic, head, rest] = parts.slice(i, i + 3);
    results.push({ topic, head, text: rest.split(`\n${RULE}`)[0].trim() });
  }
  return { machine: machine.trim(), results };
}

/** The opposite of {@link read}. @param {{ machine: string, results: Result[] }} all */
export function written({ machine, results }) {
  const body = results.map(({ topic, head, text }) => `== ${topic}: ${head}\n\n${text}`).join('\n\n');
  return `${machine}  \n${sumOf(results)}\n\n\`\`\`text\n${HEAD}\n${RULE}\n${body}\n${RULE}\n${LEGEND}\n\`\`\``;
}

/** @param {Result[]} results */
function sumOf(results) {
  const rows = results.flatMap(({ text }) => parsed(text));
  const count = (met) => rows.filter((row) => row.met === met).length;
  return `${count('yes')} targets met, ${count('MISSED')} missed.`;
}

/** The results in bench/README.md. @param {URL} [file] */
export function stored(file = FILE) {
  return read(between(readFileSync(file, 'utf8')));
}

/** Puts fresh results into bench/README.md, in the order of `topics`. @param {ReturnType<typeof read>} fresh @param {string[]} topics */
export function store(fresh, topics) {
  const { machine, results } = stored();
  // Figures of two machines do not belong into one table.
  const before = machine === fresh.machine ? results : [];
  const all = topics.flatMap((topic) => [...fresh.results, ...before].find((result) => result.topic === topic) ?? []);
  const text = readFileSync(FILE, 'utf8');
  writeFileSync(
    FILE,
    text.replace(between(text), () => `\n\n${written({ machine: fresh.machine, results: all })}\n\n`),
  );
}

/** @param {string} text */
function between(text) {
  const [from, to] = MARKERS.map((marker) => text.indexOf(marker));
  if (from < 0 || to < from) throw new Error('bench/README.md has no markers for the table');
  return text.slice(from + MARKERS[0].length, to);
}
