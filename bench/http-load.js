// The users of an HTTP server: http-load.js OPTIONS. Each connection is kept, and has one request at a time. It prints what
// it measured as a line of JSON. Raw sockets, requests that are made before, and no more parsing of answers than needed:
// what this costs, the server beside it lacks.
import { connect } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { data } from './jobs.js';
import { quantile } from './rounds.js';

const {
  act,
  port,
  token,
  connections,
  warmup = 0,
  seconds = 0,
  count = 1,
  jobs = 0,
  ack = true,
} = JSON.parse(process.argv[2]);
const PATH = '/api/bench/jobs';
const BULK = 64;
/** How many connections are opened at once: fewer than wait in the kernel for a server. */
const OPENED = 250;
/** Longer than any run. */
const POLL_SECONDS = 500;

const fail = (why) => {
  process.stderr.write(`http-load: ${why}\n`);
  process.exit(1);
};

/** @param {string} method @param {string} path @param {string} [body] */
function request(method, path, body = '') {
  const length = body === '' ? '' : `Content-Length: ${Buffer.byteLength(body)}\r\n`;
  return `${method} ${path} HTTP/1.1\r\nHost: 127.0.0.1:${port}\r\nX-Token: ${token}\r\n${length}\r\n${body}`;
}

/** A connection that asks one thing after the other. */
class Client {
  #socket;
  #resolve;
  #status = '';
  #begin = 0;
  #took = [];
  /** What of an answer has come, when it comes in pieces. */
  #pieces = Buffer.alloc(0);

