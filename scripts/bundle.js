// Bundles the command line into one CommonJS file: one file to read and parse is what a start under cron costs least
// with, and esbuild keeps each dynamic import inside it lazy. The library is not bundled; tsc writes that.
import { readFileSync } from 'node:fs';
import { build } from 'esbuild';

const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));

await build({
  entryPoints: ['src/cli/main.ts'],
  outfile: 'dist/cli.cjs',
  bundle: true,
  platform: 'node',
  target: 'node20',
  format: 'cjs',
  minifySyntax: true,
  legalComments: 'inline',
  define: { 'import.meta.url': 'moduleUrl', DELAYQ_VERSION: JSON.stringify(version) },
  banner: { js: "const moduleUrl = require('node:url').pathToFileURL(__filename).href;" },
});
