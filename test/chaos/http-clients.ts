import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { appendFileSync } from 'node:fs';
import { Agent } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { cronEnv } from '../support/cli.js';
import { within } from '../support/until.js';
import { type Books, type Delivery, mayBeRepeated, type Sent, type Told } from './http-books.js';
import { type Answer, type Asking, ask, type Cut } from './http-client.js';
import type { Random } from './random.js';

/** The namespace of all queues. */
export const NAMESPACE = 'storm';

/** How long a request may take when nothing stands between client and server, ms: more than that is a bug. */
const PATIENCE_MS = 30_000;

/** Behind a proxy that may swallow everything, ms. */
const SHORT_MS = 8_000;

/** How often jobs may be delivered. */
const TRIES = [1, 2, 3, 10, 100] as const;

/** The tries of the queues, which count for jobs of commands. */
export const QUEUE_TRIES = 8;

/** Where clients connect: to a server itself, or to a proxy before it. */
export interface Door {
  readonly port: number;
  readonly isDirect: boolean;
}

/** What clients need. */
export interface Using {
  readonly doors: readonly Door[];
  readonly queues: readonly string[];
  readonly books: Books;
  readonly random: Random;
  /** The token of every request, if the servers ask for one. */
  readonly token: string | undefined;
  /** Whether clients still break off, come late, or leave jobs to their leases. */
  readonly isNaughty: () => boolean;
}

abstract class Client {
  protected readonly use: Using;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #settling = new Set<Promise<void>>();
  protected over = false;
  #ended: Promise<void> | undefined;

  constructor(use: Using) {
    this.use = use;
  }

  begin(): this {
    this.#ended = this.#run();
    return this;
  }

