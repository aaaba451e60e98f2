// Bundles the command line into one CommonJS file: one file to read and parse is what a start under cron costs least
// with, and esbuild keeps each dynamic import inside it lazy. The library is not bundled; tsc writes that.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { build } from 'esbuild';
import { SCRIPTS, shaOf } from '../dist/redis/script.js';

const require = createRequire(import.meta.url);
const { version } = require('../package.json');
const commands = createRequire(require.resolve('ioredis'))('@ioredis/commands');
const shas = Object.fromEntries(SCRIPTS.map((name) => [name, shaOf(name)]));

/** Modules of Node that take long to load, and of which most runs use nothing: loaded when something of them is used. */
const RARE = ['assert', 'child_process', 'crypto', 'dns', 'fs/promises', 'net', 'os', 'stream/promises', 'tls', 'tty'];

/** A stand-in for what `load` returns, a function perhaps (assert), which calls it when something of that is used. */
const LAZY = `const lazy = (load) =>
  new Proxy(() => {}, { get: (_, name) => load()[name], apply: (_, self, args) => load().apply(self, args) });`;

/** A stand-in for performance.now(), for which Node loads more than a millisecond's worth: the same clock, another start. */
const MONOTONIC = 'const monotonic = () => Number(process.hrtime.bigint()) / 1e6;';

/**
 * What ioredis is told, by file, so that it is loaded in a quarter of the time: a plain connection needs no cluster, no
 * table of all commands, and no log of what it does unless DEBUG asks for it.
 */
const IOREDIS = {
  'Redis.js': [
    // That log would hold the password.
    ...['condition.select', 'condition?.select'].map((select) => [
      `this.${select}, command.name, command.args)`,
      `this.${select}, command.name, command.name === 'auth' ? [] : command.args)`,
    ]),
    [
      'Redis.Cluster = cluster_1.default',
      "Object.defineProperty(Redis, 'Cluster', { get: () => cluster_1.default, configurable: true })",
    ],
  ],
  'utils/debug.js': [['= (0, debug_1.default)', '= process.env.DEBUG === undefined ? {} : (0, debug_1.default)']],
  'utils/Commander.js': [
    ['= require("@ioredis/commands")', `= { list: ${JSON.stringify(commands.list)} }`],
    // To add a property to a prototype V8 copies those before it, unless one was ever deleted: here are 600.
    ['commands.forEach(', 'Commander.prototype.first = 0; delete Commander.prototype.first; commands.forEach('],
  ],
};

/** ioredis's own requires that wait until something of them is used. */
const LATER = /(?<==\s?)require\("(?:\.\/cluster|@ioredis\/commands|debug)"\)/g;

const unedited = new Set(Object.keys(IOREDIS));

function edited(path) {
  const file = path.split('/ioredis/built/').at(-1);
  unedited.delete(file);
  const edits = IOREDIS[file] ?? [];
  const text = edits.reduce(
    (before, [from, to]) => {
      if (before.split(from).length !== 2) throw new Error(`${path} does not hold once: ${from}`);
      return before.replace(from, () => to);
    },
    readFileSync(path, 'utf8'),
  );
  return text.replaceAll(LATER, (found) => `lazy(() => ${found})`);
}

const { outputFiles } = await build({
  entryPoints: ['src/cli/main.ts'],
  outfile: 'dist/cli/main.cjs',
  write: false,
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  minifySyntax: true,
  minifyWhitespace: true,
  // Node shows the whole line of an uncaught error.
  lineLimit: 200,
  legalComments: 'inline',
  // Scripts that run in a context of V8 have neither.
  supported: { 'dynamic-import': false },
  define: {
    'import.meta.url': 'MODULE_URL',
    'performance.now': 'monotonic',
    DELAYQ_SHAS: JSON.stringify(shas),
    DELAYQ_VERSION: JSON.stringify(version),
  },
  plugins: [
    {
      name: 'ioredis',
      setup({ onLoad }) {
        onLoad({ filter: /\/ioredis\/built\/.*\.js$/ }, ({ path }) => ({ contents: edited(path) }));
      },
    },
  ],
});
if (unedited.size > 0) throw new Error(`ioredis has no ${[...unedited].join(', ')}`);
const [{ path, text }] = outputFiles;
const rare = new RegExp(`(?<==\\s?)require\\("(?:node:)?(?:${RARE.join('|')})"\\)`, 'g');
const body = text
  .replaceAll(rare, (found) => `lazy(() => ${found})`)
  .replaceAll('MODULE_URL', 'require("node:url").pathToFileURL(__filename)');
if (/[^\0-\x7f]/.test(body)) throw new Error('the bundle is to be ASCII: bin/start.js reads it as that');
const id = createHash('sha256').update(body).digest('hex').slice(0, 16);
mkdirSync('dist/cli', { recursive: true });
// A function, as bin/start.js runs it: begins with what tells it from another version.
writeFileSync(
  path,
  `/* ${id} */ (function (require, __filename) {
${LAZY}
${MONOTONIC}
${body}})
`,
);
