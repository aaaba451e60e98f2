// Reads the texts that the generated pages are made of: the text below a command's help, and tables of hand-written pages.

/** A line that begins an entry of a list: a term, two spaces or more, its meaning. */
const ENTRY = /^( *)(\S+(?: \S+)*?) {2,}(?=\S)/;

/**
 * The text below a command's help as blocks: `heading`, `list` (entries with term and text) and `text`. Lines of a
 * paragraph or an entry are joined, so that each page can break them anew.
 */
export function blocksOf(text) {
  const blocks = [];
  let column = 0;
  const lines = text.split('\n');
  for (const [i, line] of lines.entries()) {
    const last = blocks.at(-1);
    const entry = ENTRY.exec(line);
    const indent = line.search(/\S/);
    if (line.trim() === '') blocks.push({ kind: 'gap' });
    else if (last?.kind === 'list' && indent >= column) last.entries.at(-1).text += ` ${line.trim()}`;
    else if (entry) {
      column = entry[0].length;
      const one = { term: entry[2], text: line.slice(column).trim() };
      if (last?.kind === 'list') last.entries.push(one);
      else blocks.push({ kind: 'list', entries: [one] });
    } else if (/^[A-Z][^.]{0,40}:$/.test(line) && /^ {2}/.test(lines[i + 1] ?? '')) {
      blocks.push({ kind: 'heading', text: line.slice(0, -1) });
    } else if (last?.kind === 'text' && !line.startsWith('Exit status:')) last.text += ` ${line.trim()}`;
    else blocks.push({ kind: 'text', text: line.trim() });
  }
  return blocks.filter(({ kind }) => kind !== 'gap');
}

/** The tables of a Markdown page: the heading that each stands under, and its rows of cells. */
export function tablesOf(markdown) {
  const tables = [];
  let heading = '';
  let inside = false;
  for (const line of markdown.split('\n')) {
    if (line.startsWith('#')) heading = line.replace(/^#+ /, '');
    const isRow = line.startsWith('|');
    if (isRow && !inside) tables.push({ heading, rows: [] });
    if (isRow)
      tables.at(-1).rows.push(
        line
          .slice(1, -1)
          .split(/(?<!\\)\|/)
          .map((cell) => cell.trim().replaceAll('\\|', '|')),
      );
    inside = isRow;
  }
  // Without the head and the line below it.
  return tables.map(({ heading, rows }) => ({ heading, rows: rows.slice(2) }));
}

/** `text` broken into lines of at most `width` characters where it has spaces. */
export function wrapped(text, width) {
  const lines = [''];
  for (const word of text.split(' ')) {
    const line = lines.at(-1);
    if (line !== '' && line.length + 1 + word.length > width) lines.push(word);
    else lines[lines.length - 1] = line === '' ? word : `${line} ${word}`;
  }
  return lines.join('\n');
}

/** The places of spaces in a shell line at which it may be broken: outside of quotes. */
function breaksOf(line) {
  const places = [];
  let quote = '';
  for (const [i, c] of [...line].entries()) {
    if (quote === '' && (c === "'" || c === '"')) quote = c;
    else if (c === quote) quote = '';
    else if (c === ' ' && quote === '') places.push(i);
  }
  return places;
}

/** An example as lines of at most `width`, where that can be: its comment above, broken behind a pipe or by a backslash. */
export function brokenExample(example, width) {
  if (example.length <= width) return [example];
  const [, command = example, comment] = /^(.*?\S) {2,}# (.*)$/.exec(example) ?? [];
  const lines = comment === undefined ? [] : [`# ${comment}`];
  let rest = command;
  // A line of a crontab cannot be continued.
  while (rest.length > width && !rest.startsWith('* ')) {
    const fits = breaksOf(rest).filter((place) => place > 4 && place <= width - 2);
    const at = fits.findLast((place) => rest[place - 1] === '|') ?? fits.at(-1);
    if (at === undefined) break;
    lines.push(rest[at - 1] === '|' ? rest.slice(0, at) : `${rest.slice(0, at)} \\`);
    rest = `    ${rest.slice(at + 1)}`;
  }
  return [...lines, rest];
}
