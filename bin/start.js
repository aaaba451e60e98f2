/*
 * Runs dist/cli/main.cjs with what V8 compiled of it in an earlier run of the same command: without, compiling is a third of
 * a short run. That is kept beside the bundle, or in the user's cache directory. Whatever goes wrong with it is no error.
 *
 * V8 believes such a cache: it runs what is in a forged one, and ends the process over a damaged one. So only the user
 * and root may have been able to write it, and it is stored twice: to compare the two takes next to no time.
 */
const fs = require('node:fs');
const { dirname, join } = require('node:path');
const { Script } = require('node:vm');

const BUNDLE = join(__dirname, '../dist/cli/main.cjs');

/** Caches older than this are removed, ms: of versions that are gone. One that is still used is made anew. */
const KEEP_MS = 30 * 86_400_000;

/** V8 has forgotten by then what it compiled at the start, s. */
const LONG_RUN_S = 10;

const OURS = /^[0-9a-f]{16}-.*\.cache(\.\d+)?$/;

const user = process.geteuid?.();

const trusted = ({ uid, mode }) => (uid === 0 || uid === user) && (mode & 0o022) === 0;

function owner(directory) {
  try {
    return fs.statSync(directory).uid;
  } catch {
    return undefined;
  }
}

/** The directories in which a cache may be, the best first. */
function places() {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (user === undefined || NODE_DISABLE_COMPILE_CACHE) return [];
  const home = XDG_CACHE_HOME || HOME;
  // root must not leave its own in somebody's home, nor make one that is not there.
  if (!home?.startsWith('/') || owner(home) !== user) return [dirname(BUNDLE)];
  return [dirname(BUNDLE), join(home, XDG_CACHE_HOME ? 'delayq' : '.cache/delayq')];
}

/**
 * The name of the cache for this run. V8 itself sees whether it was made by another V8, or with other flags, which would have
 * runs with and without them replace each other's; but of the source it sees only the length.
 */
function nameFor(source) {
  const words = process.argv.slice(2);
  const handler = words.indexOf('--');
  const own = handler < 0 ? words : words.slice(0, handler);
  const word = own.some((word) => word === '--help' || word === '-h') ? 'help' : /^[-\w]+$/.exec(own[0] ?? '')?.[0];
  const id = source.slice(3, 19);
  const flags = [...process.execArgv, process.env.NODE_OPTIONS]
    .join(' ')
    .replace(/[^-=\w]+/g, '_')
    .slice(-80);
  return `${id}-${fs.statSync(BUNDLE).mtimeMs}-${process.version}-${process.arch}-${flags}-${word ?? ''}.cache`;
}

function read(place, name) {
  let fd;
  try {
    if (!trusted(fs.statSync(place))) return undefined;
    fd = fs.openSync(join(place, name), fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK);
    if (!trusted(fs.fstatSync(fd))) return undefined;
    const twice = fs.readFileSync(fd);
    const half = twice.length / 2;
    const cache = twice.subarray(0, half);
    return half > 0 && cache.equals(twice.subarray(half)) ? cache : undefined;
  } catch {
    return undefined;
  } finally {
    if (fd !== undefined) fs.closeSync(fd);
  }
}

/** Whether a cache may be written there: asked first, as to make one takes as long as it saves. */
function writable(place) {
  try {
    fs.mkdirSync(place, { recursive: true, mode: 0o700 });
    fs.accessSync(place, fs.constants.W_OK);
    return trusted(fs.statSync(place));
  } catch {
    return false;
  }
}

/** Writes the cache so that others see all of it or nothing. */
function write(place, name, cache) {
  try {
    for (const old of fs.readdirSync(place).filter((old) => OURS.test(old))) {
      if (Date.now() - fs.statSync(join(place, old)).mtimeMs > KEEP_MS) fs.unlinkSync(join(place, old));
    }
    const file = join(place, name);
    const part = `${file}.${process.pid}`;
    const open = fs.openSync(part, 'wx', 0o644);
    try {
      fs.writeFileSync(open, Buffer.concat([cache, cache]));
      fs.renameSync(part, file);
    } catch {
      fs.unlinkSync(part);
    } finally {
      fs.closeSync(open);
    }
  } catch {}
}

// It is ASCII, and so read at once rather than in hundreds of pieces.
const source = fs.readFileSync(BUNDLE).latin1Slice();
const name = nameFor(source);
let cachedData;
for (const place of places()) cachedData ??= read(place, name);
const script = new Script(source, { filename: BUNDLE, cachedData });
script.runInThisContext()(require, BUNDLE);
process.on('exit', (code) => {
  if (code !== 0 || process.uptime() > LONG_RUN_S || (cachedData && !script.cachedDataRejected)) return;
  const place = places().find(writable);
  if (place) write(place, name, script.createCachedData());
});
