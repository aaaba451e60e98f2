/*
 * Runs dist/cli/main.cjs with the code that V8 compiled in earlier runs: compiling takes a third of a short run.
 * One cache file holds the code of all commands, another that of help and version, which need little; the first run of
 * a command adds its code. The files are beside the bundle or in the user's cache directory. Commands work without
 * them, so failures to read or write them are ignored.
 *
 * V8 does not verify such a cache: a forged one runs as code, a damaged one crashes the process. So it is only read
 * if no user but this one and root can have written it, and it holds everything twice: comparing the two takes less
 * time than a checksum.
 */
const fs = require('node:fs');
const { dirname, join } = require('node:path');
const { Script } = require('node:vm');

const BUNDLE = join(__dirname, '../dist/cli/main.cjs');

/** V8 discards code that has not run for a while, so a long run has lost the code of its start. Seconds. */
const LONG_RUN_S = 10;

/** Older caches are removed: their installation may be gone. One that is still in use is written again. Milliseconds. */
const KEEP_MS = 30 * 86_400_000;

const user = process.geteuid?.();

/** Whether nobody but the user and root can have written a file or directory. */
const isTrusted = ({ uid, mode }) => (uid === 0 || uid === user) && (mode & 0o022) === 0;

function attempt(action) {
  try {
    return action();
  } catch {
    return undefined;
  }
}

/** The directories that may hold the cache, in order of preference. */
function directories() {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (user === undefined || NODE_DISABLE_COMPILE_CACHE) return [];
  const home = XDG_CACHE_HOME || HOME;
  // Under sudo this may be another user's home, where root must leave no files. One that does not exist is not created.
  const isOwn = home?.startsWith('/') && attempt(() => fs.statSync(home).uid === user);
  return [dirname(BUNDLE), ...(isOwn ? [join(home, XDG_CACHE_HOME ? 'delayq' : '.cache/delayq')] : [])];
}

/** The name under which the code of this run is listed. A run that only prints help compiles little of its command. */
function commandOf(words) {
  const handler = words.indexOf('--');
  const own = handler < 0 ? words : words.slice(0, handler);
  if (own.includes('--help') || own.includes('-h')) return 'help';
  return /^[-\w]+$/.exec(own[0] ?? '')?.[0] ?? 'none';
}

const command = commandOf(process.argv.slice(2));

/** The files are per installation and set of Node's flags, as V8 rejects code compiled with other flags. */
const setup = [BUNDLE, ...process.execArgv, process.env.NODE_OPTIONS].join(' ').trim();
const group = /^(help|none)$|^-/.test(command) ? 'help' : 'commands';
const FILE = `${setup.replace(/[^-=.\w]+/g, '_').slice(-200)}-${group}.cache`;

/** The code cached in `directory` and the commands it covers; undefined if none fits this bundle and this Node. */
function read(directory) {
  let fd;
  try {
    if (!isTrusted(fs.statSync(directory))) return undefined;
    fd = fs.openSync(join(directory, FILE), fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK);
    if (!isTrusted(fs.fstatSync(fd))) return undefined;
    const both = fs.readFileSync(fd);
    const one = both.subarray(0, both.length / 2);
    const end = one.lastIndexOf('\n');
    const label = one.latin1Slice(end + 1);
    if (end < 0 || !label.startsWith(`${key} `) || !one.equals(both.subarray(one.length))) return undefined;
    return { code: one.subarray(0, end), commands: label.slice(key.length + 1).split(' ') };
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) fs.closeSync(fd);
  }
}

function canWrite(directory) {
  return attempt(() => {
    fs.mkdirSync(directory, { recursive: true, mode: 0o700 });
    fs.accessSync(directory, fs.constants.W_OK);
    return isTrusted(fs.statSync(directory));
  });
}

/** Writes the cache so that other processes see either all of it or nothing. */
function write(directory, code, commands) {
  const file = join(directory, FILE);
  const part = `${file}.${process.pid}`;
  // The label comes last: V8 copies code that is not aligned.
  const one = Buffer.concat([code, Buffer.from(`\n${key} ${commands.join(' ')}`)]);
  try {
    for (const old of fs.readdirSync(directory).map((name) => join(directory, name))) {
      if (/\.cache(\.\d+)?$/.test(old) && Date.now() - fs.statSync(old).mtimeMs > KEEP_MS) fs.unlinkSync(old);
    }
    fs.writeFileSync(part, Buffer.concat([one, one]), { flag: 'wx', mode: 0o644 });
    fs.renameSync(part, file);
  } catch {
    attempt(() => fs.unlinkSync(part));
  }
}

// The bundle is ASCII; Node reads Latin-1 in one piece, and UTF-8 in hundreds.
const source = fs.readFileSync(BUNDLE).latin1Slice();
// V8 checks its own version, but of the source only the length.
const key = [source.slice(3, 19), fs.statSync(BUNDLE).mtimeMs, process.version, process.arch].join(' ');

let cache;
for (const directory of directories()) {
  const found = read(directory);
  if (!cache || found?.commands.includes(command)) cache = found;
  if (cache?.commands.includes(command)) break;
}
const script = new Script(source, { filename: BUNDLE, cachedData: cache?.code });
if (script.cachedDataRejected) cache = undefined;
script.runInThisContext()(require, BUNDLE).main();

process.on('exit', (status) => {
  if (status !== 0 || process.uptime() > LONG_RUN_S || cache?.commands.includes(command)) return;
  // Checked first, because producing the code takes as long as it saves.
  const directory = directories().find(canWrite);
  if (!directory) return;
  const code = script.createCachedData();
  // If it is smaller than before, V8 has discarded some.
  if (code.length < (cache?.code.length ?? 0)) return;
  write(directory, code, [...(cache?.commands ?? []), command]);
});
