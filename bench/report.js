// The report: machine, versions, date, and the table.
import { readFileSync, writeFileSync } from 'node:fs';
import { arch, cpus, totalmem } from 'node:os';
import { judged, table } from './table.js';

/**
 * @param {import('./table.js').Section[]} sections
 * @param {{ rig: import('./rig.js').Rig, topics: string[], minutes: number }} run
 */
export async function reported(sections, { rig, topics, minutes }) {
  const machine = `${cpus().length} cores (${cpus()[0]?.model.trim()}, ${arch()}), ${Math.round(totalmem() / 2 ** 30)} GiB`;
  const versions = await rig.versions();
  const date = new Date().toISOString().slice(0, 10);
  const how = [rig.quick && 'quick', ...topics].filter(Boolean).join(', ');
  const rows = sections.flatMap(({ rows, more }) => rows.map((row) => judged(row, more).reached));
  const sum = `${rows.filter((met) => met).length} targets met, ${rows.filter((met) => met === false).length} missed`;
  const run = `${date}${how && ` (${how})`}, ${Math.ceil(minutes)} min: ${sum}.`;
  const head = `${machine}\n${versions.join(', ')}\n${run}`;
  return { machine, versions, date, minutes, quick: rig.quick, sections, text: `${head}\n\n${table(sections)}` };
}

/** Replaces the text between the markers of a Markdown file. @param {URL} file @param {string} text */
export function writeInto(file, text) {
  const [head, ...lines] = text.split('\n\n');
  const whole = readFileSync(file, 'utf8');
  const [before, after] = ['<!-- table -->', '<!-- end of table -->'].map((marker) => whole.indexOf(marker));
  if (before < 0 || after < before) throw new Error(`${file} has no markers for the table`);
  const body = `<!-- table -->\n\n${head.replaceAll('\n', '  \n')}\n\n\`\`\`text\n${lines.join('\n\n')}\n\`\`\`\n\n`;
  writeFileSync(file, whole.slice(0, before) + body + whole.slice(after));
}