  async #run(): Promise<void> {
    while (!this.over) {
      await this.turn();
      await sleep(this.use.random.whole(0, 40));
    }
  }

  async stop(): Promise<void> {
    this.over = true;
    const ended = this.#ended?.then(() => Promise.all(this.#settling));
    await within(90_000, `what a ${this.constructor.name} asked for`, ended);
    this.#agent.destroy();
  }

  /** One thing after the other. */
  protected abstract turn(): Promise<void>;

  /** Goes on without it, and waits for it in the end. */
  protected meanwhile(doing: Promise<void>): void {
    this.#settling.add(doing);
    doing.finally(() => this.#settling.delete(doing));
  }

  protected async ask(
    method: string,
    path: string,
    more: Pick<Asking, 'body' | 'cut' | 'headers' | 'parts'> = {},
    door = this.use.random.pick(this.use.doors),
  ) {
    const { books, random, token } = this.use;
    const { port, isDirect } = door;
    const agent = random.chance(0.7) ? { agent: this.#agent } : {};
    const timeoutMs = isDirect ? PATIENCE_MS : SHORT_MS;
    const headers = { ...more.headers, ...(token ? { 'X-Token': token } : {}) };
    const asking = { port, method, path: `/api/${NAMESPACE}/${path}`, timeoutMs, ...agent, ...more, headers };
    const answer = await ask(asking);
    // Why it was no better is in the body.
    const { status, body } = typeof answer === 'string' ? { status: answer, body: '' } : answer;
    const what = path.includes(',') ? 'several queues: ' : '';
    books.count(Number(status) >= 500 ? `${status} ${what}${body}` : String(status));
    if (answer === 'silent' && isDirect) books.bug(`${method} ${path} was not answered within ${timeoutMs / 1_000} s`);
    return answer;
  }

  /** Looks at an answer that is not the expected one. Returns whether it says that Redis or the server is not available. */
  protected isOutage({ status, body }: Answer, what: string): boolean {
    if (status !== 503) this.use.books.bug(`${what} was answered ${status} ${body.toString().slice(0, 200)}`);
    return status === 503;
  }

  protected anyCut(share: number, longestMs = 400): Cut | undefined {
    const { random, isNaughty } = this.use;
    if (!random.chance(share) || !isNaughty()) return undefined;
    const [reset, afterMs] = [random.chance(0.5), random.whole(0, longestMs)];
    return random.chance(0.5) ? { at: 'any', afterMs, reset } : { at: 'answer', afterMs, reset };
  }

  /** Publishes a job in the place of another. */
  protected async replace(old: Sent, door?: Door): Promise<void> {
    const { books, random } = this.use;
    const { queue, id } = old;
    const job = books.sending(queue, { delayMs: random.whole(0, 1_000), tries: random.pick(TRIES), replaces: old });
    const query = `delay=${job.delayMs}ms&tries=${job.tries}&ttl=0`;
    const cut = this.anyCut(0.1);
    const answer = await this.ask('PUT', `${queue}/job/${id}?${query}`, { body: job.body, cut }, door);
    this.published([job], answer, (json) => [json.job_id]);
  }

  /** Writes down what became of jobs that were published together. */
  protected published(
    jobs: readonly Sent[],
    answer: Answer | string,
    idsOf: (json: { job_id: string; job_ids: string[] }) => readonly string[],
  ): void {
    if (typeof answer === 'string') {
      if (answer === 'refused') for (const job of jobs) job.outcome = 'refused';
      return;
    }
    // An id of the caller: if a reply of Redis was lost, the server cannot tell whose job is there.
    const isKept = answer.status === 200 && jobs[0]?.id !== undefined && mayBeRepeated(jobs[0], Date.now());
    if (answer.status !== 201 && !isKept) {
      if (!this.isOutage(answer, 'a publish')) for (const job of jobs) job.outcome = 'refused';
      return;
    }
    const ids = idsOf(JSON.parse(answer.body.toString()));
    if (ids.length !== jobs.length)
      this.use.books.bug(`${jobs.length} jobs were published, and ${ids.length} ids came`);
    for (const [i, job] of jobs.entries()) {
      if (job.id !== undefined && job.id !== ids[i])
        this.use.books.bug(`${job.id} was published, and the answer was ${ids[i]}`);
      job.id = ids[i];
      job.told = Date.now();
      job.outcome = 'published';
    }
  }
}

/** Publishes one by one, in bulk, and in the place of others. */
export class Publisher extends Client {
  readonly #known: Sent[] = [];

  protected async turn(): Promise<void> {
    const { random } = this.use;
    const share = random.next();
    const old = this.#known.shift();
    if (share < 0.15) await this.#publishMany();
    else if (share < 0.25 && old?.id !== undefined) await this.replace(old);
    else await this.#publish();
    await sleep(random.whole(0, 60));
  }

  async #publish(): Promise<void> {
    const { random, books, isNaughty } = this.use;
    const queue = random.pick(this.use.queues);
    const id = random.chance(0.3) ? { id: `own-${random.whole(0, 1e9).toString(36)}-${Date.now()}` } : {};
    // Handlers of drains need JSON.
    const size = queue === 'raw' && random.chance(0.5) ? { size: this.#anySize() } : {};
    const job = books.sending(queue, { ...this.#anyLimits(), ...id, ...size });
    const query = `delay=${job.delayMs}ms&tries=${job.tries}&ttl=0${job.id ? `&id=${job.id}` : ''}`;
    const inRequest = isNaughty() && random.chance(0.08);
    const cut = inRequest ? ({ at: 'request', reset: random.chance(0.5) } as const) : this.anyCut(0.1, 30);
    const parts = random.chance(0.05) ? 5 : 1;
    const answer = await this.ask('PUT', `${queue}?${query}`, { body: job.body, cut, parts });
    this.published([job], answer, (json) => [json.job_id]);
    if (job.outcome === 'published' && random.chance(0.3)) this.#known.push(job);
  }

  async #publishMany(): Promise<void> {
    const { random, books } = this.use;
    const queue = random.pick(this.use.queues);
    const limits = this.#anyLimits();
    const jobs = Array.from({ length: random.whole(1, 64) }, () => books.sending(queue, limits));
    const body = Buffer.from(`[${jobs.map((job) => job.body).join(', ')}]`);
    const query = `delay=${limits.delayMs}ms&tries=${limits.tries}&ttl=0`;
    const more = { body, cut: this.anyCut(0.1, 30), parts: random.chance(0.1) ? 5 : 1 };
    const answer = await this.ask('PUT', `${queue}/bulk?${query}`, more);
    this.published(jobs, answer, (json) => json.job_ids);
  }

  #anyLimits() {
    const { random } = this.use;
    return { delayMs: random.chance(0.5) ? 0 : random.whole(1, 2_000), tries: random.pick(TRIES) };
  }

  /** Most payloads are small. Large ones do not fit into the buffers of a connection. */
  #anySize(): number {
    const { random } = this.use;
    return random.chance(0.03) ? random.whole(200_000, 1_000_000) : random.whole(0, 500);
  }
}

