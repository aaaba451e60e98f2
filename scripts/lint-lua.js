// Lints what is sent to Redis: the text of each script of lua/, with all that it includes, and the scripts of examples/.
// Needs luacheck (on Debian: lua-check). Messages name the file and the line where the fault stands.
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

process.chdir(fileURLToPath(new URL('..', import.meta.url)));
const READ = ['KEYS', 'ARGV', 'redis', 'cjson', 'bit', 'cmsgpack', 'struct'];
const MISSING = ['io', 'os', 'require', 'module', 'package', 'debug', 'dofile', 'loadfile', 'print'];
const OPTIONS = ['--no-config', '--std', 'lua51', '--max-line-length', '120', '--formatter', 'plain', '--codes'];
/** Stands at the end of each line while scripts are put together, and tells where the line is from. */
const MARK = / --@(\S+)$/;

const directory = mkdtempSync(join(tmpdir(), 'delayq-lint-'));
try {
  const faults = await lint();
  for (const fault of faults) console.log(fault);
  if (faults.length > 0) process.exitCode = 1;
} finally {
  rmSync(directory, { recursive: true, force: true });
}

async function lint() {
  cpSync('lua', join(directory, 'lua'), { recursive: true });
  for (const file of filesIn('lua')) writeFileSync(join(directory, file), marked(file));
  // Beside the copy, as the bundles are beside lua/: script.ts reads it from there.
  const outfile = join(directory, 'dist/cli/script.mjs');
  await build({ entryPoints: ['src/store/script.ts'], outfile, bundle: true, platform: 'node', format: 'esm' });
  const { SCRIPTS, scriptText } = await import(pathToFileURL(outfile).href);
  /** Where each line of what is sent is from. */
  const origins = new Map([
    ...SCRIPTS.map((name) => send(`lua/${name}.lua`, scriptText(name))),
    ...filesIn('examples').map((file) => send(file, marked(file))),
  ]);

  const globals = ['--read-globals', ...READ, '--not-globals', ...MISSING];
  const options = { cwd: join(directory, 'sent'), encoding: 'utf8' };
  const { status, stdout, stderr, error } = spawnSync(
    'luacheck',
    [...OPTIONS, ...globals, '--', ...origins.keys()],
    options,
  );
  if (error || status > 2) throw new Error(`luacheck failed: ${error?.message ?? stderr + stdout}`);

  /** The scripts in which each fault is. */
  const found = new Map();
  for (const [, script, line, message] of stdout.matchAll(/^(\S+?):(\d+):\d+: (.+)$/gm)) {
    const origin = (n) => origins.get(script)[n - 1];
    const fault = `${origin(line)}: ${message.replace(/(?<= on line )\d+$/, origin)}`;
    found.set(fault, [...(found.get(fault) ?? []), script]);
  }
  const lines = [...origins.values()].flat();
  return [...found].flatMap(([fault, scripts]) =>
    isAllowed(fault, scripts, lines) ? [] : [`${fault} (in ${[...new Set(scripts)].join(', ')})`],
  );
}

/** Whether something is no fault as it stands in an included file. `lines`: the origins of all lines that are sent. */
function isAllowed(fault, scripts, lines) {
  const [, at, code, other = at] = /^(\S+): \((\w+)\).*?(?: on line (\S+))?$/.exec(fault);
  const [file, otherFile] = [at, other].map((origin) => origin.split(':')[0]);
  // It is as long as that only with the values of constants.
  if (code === 'W631') return readFileSync(file, 'utf8').split('\n')[at.split(':')[1] - 1].length <= 120;
  // What one script does not use, another does.
  if (/^W[23]/.test(code)) return scripts.length < lines.filter((origin) => origin === at).length;
  // An included file reads no names of those that include it.
  return /^W4/.test(code) && file !== otherFile && !scripts.includes(file);
}

/** The files of a folder that are Lua. @param {string} folder */
function filesIn(folder) {
  return readdirSync(folder, { recursive: true }).flatMap((file) =>
    file.endsWith('.lua') ? [`${folder}/${file}`] : [],
  );
}

/** The text of a file with a mark on each line, but not on those that include others. @param {string} file */
function marked(file) {
  const lines = readFileSync(file, 'utf8').split('\n');
  return lines.map((line, i) => (/^ *-- include |^$/.test(line) ? line : `${line} --@${file}:${i + 1}`)).join('\n');
}

/** Stores a script as it is sent. Returns its name, and where each of its lines is from. @param {string} name @param {string} text */
function send(name, text) {
  const lines = text.split('\n');
  const file = join(directory, 'sent', name);
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, lines.map((line) => line.replace(MARK, '')).join('\n'));
  return [name, lines.map((line) => MARK.exec(line)?.[1] ?? name)];
}
