import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Queue } from '../../src/index.js';
import { cronEnv } from '../support/cli.js';
import { canSetClocks, clockOff } from '../support/clock.js';
import { within } from '../support/until.js';
import type { Ledger } from './ledger.js';
import type { Random } from './random.js';

/** What producers need. */
export interface Producing {
  readonly url: string;
  readonly ledgers: readonly Ledger[];
  readonly random: Random;
  /** The file for the processes' stderr. */
  readonly errors: string;
  /** The longest delay of a job, ms. */
  readonly aheadMs: number;
  /** How many replicas must have a job before it is confirmed. */
  readonly replicas?: number | undefined;
  /** The time to live of those that may expire. */
  readonly ttl: string;
}

type Doing = 'ok' | 'wait' | 'fail' | 'refuse' | 'slow';

/** A payload with its id, what its handler should do, its own length in bytes, and perhaps which one of the id it is. */
export function payloadOf(id: string, what: Doing, pad: number, version?: number): string {
  const text = JSON.stringify({ id, do: what, bytes: '00000000', version, pad: 'x'.repeat(pad) });
  return text.replace('00000000', String(text.length).padStart(8, '0'));
}

/** A random payload: most are plain, a few fail, are refused or are slow. */
function anyPayload(id: string, random: Random): string {
  const share = random.next();
  const what = share < 0.01 ? 'fail' : share < 0.013 ? 'refuse' : share < 0.015 ? 'slow' : 'ok';
  return payloadOf(id, what, random.chance(0.002) ? 20_000 : random.whole(20, 300));
}

abstract class Producer {
  protected readonly how: Producing;
  protected over = false;
  protected child: ChildProcess | undefined;
  #ended: Promise<void> | undefined;

  constructor(how: Producing) {
    this.how = how;
  }

  /** The process that is enqueuing, if one is. */
  get pid(): number | undefined {
    return this.child?.exitCode === null && this.child.signalCode === null ? this.child.pid : undefined;
  }

  begin(): this {
    this.#ended = this.produce();
    return this;
  }

  /** Stops. Resolves when what was sent is answered. */
  async stop(): Promise<void> {
    this.over = true;
    await within(90_000, `what ${this.constructor.name} sent`, this.#ended);
  }

  protected abstract produce(): Promise<void>;

  protected spawn(args: string[]): ChildProcess {
    const { random, url, errors } = this.how;
    if (this.how.replicas !== undefined) args.splice(1, 0, '--replicas', String(this.how.replicas));
    const clock = canSetClocks && random.chance(0.1) ? clockOff(random.pick(['+300s', '-300s'])) : {};
    const child = spawn('delayq', args, { env: cronEnv({ DELAYQ_REDIS_URL: url, ...clock }), stdio: 'pipe' });
    child.stdin.on('error', () => {});
    child.stderr.pipe(createWriteStream(errors, { flags: 'a' }));
    this.child = child;
    return child;
  }
}

/** Runs `delayq enqueue` for each job. Exit 0 confirms it; after any other status its outcome is unknown. */
export class OneByOne extends Producer {
  protected async produce(): Promise<void> {
    const { ledgers, random, aheadMs } = this.how;
    while (!this.over) {
      const ledger = random.pick(ledgers);
      const inMs = random.whole(0, aheadMs);
      const id = ledger.sending(inMs);
      const child = this.spawn(['enqueue', '--in', `${inMs}ms`, '--id', id, ledger.queue, anyPayload(id, random)]);
      child.stdin?.end();
      child.stdout?.resume();
      await once(child, 'close');
      if (child.exitCode === 0) ledger.confirmed(id);
      await sleep(random.whole(0, 300));
    }
  }
}

/** How many lines are written to `enqueue -` at once, and how often, ms: 150 jobs a second. */
const PER_ROUND = 15;
const ROUND_MS = 100;

/** Runs `delayq enqueue --jobs q -` with a steady flow of lines. The ids that it prints are confirmed. */
export class Bulk extends Producer {
  protected async produce(): Promise<void> {
    const { ledgers, random, aheadMs, ttl } = this.how;
    while (!this.over) {
      const ledger = random.pick(ledgers);
      const child = this.spawn(['enqueue', '--jobs', ledger.queue, '-']);
      const closed = once(child, 'close');
      let open = true;
      closed.then(() => {
        open = false;
      });
      let text = '';
      child.stdout?.on('data', (data: Buffer) => {
        // The last line of a killed process may be incomplete.
        const lines = (text + data).split('\n');
        text = lines.pop() as string;
        for (const id of lines) ledger.confirmed(id);
      });
      // After a while go on with another queue and process.
      for (let rounds = random.whole(5, 30); rounds > 0 && open && !this.over; rounds--) {
        const lines: string[] = [];
        for (let n = 0; n < PER_ROUND; n++) {
          const inMs = random.whole(0, aheadMs);
          const mayExpire = random.chance(0.02);
          const id = ledger.sending(inMs, mayExpire);
          const expiry = mayExpire ? `,"ttl":"${ttl}"` : '';
          lines.push(`{"id":"${id}","in":"${inMs}ms"${expiry},"payload":${anyPayload(id, random)}}\n`);
        }
        const room = child.stdin?.write(lines.join(''));
        await sleep(ROUND_MS);
        if (!room && open) await Promise.race([closed, new Promise((go) => child.stdin?.once('drain', go))]);
      }
      child.stdin?.end();
      await closed;
    }
  }
}

/** Enqueues with the library, many jobs at a time. */
export class InProcess extends Producer {
  protected async produce(): Promise<void> {
    const { url, ledgers, random, aheadMs, replicas } = this.how;
    const redis = new Connection(url);
    while (!this.over) {
      const ledger = random.pick(ledgers);
      const jobs = Array.from({ length: random.whole(1, 20) }, () => {
        const inMs = random.whole(0, aheadMs);
        const id = ledger.sending(inMs);
        return { id, in: inMs, payload: JSON.parse(anyPayload(id, random)) };
      });
      // On an error the outcome stays unknown.
      const done = await new Queue(redis, ledger.queue).enqueue(jobs, { replicas }).catch(() => []);
      for (const { id } of done) ledger.confirmed(id);
      await sleep(random.whole(100, 400));
    }
    redis.close();
  }
}