/** What a poll asks for. */
interface Poll {
  readonly queues: readonly string[];
  readonly count: number;
  readonly leaseMs: number;
  readonly path: string;
}

/** Polls, and acks what it gets, perhaps after a renewal; or comes late, or never, or gives it back, or publishes it anew. */
export class Poller extends Client {
  protected async turn(): Promise<void> {
    const { random, books } = this.use;
    const poll = this.anyPoll();
    const door = random.pick(this.use.doors);
    const from = Date.now();
    const answer = await this.ask('GET', poll.path, { cut: this.anyCut(0.2, 1_500) }, door);
    if (typeof answer === 'string') {
      if (answer !== 'refused') books.unseen(poll.queues, poll.count);
    } else this.took(poll, answer, from, door);
  }

  protected anyPoll(): Poll {
    const { random, queues, isNaughty } = this.use;
    const some = random.chance(0.3) ? [...random.shuffled(queues), 'empty'] : [random.pick(queues)];
    const count = random.pick([1, 1, 3, 20, 100]);
    const seconds = isNaughty() ? random.pick([1, 2, 5]) : 20;
    const timeout = random.pick([0, 1, 2]);
    const path = `${some}?ttr=${seconds}&timeout=${timeout}&count=${count}&receipts=1`;
    return { queues: some, count, leaseMs: seconds * 1_000, path };
  }

  /** Looks at the whole answer to a poll. */
  protected took({ queues, count, leaseMs }: Poll, answer: Answer, from: number, door: Door): void {
    const { books } = this.use;
    if (answer.status === 404) return;
    if (answer.status !== 200) {
      books.unseen(queues, count);
      return void this.isOutage(answer, 'a poll');
    }
    const json = JSON.parse(answer.body.toString()) as (Told & { receipt?: string }) | (Told & { receipt?: string })[];
    if (Array.isArray(json) !== count > 1) books.bug(`a poll for ${count} was answered with ${typeof json}`);
    const told = [json].flat();
    if (told.length > count || told.length === 0) books.bug(`a poll for ${count} brought ${told.length} jobs`);
    for (const one of told) {
      const receipt = one.receipt ?? String(answer.headers['x-receipt']);
      const delivery = books.delivered(one, { receipt, from, to: Date.now(), leaseMs });
      if (delivery) this.meanwhile(this.#settle(delivery, door));
    }
  }

  async #settle(delivery: Delivery, door: Door): Promise<void> {
    const { random, isNaughty } = this.use;
    const share = isNaughty() ? random.next() : 1;
    const { job, id, receipt, from, leaseMs } = delivery;
    if (share < 0.08) return;
    await sleep(share < 0.16 ? leaseMs + random.whole(-200, 500) : random.whole(0, 50));
    if (share > 0.92 && isNaughty()) return this.replace(job, door);
    if (share > 0.84 && isNaughty()) return this.#nack(delivery, door);
    if (share > 0.76 && isNaughty() && !(await this.#isRenewed(delivery, door))) return;
    const hasReceipt = random.chance(0.5);
    const headers = hasReceipt ? { 'X-Receipt': receipt } : {};
    const cut = this.anyCut(0.1, 20);
    const answer = await this.ask('DELETE', `${job.queue}/job/${id}`, { headers, cut }, door);
    const at = Date.now();
    if (answer === 'refused') return;
    // If a reply of Redis was lost, an ack that comes too late is taken for done.
    const isLate = hasReceipt && at > from + delivery.leaseMs;
    if (typeof answer === 'string' || (isLate && answer.status === 204)) delivery.ack = { outcome: 'unknown', at };
    else if (answer.status === 204) delivery.ack = { outcome: 'done', at };
    else if (answer.status === 409) delivery.ack = { outcome: 'lost', at };
    else if (this.isOutage(answer, 'an ack')) delivery.ack = { outcome: 'unknown', at };
  }

  /** Gives a job back: from now on it may come again, but not before its delay is over. */
  async #nack(delivery: Delivery, door: Door): Promise<void> {
    const { random } = this.use;
    const { job, id, receipt, from, leaseMs } = delivery;
    const [delayMs, mode] = [random.whole(0, 500), random.pick(['retry', 'release'])];
    const path = `${job.queue}/job/${id}/nack?delay=${delayMs}ms&mode=${mode}`;
    const heldMs = Date.now() - from;
    const answer = await this.ask('POST', path, { headers: { 'X-Receipt': receipt } }, door);
    if (answer === 'refused') return;
    delivery.isReleased = mode === 'release';
    delivery.leaseMs = Math.min(leaseMs, heldMs);
    if (typeof answer === 'string' || isLost(answer)) return;
    if (answer.status !== 200) return void this.isOutage(answer, 'a nack');
    // If a reply of Redis was lost, a nack that comes too late is taken for done.
    if (Date.now() < from + leaseMs) delivery.leaseMs = heldMs + delayMs;
  }

  /** Asks for more time, and uses some of it. Returns false if the lease was lost. */
  async #isRenewed(delivery: Delivery, door: Door): Promise<boolean> {
    const { job, id, receipt, from, leaseMs } = delivery;
    const heldMs = Date.now() - from;
    const path = `${job.queue}/job/${id}/renew?ttr=${leaseMs}ms`;
    const answer = await this.ask('POST', path, { headers: { 'X-Receipt': receipt } }, door);
    if (typeof answer === 'string') return true;
    if (answer.status === 200) delivery.leaseMs = heldMs + leaseMs;
    else if (isLost(answer)) delivery.ack = { outcome: 'lost', at: Date.now() };
    else this.isOutage(answer, 'a renewal');
    await sleep(this.use.random.whole(0, leaseMs));
    return !isLost(answer);
  }
}

