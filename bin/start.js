/*
 * Runs dist/cli.cjs with what V8 compiled of it in an earlier run of the same command: without, compiling is a third of
 * a short run. That is kept beside the bundle, or in the user's cache directory. Whatever goes wrong with it is no error.
 *
 * V8 believes such a cache: it runs what is in a forged one, and ends the process over a damaged one. So only the user
 * and root may have been able to write it, and it is stored twice: to compare the two takes next to no time.
 */
const fs = require('node:fs');
const { dirname, join } = require('node:path');
const { Script } = require('node:vm');

const BUNDLE = join(__dirname, '../dist/cli.cjs');

/** Caches older than this are removed, ms: of versions that are gone. One that is still used is made anew. */
const KEEP_MS = 30 * 86_400_000;

/** V8 has forgotten by then what it compiled at the start, s. */
const LONG_RUN_S = 10;

const OURS = /^[0-9a-f]{16}-.*\.cache(\.\d+)?$/;

const user = process.geteuid?.();

const trusted = ({ uid, mode }) => (uid === 0 || uid === user) && (mode & 0o022) === 0;

/** The directories in which a cache may be, the best first. */
function places() {
  const { XDG_CACHE_HOME, HOME, NODE_DISABLE_COMPILE_CACHE } = process.env;
  if (user === undefined || NODE_DISABLE_COMPILE_CACHE) return [];
  const caches = XDG_CACHE_HOME || (HOME && join(HOME, '.cache'));
  return [dirname(BUNDLE), ...(caches?.startsWith('/') ? [join(caches, 'delayq')] : [])];
}

/** The name of the cache for this run: V8 itself sees whether it was made by another V8, but of the source only its length. */
function nameFor(source) {
  const words = process.argv.slice(2);
  const handler = words.indexOf('--');
  const own = handler < 0 ? words : words.slice(0, handler);
  const word = own.some((word) => word === '--help' || word === '-h') ? 'help' : /^[-\w]+$/.exec(own[0])?.[0];
  const id = source.slice(3, 19);
  return `${id}-${fs.statSync(BUNDLE).mtimeMs}-${process.version}-${process.arch}-${word ?? ''}.cache`;
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

/** Whether `directory`, or what it will be made in, is the user's: root must not leave its own in somebody's home. */
function isOwn(directory) {
  const found = fs.statSync(directory, { throwIfNoEntry: false });
  return found ? found.uid === user : isOwn(dirname(directory));
}

/** Writes the cache so that others see all of it or nothing. Returns whether it is there now. */
function write(place, name, cache) {
  const file = join(place, name);
  const part = `${file}.${process.pid}`;
  try {
    if (!isOwn(place)) return false;
    fs.mkdirSync(place, { recursive: true, mode: 0o700 });
    if (!trusted(fs.statSync(place))) return false;
    for (const old of fs.readdirSync(place).filter((old) => OURS.test(old))) {
      if (Date.now() - fs.statSync(join(place, old)).mtimeMs > KEEP_MS) fs.rmSync(join(place, old), { force: true });
    }
    fs.writeFileSync(part, Buffer.concat([cache, cache]), { flag: 'wx', mode: 0o644 });
    fs.renameSync(part, file);
    return true;
  } catch {
    fs.rmSync(part, { force: true });
    return false;
  }
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
  const cache = script.createCachedData();
  places().some((place) => write(place, name, cache));
});