  /** @param {number} size of the buffer for answers, bytes */
  static async open(size) {
    const client = new Client();
    await new Promise((resolve) => {
      const callback = (length, buffer) => client.#read(buffer.subarray(0, length));
      client.#socket = connect({
        port,
        host: '127.0.0.1',
        noDelay: true,
        onread: { buffer: Buffer.alloc(size), callback },
      });
      client.#socket.once('connect', resolve);
      client.#socket.on('error', ({ message }) => fail(message));
      client.#socket.on('close', () => fail('the server closed a connection'));
    });
    return client;
  }

  /** Resolves with the body of the answer, which must have this status; a 404 is undefined. `took` gets the ms. @param {Buffer | string} bytes @param {string} status @param {number[]} took @returns {Promise<string | undefined>} */
  ask(bytes, status, took) {
    this.#status = status;
    this.#took = took;
    this.#begin = performance.now();
    this.#socket.write(bytes, 'latin1');
    return new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  #read(chunk) {
    const bytes = this.#pieces.length > 0 ? Buffer.concat([this.#pieces, chunk]) : chunk;
    const text = bytes.latin1Slice(0, bytes.length);
    const head = text.indexOf('\r\n\r\n');
    // The status stands behind "HTTP/1.1 ".
    const status = text.slice(9, 12);
    const length = status === '204' ? '0' : head < 0 ? '' : /content-length: (\d+)/i.exec(text.slice(0, head))?.[1];
    if (length === undefined) fail(`an answer without a length: ${text.slice(0, 500)}`);
    const end = head + 4 + Number(length);
    if (head < 0 || bytes.length < end) {
      this.#pieces = Buffer.from(bytes);
      return;
    }
    if (bytes.length > end || !this.#resolve) fail(`more than was asked for: ${text.slice(end, end + 500)}`);
    if (status !== this.#status && status !== '404') fail(`not ${this.#status}: ${text.slice(0, 500)}`);
    this.#took.push(performance.now() - this.#begin);
    const resolve = this.#resolve;
    this.#pieces = Buffer.alloc(0);
    this.#resolve = undefined;
    resolve(status === '404' ? undefined : text.slice(head + 4, end));
  }
}

/** Opens all connections. @param {number} [size] */
async function opened(size = 65_536) {
  const clients = [];
  while (clients.length < connections) {
    const more = Math.min(OPENED, connections - clients.length);
    clients.push(...(await Promise.all(Array.from({ length: more }, () => Client.open(size)))));
  }
  return clients;
}

/** @param {number[]} ms @returns {{ p50: number, p99: number }} */
const times = (ms) => ({ p50: quantile(ms, 0.5), p99: quantile(ms, 0.99) });

/** Repeats a publish for `warmup` and `seconds`. Counts all that were answered, and the rate after the warm-up. */
async function publish(path, body, each) {
  const bytes = Buffer.from(request('PUT', path, body));
  const clients = await opened();
  const begin = performance.now() + warmup * 1_000;
  const end = begin + seconds * 1_000;
  const took = [];
  let [all, measured] = [0, 0];
  const user = async (client) => {
    for (let now = performance.now(); now < end; ) {
      if ((await client.ask(bytes, '201', now < begin ? [] : took)) === undefined) fail('404 for a publish');
      now = performance.now();
      all += each;
      if (now >= begin && now < end) measured += each;
    }
  };
  await Promise.all(clients.map(user));
  return { all, perSecond: measured / seconds, ...times(took) };
}

/** Publishes `jobs` jobs. */
async function fill() {
  const clients = await opened();
  let left = jobs;
  const user = async (client) => {
    while (left > 0) {
      const n = Math.min(BULK, left);
      left -= n;
      await client.ask(request('PUT', `${PATH}/bulk?tries=5`, payloads(n)), '201', []);
    }
  };
  await Promise.all(clients.map(user));
  return { all: jobs };
}

const payloads = (n) => `[${Array.from({ length: n }, (_, i) => JSON.stringify(data(i))).join()}]`;

/** The ids of the jobs in an answer, without parsing it. @param {string} body @param {string[]} ids */
function idsIn(body, ids) {
  const KEY = '"job_id":"';
  for (let at = body.indexOf(KEY); at >= 0; at = body.indexOf(KEY, at)) {
    at += KEY.length;
    ids.push(body.slice(at, body.indexOf('"', at)));
  }
  return ids;
}

/** Consumes until the queue is empty, and acks on the same connection: each job by a request of its own, or all of an answer in one. */
async function consume() {
  const clients = await opened();
  const get = Buffer.from(request('GET', `${PATH}?ttr=300&count=${count}`));
  const all = [];
  const [gets, acks] = [[], []];
  const begin = performance.now();
  const user = async (client) => {
    for (;;) {
      const body = await client.ask(get, '200', gets);
      // An empty batch.
      const ids = body === undefined ? [] : idsIn(body, []);
      if (ids.length === 0) return;
      for (const id of ids) {
        all.push(id);
        if (ack === true) await client.ask(request('DELETE', `${PATH}/job/${id}`), '204', acks);
      }
      if (ack === 'many') await client.ask(request('POST', `${PATH}/ack`, JSON.stringify(ids)), '200', acks);
    }
  };
  await Promise.all(clients.map(user));
  const took = (performance.now() - begin) / 1_000;
  const twice = all.length - new Set(all).size;
  return { all: all.length, twice, perSecond: all.length / took, get: times(gets), ack: ack && times(acks) };
}

/** Polls on all connections. Prints "ready" when all wait; at "stop" it tells how many got one of `jobs`. */
async function poll() {
  const clients = await opened(2_048);
  const ids = [];
  const get = Buffer.from(request('GET', `${PATH}?ttr=300&timeout=${POLL_SECONDS}`));
  const answered = (body) => (body === undefined ? fail('a poll was answered without a job') : idsIn(body, ids));
  for (const client of clients) client.ask(get, '200', []).then(answered);
  await sleep(2_000);
  process.stdout.write('ready\n');
  await new Promise((resolve) => process.stdin.once('data', resolve));
  for (let tries = 0; ids.length < jobs && tries < 100; tries += 1) await sleep(50);
  return { all: ids.length, twice: ids.length - new Set(ids).size };
}

const ACTS = {
  publish: () => publish(`${PATH}?delay=0&ttl=86400&tries=5`, JSON.stringify(data(0)), 1),
  bulk: () => publish(`${PATH}/bulk?delay=0&ttl=86400&tries=5`, payloads(BULK), BULK),
  fill,
  consume,
  poll,
};
process.stdout.write(`${JSON.stringify(await ACTS[act]())}\n`);
process.exit();
