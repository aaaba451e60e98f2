// Bundles the library into dist/lib/index.js and the command line into dist/cli/main.cjs: a single file starts fastest,
// and its dynamic imports stay lazy. tsc writes the declarations of the library beside it.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { build } from 'esbuild';

const { version } = createRequire(import.meta.url)('../package.json');

const common = { bundle: true, platform: 'node', target: 'node20' };

// In a folder of dist/, as the bundles are: script.ts reads lua/ from there.
const script = 'dist/cli/script.mjs';
await build({ ...common, entryPoints: ['src/store/script.ts'], outfile: script, format: 'esm' });
const { SCRIPTS, shaOf } = await import(`../${script}`);
rmSync(script);
const shas = Object.fromEntries(SCRIPTS.map((name) => [name, shaOf(name)]));

const define = {
  'import.meta.url': 'moduleUrl',
  DELAYQ_SHAS: JSON.stringify(shas),
  DELAYQ_VERSION: JSON.stringify(version),
};

// CommonJS, because both import and require() of every Node load it, and both get the same classes.
await build({
  ...common,
  entryPoints: ['src/index.ts'],
  outfile: 'dist/lib/index.js',
  format: 'cjs',
  packages: 'external',
  // Jest runs CommonJS without import().
  supported: { 'dynamic-import': false },
  banner: { js: "'use strict';\nconst moduleUrl = require('node:url').pathToFileURL(__filename);" },
  define,
});
writeFileSync('dist/lib/package.json', '{ "type": "commonjs" }\n');

/**
 * Replacements for modules that ioredis imports. With the originals a start takes up to 20 ms longer.
 */
const REPLACED = {
  // ioredis defines two methods for each command of Redis. delayq calls only sendCommand() and subscribe(); the others
  // below are those that ioredis itself calls on a plain connection. It asks `exists` before the connection is ready,
  // and for key prefixes, clusters and auto-pipelining: delayq uses none of these.
  '@ioredis/commands': `
    exports.list = ['auth', 'client', 'hello', 'info', 'psubscribe', 'readonly', 'select', 'ssubscribe', 'subscribe'];
    exports.exists = () => false;`,
  // delayq does not use ioredis's Cluster.
  './cluster': '',
  // Logs if DEBUG=ioredis:*, but without the arguments of commands (%o), which hold the password and payloads: %c skips
  // them.
  debug: `
    const { format } = require('node:util');
    const enabled = /(^|[\\s,])(\\*|ioredis\\b)/.test(process.env.DEBUG ?? '');
    exports.default = (namespace) => {
      const log = (text, ...values) =>
        process.stderr.write(namespace + ' ' + format(text.replace('%o', '%c'), ...values) + '\\n');
      return Object.assign(log, { enabled });
    };`,
};

/** Modules of Node that take 2 to 14 ms to load and that many runs do not need. The bundle loads them on first use. */
const LAZY = /(?<==\s?)require\("(?:node:)?(?:child_process|crypto|net|tls)"\)/g;

const unused = new Set(Object.keys(REPLACED));

const replace = {
  name: 'replace',
  setup({ onResolve, onLoad }) {
    onResolve({ filter: /./ }, ({ path, importer }) => {
      if (!importer.includes('/ioredis/built/') || !Object.hasOwn(REPLACED, path)) return undefined;
      unused.delete(path);
      return { path, namespace: 'replaced' };
    });
    onLoad({ filter: /./, namespace: 'replaced' }, ({ path }) => ({ contents: REPLACED[path] }));
  },
};

const { outputFiles } = await build({
  ...common,
  entryPoints: ['src/cli/main.ts'],
  outfile: 'dist/cli/main.cjs',
  write: false,
  format: 'cjs',
  minifySyntax: true,
  minifyWhitespace: true,
  // Node prints the whole source line of an uncaught error.
  lineLimit: 200,
  legalComments: 'inline',
  // bin/start.js runs the bundle as a vm.Script, which has neither import() nor import.meta.
  supported: { 'dynamic-import': false },
  define: {
    ...define,
    DELAYQ_OPENAPI: JSON.stringify(JSON.stringify(JSON.parse(readFileSync('docs/reference/openapi.json', 'utf8')))),
  },
  plugins: [replace],
});
if (unused.size > 0) throw new Error(`ioredis no longer imports ${[...unused].join(', ')}: change REPLACED`);
const [{ path, text }] = outputFiles;
const body = text
  .replaceAll(LAZY, (found) => `lazy(() => ${found})`)
  .replaceAll('moduleUrl', 'require("node:url").pathToFileURL(__filename)');
if (/[^\0-\x7f]/.test(body)) throw new Error('the bundle must be ASCII: bin/start.js reads it as Latin-1');
const id = createHash('sha256').update(body).digest('hex').slice(0, 16);
mkdirSync('dist/cli', { recursive: true });
// A function that bin/start.js calls: it returns what main.ts exports. The id tells bundles apart.
writeFileSync(
  path,
  `/* ${id} */ (function (require, __filename) {
const module = {};
const lazy = (load) => new Proxy({}, { get: (_, name) => load()[name] });
${body}
return module.exports;
})
`,
);
