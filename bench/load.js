// The users of a queue whose servers are about to fail: load.js OPTIONS. Prints "ready" when all of them work; at "stop" they
// end, and it prints what they saw as a line of JSON.
import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster, Redis } from 'ioredis';
import { connect, Queue } from '../dist/lib/index.js';
import { data } from './jobs.js';

const { url, name, other, replicas, waiting, peer, pause, calls } = JSON.parse(process.argv[2]);

/** A lease that ends while servers fail would be no surprise: this is longer than that takes. */
const LEASE = 10_000;
const LONGEST_END = 180_000;
const HOUR = 3_600_000;

/** What one user saw of its calls, one after the other. */
class Seen {
  ok = 0;
  longest = 0;
  /** How often calls ended so. @type {Record<string, number>} */
  errors = {};
  /** @type {Set<string>} */
  reasons = new Set();
  #last = performance.now();

  succeeded() {
    this.pause();
    this.ok += 1;
  }

  pause() {
    const now = performance.now();
    this.longest = Math.max(this.longest, now - this.#last);
    this.#last = now;
  }

  failed({ code = 'error', why, message }) {
    this.errors[code] = (this.errors[code] ?? 0) + 1;
    if (this.reasons.size < 10) this.reasons.add(`${code}: ${(why ?? message).slice(0, 100)}`);
  }

  /** Begins to measure. */
  begin() {
    this.pause();
    Object.assign(this, { longest: 0, ok: 0, errors: {}, reasons: new Set() });
  }

  toJSON() {
    this.pause();
    const { ok, longest, errors, reasons } = this;
    return { ok, longest, errors, reasons: [...reasons] };
  }
}

let over = false;

/** Repeats `call` until all is over, with pauses of some ms: the machine must have time for the servers. @param {() => Promise<unknown>} call */
function user(call, ended = () => over) {
  const seen = new Seen();
  const work = async () => {
    while (!ended()) {
      await call().then(
        () => seen.succeeded(),
        (error) => seen.failed(error),
      );
      await sleep(pause);
    }
  };
  return { seen, done: work() };
}

/** A producer with a connection of its own. Its jobs are numbers from 0. */
async function producer(of, options = {}) {
  const queue = new Queue(await connect(url), of);
  /** When its jobs were confirmed. @type {Map<string, number>} */
  const confirmed = new Map();
  const by = JSON.stringify(options);
  let n = 0;
  const call = async () => {
    const payload = { by, n: n++ };
    await queue.enqueue({ payload, in: of === other ? HOUR : 0 }, options);
    confirmed.set(JSON.stringify(payload), performance.now());
  };
  return { ...user(call), confirmed };
}

const queue = new Queue(await connect(url), name);
/** The deliveries of each job, and what became of them. @type {Map<string, { acked: number, answer: string }[]>} */
const deliveries = new Map();

/** Takes and acks. If the ack fails, the jobs come again after their leases. */
async function consume() {
  const { jobs } = await queue.drain({ limit: 50, leaseMs: LEASE });
  const mine = jobs.map((job) => {
    const one = { acked: Number.NaN, answer: 'unknown' };
    const id = job.payload.toString();
    deliveries.set(id, [...(deliveries.get(id) ?? []), one]);
    return one;
  });
  if (jobs.length === 0) return;
  const answers = await queue.ack(jobs);
  for (const [i, answer] of answers.entries()) Object.assign(mine[i], { acked: performance.now(), answer });
}

/** Another client with its defaults. It adds one to a number per call: a call that is executed twice leaves a two. */
async function contrast() {
  const { cluster, sentinels, master } = peer;
  const redis = cluster ? new Cluster(cluster) : new Redis({ sentinels, name: master });
  redis.on('error', () => {});
  const key = `contrast:{${name}}`;
  const confirmed = [];
  let n = 0;
  const call = async () => {
    const field = String(n++);
    await redis.eval("return redis.call('HINCRBY', KEYS[1], ARGV[1], 1)", 1, key, field);
    confirmed.push(field);
  };
  const { seen, done } = user(call);
  const counted = async () => {
    const found = await redis.hgetall(key);
    const twice = Object.values(found).filter((times) => Number(times) > 1).length;
    return { ...seen.toJSON(), lost: confirmed.filter((field) => !found[field]).length, twice };
  };
  return { seen, done, counted };
}

await queue.enqueue(Array.from({ length: waiting }, (_, i) => ({ payload: data(i), in: HOUR })));
const plain = await producer(name);
const replicated = await producer(name, { replicas });
const elsewhere = other && (await producer(other));
let drained = false;
const consumer = user(consume, () => drained);
const theirs = await contrast();
const users = [plain, replicated, consumer, theirs, ...(elsewhere ? [elsewhere] : [])];
// How long this process itself stood still.
const clock = user(async () => {});
users.push(clock);

const until = async (what) => {
  for (const end = performance.now() + LONGEST_END; !(await what()); await sleep(20))
    if (performance.now() > end) throw new Error('the load does not go on');
};
await until(() => users.every(({ seen }) => seen.ok > calls));
for (const { seen } of users) seen.begin();
process.stdout.write('ready\n');
await new Promise((resolve) => process.stdin.once('data', resolve));
// With the time since the last call of each, before they end.
const report = Object.fromEntries(
  Object.entries({ plain, replicated, elsewhere, consumer, clock }).map(([who, one]) => [who, one?.seen.toJSON()]),
);
const took = theirs.seen.toJSON();
over = true;
await Promise.all([plain, replicated, elsewhere, clock].map((one) => one?.done));
let counts;
await until(async () => {
  counts = await queue.counts().catch(() => undefined);
  return counts && counts.due + counts.active === 0;
});
drained = true;
await consumer.done;

const produced = new Map([...plain.confirmed, ...replicated.confirmed]);
const lost = (confirmed) => [...confirmed.keys()].filter((id) => !deliveries.has(id)).length;
const twice = {};
for (const [id, all] of deliveries) {
  for (const { answer, acked } of all.slice(0, -1)) {
    // A job that is done before a lost reply is asked for again is made again.
    const again = acked < (produced.get(id) ?? Number.POSITIVE_INFINITY);
    const why =
      answer === 'unknown' ? 'ack unknown' : answer !== 'held' ? 'lease lost' : again ? 'made again' : 'ack lost';
    twice[why] = (twice[why] ?? 0) + 1;
  }
}
report.jobs = {
  plain: { confirmed: plain.confirmed.size, lost: lost(plain.confirmed) + Math.max(0, waiting - counts.pending) },
  replicated: { confirmed: replicated.confirmed.size, lost: lost(replicated.confirmed) },
  handled: deliveries.size,
  twice,
};
await Promise.race([theirs.done, sleep(LONGEST_END)]);
report.theirs = { ...(await theirs.counted()), longest: took.longest };
process.stdout.write(`${JSON.stringify(report)}\n`);
process.exit();
