// The process in which a library is measured: actor.js PEER ACT OPTIONS. Prints one line of JSON; `watch` prints one per job.
import { setTimeout as sleep } from 'node:timers/promises';
import { data, jobs } from './jobs.js';
import { Turns, WARM_TURNS } from './turns.js';

const [name, act, json] = process.argv.slice(2);
const {
  n = 0,
  rounds = 0,
  at,
  watchers = 1,
  ahead = 2_000,
  span = 0,
  every = 0,
  least = 0,
  most = 0,
  ...where
} = JSON.parse(json);
const { open } = await import(`./peers/${name}.js`);
/** @type {() => Promise<import('./peers/peer.js').Peer>} */
const connect = () => open(where);
const peer = await connect();
const HOUR = 3_600_000;

/** How long `what` takes, in seconds. @param {() => Promise<unknown>} what */
async function seconds(what) {
  const begin = performance.now();
  await what();
  return { seconds: (performance.now() - begin) / 1_000 };
}

/** Jobs of a first run that is not timed, so that V8 has compiled the library. */
const WARM = 1_000;

const ACTS = {
  /** Enqueues n jobs due in an hour, from 100 concurrent callers. */
  hundred: async () => {
    let i = 0;
    const callers = (upTo) =>
      Promise.all(
        Array.from({ length: 100 }, async () => {
          while (i < upTo) await peer.add(data(i++), Date.now() + HOUR);
        }),
      );
    await callers(WARM);
    return { ...(await seconds(() => callers(WARM + n))), stored: WARM + n };
  },
  /** The same with the library's bulk call. */
  bulk: async () => {
    await peer.addMany(jobs(WARM, Date.now() + HOUR));
    const all = jobs(n, Date.now() + HOUR);
    return { ...(await seconds(() => peer.addMany(all))), stored: WARM + n };
  },
  /** Enqueues n jobs due at `at` or now. Not timed. */
  fill: async () => void (await peer.addMany(jobs(n, at))),
  /** Drains n due jobs with a handler that only counts, until all are acknowledged. */
  drain: async () => {
    let handled = 0;
    const took = await seconds(() =>
      peer.drain(n, async () => {
        handled += 1;
      }),
    );
    if (handled !== n) throw new Error(`handled ${handled} of ${n} jobs`);
    return took;
  },
  /** Enqueues n jobs at once. They fall due evenly over `span` ms, the first in `ahead` ms: at `first`. */
  spread: async () => {
    const first = Date.now() + Math.round(ahead);
    const all = jobs(n).map((_, i) => Math.round(first + (i * span) / n));
    await peer.addMany(all.map((at, i) => ({ data: data(i, at), at })));
    return { first };
  },
  /** Enqueues a job every `every` ms, due `least` to `most` ms later. The delays are the same in each run. */
  trickle: async () => {
    const begin = Date.now();
    const waiting = [];
    for (let i = 0; i < n; i += 1) {
      await sleep(Math.max(0, begin + i * every - Date.now()));
      const at = Date.now() + least + ((i * 0.618034) % 1) * (most - least);
      waiting.push(peer.add(data(i, Math.round(at)), Math.round(at)));
    }
    await Promise.all(waiting);
  },
};

/** Acts of a job at a time, in turns of n jobs with other processes. They end with the process. */
const TURNS = {
  /** Enqueues jobs due in an hour. @param {Turns} turns */
  single: async (turns) => {
    for (let i = 0; ; i += 1) {
      const turn = turns.job();
      if (turn) await turn;
      await peer.add(data(i), Date.now() + HOUR);
    }
  },
  /** Takes and finishes due jobs. @param {Turns} turns */
  take: async (turns) => {
    const all = n * (WARM_TURNS + rounds) + 1;
    await peer.addMany(jobs(all));
    await peer.takeEach(all, async () => turns.job());
  },
  /** The same with the library's own worker. @param {Turns} turns */
  work: async (turns) => {
    const all = n * (WARM_TURNS + rounds) + 1;
    await peer.addMany(jobs(all));
    await peer.drain(all, async () => turns.job(), 1);
  },
};

/** Starts consumers that keep running. Prints one line per job: how late it was, in ms. */
async function watch() {
  const late = async (job) => process.stdout.write(`${Date.now() - job.at}\n`);
  await peer.watch(late);
  for (let i = 1; i < watchers; i += 1) await (await connect()).watch(late);
  process.stdout.write('ready\n');
  process.stdin.on('end', () => process.exit()).resume();
}

/** Starts a consumer that keeps running. Asked to, it prints when its last job came, and how many were how late, ms. */
async function tally() {
  let last = 0;
  const late = {};
  await peer.watch(async (job) => {
    last = Date.now();
    const ms = last - job.at;
    late[ms] = (late[ms] ?? 0) + 1;
  });
  process.stdout.write('ready\n');
  process.stdin.once('data', () => process.stdout.write(`${JSON.stringify({ last, late })}\n`));
}

if (act === 'watch') await watch();
else if (act === 'tally') await tally();
else if (act in TURNS) await TURNS[act](await Turns.open(n, where));
else {
  const result = (await ACTS[act]()) ?? {};
  process.stdout.write(`${JSON.stringify(result)}\n`);
  await peer.close();
  process.exit();
}
