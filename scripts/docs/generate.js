// Generates docs/reference/commands.md and man/*.1 from the commander objects of the command line, so that the help,
// the reference and the man pages cannot differ. `npm run docs` writes the reference, and the list of man pages in
// package.json; both are committed, and `--check` names what is stale. The build writes the man pages: `--man`.
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { commandsPage } from './markdown.js';
import { commandPage, programPage } from './roff.js';
import { blocksOf, tablesOf } from './text.js';

const root = new URL('../../', import.meta.url);
const manifest = JSON.parse(readFileSync(new URL('package.json', root), 'utf8'));
const { version } = manifest;

/** The files of src/cli that make the program. */
const SOURCES = `export { programOf } from './program.js'; export { COMMANDS } from './registry.js';`;

/** Bundles the sources in memory and runs them: the library is compiled by tsc, but the command line is not. */
async function load() {
  const { outputFiles } = await build({
    stdin: { contents: SOURCES, resolveDir: fileURLToPath(new URL('src/cli/', root)), loader: 'ts' },
    bundle: true,
    write: false,
    platform: 'node',
    format: 'cjs',
    packages: 'external',
    define: { DELAYQ_VERSION: JSON.stringify(version), 'import.meta.url': JSON.stringify(import.meta.url) },
  });
  const module = { exports: {} };
  new Function('require', 'module', 'exports', outputFiles[0].text)(
    createRequire(import.meta.url),
    module,
    module.exports,
  );
  return module.exports;
}

/** What addHelpText has put after a command's help: the text, and the lines of the examples below it. */
function belowHelp(command) {
  let all = '';
  command.emit('afterHelp', { error: false, command, write: (some) => (all += some) });
  const [text, examples = ''] = all.split('\nExamples:\n');
  return { text: text.trim(), examples: examples.trim().split('\n') };
}

/** What the pages tell of a command. */
function modelOf(command) {
  const help = command.createHelp();
  const { text, examples } = belowHelp(command);
  return {
    name: command.name(),
    summary: command.summary(),
    usage: help.commandUsage(command),
    description: command.description(),
    arguments: help
      .visibleArguments(command)
      .map((one) => ({ term: help.argumentTerm(one), text: help.argumentDescription(one) })),
    options: help.visibleOptions(command).map((one) => ({
      term: help.optionTerm(one),
      text: help.optionDescription(one),
      name: one.long,
    })),
    examples: examples.map((line) => line.trim()),
    blocks: blocksOf(text),
  };
}

/** The texts of the man pages, and of the files that are committed, by their paths. */
async function pages() {
  const { programOf, COMMANDS } = await load();
  // Commands ask their context for nothing before they run.
  const made = await programOf({}).all();
  const groups = Object.entries(COMMANDS).map(([title, commands]) => ({
    title,
    commands: Object.keys(commands).map((name) => modelOf(made.commands.find((command) => command.name() === name))),
  }));
  const program = modelOf(made);
  const tables = (name) => tablesOf(readFileSync(new URL(`docs/reference/${name}.md`, root), 'utf8'));
  const [{ rows: exits }, { rows: exitsByCommand }] = tables('exit-codes');
  const [{ rows: variables }, , { rows: files }] = tables('environment');
  const facts = { version, groups, exits, exitsByCommand, variables, files };
  const man = [
    ['man/delayq.1', programPage(program, facts)],
    ...groups.flatMap(({ commands }) =>
      commands.map((command) => [`man/delayq-${command.name}.1`, commandPage(command, facts)]),
    ),
  ];
  // npm links the pages that are listed here; it does not look at "directories.man" when it installs.
  manifest.man = man.map(([path]) => path);
  const committed = [
    ['docs/reference/commands.md', commandsPage(program, facts)],
    ['package.json', `${JSON.stringify(manifest, undefined, 2)}\n`],
  ];
  return { man, committed };
}

const write = (pages) => {
  for (const [path, text] of pages) writeFileSync(new URL(path, root), text);
};

const { man, committed } = await pages();
const stale = committed.filter(([path, text]) => readFileSync(new URL(path, root), 'utf8') !== text);
if (process.argv.includes('--man')) {
  rmSync(new URL('man/', root), { recursive: true, force: true });
  mkdirSync(new URL('man/', root));
  write(man);
} else if (!process.argv.includes('--check')) {
  write(stale);
  console.error(`docs: ${stale.length} of ${committed.length} files changed`);
} else if (stale.length > 0) {
  for (const [path] of stale) console.log(path);
  console.error('docs: these files are stale\n  why: the help of a command or a table that they use has changed');
  console.error('  next: npm run docs, then commit the files');
  process.exitCode = 1;
}