/** The lease was lost: another holds the job, or it is gone. */
const isLost = ({ status }: Answer) => status === 409 || status === 404;

/** Polls with curl, a process for each poll. Some are killed. */
export class CurlPoller extends Poller {
  protected override async turn(): Promise<void> {
    const { random, books, isNaughty, token } = this.use;
    const poll = this.anyPoll();
    const door = random.pick(this.use.doors);
    const from = Date.now();
    const header = token ? ['-H', `X-Token: ${token}`] : [];
    const url = `http://127.0.0.1:${door.port}/api/${NAMESPACE}/${poll.path}`;
    const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'curl', '-s', '-i', '--max-time', '20', ...header, url], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    const chunks: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    const closed = once(child, 'close');
    if (random.chance(0.4) && isNaughty()) {
      await Promise.race([closed, sleep(random.whole(5, 1_500))]);
      child.kill('SIGKILL');
    }
    await closed;
    const text = Buffer.concat(chunks).toString('latin1');
    const [, status, head = '', body = ''] = /^HTTP\/1\.1 (\d+) (.*?\r\n)\r\n(.*)$/s.exec(text) ?? [];
    books.count(child.exitCode === 0 ? `curl ${status}` : 'curl without an answer');
    // It cannot connect, so the server has not seen the request.
    if (child.exitCode === 7) return;
    if (child.exitCode !== 0) return books.unseen(poll.queues, poll.count);
    const headers = { 'x-receipt': /^x-receipt: (\S+)/im.exec(head)?.[1] };
    this.took(poll, { status: Number(status), headers, body: Buffer.from(body, 'latin1') }, from, door);
  }
}

/** Publishes with `delayq enqueue`, a process for each job. */
export class Commander extends Client {
  readonly #url: string;
  readonly #errors: string;
  /** The process that is running, if one is. */
  pid: number | undefined;

  constructor(use: Using, url: string, errors: string) {
    super(use);
    this.#url = url;
    this.#errors = errors;
  }

  protected async turn(): Promise<void> {
    const { random, books } = this.use;
    const queue = random.pick(this.use.queues);
    const id = `command-${random.whole(0, 1e9).toString(36)}-${Date.now()}`;
    const job = books.sending(queue, { id, delayMs: random.whole(0, 2_000), tries: QUEUE_TRIES, byCommand: true });
    const args = ['enqueue', '--id', id, '--in', `${job.delayMs}ms`, `${NAMESPACE}.${queue}`, job.body.toString()];
    const child = spawn('delayq', args, {
      env: cronEnv({ DELAYQ_REDIS_URL: this.#url }),
      stdio: ['ignore', 'ignore', 'pipe'],
    });
    this.pid = child.pid;
    child.stderr.on('data', (data) => appendFileSync(this.#errors, data));
    await once(child, 'close');
    this.pid = undefined;
    job.told = Date.now();
    if (child.exitCode === 0) job.outcome = 'published';
    await sleep(random.whole(0, 300));
  }
}
