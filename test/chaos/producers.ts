import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection, Queue } from '../../src/index.js';
import { cronEnv } from '../support/cli.js';
import { canSetClocks, clockOff } from '../support/clock.js';
import type { Ledger } from './ledger.js';
import type { Random } from './random.js';

/** What producers need to know. */
export interface Producing {
  readonly url: string;
  readonly ledgers: readonly Ledger[];
  readonly random: Random;
  /** Where the processes' stderr goes. */
  readonly errors: string;
  /** How far ahead jobs are due at most, ms. */
  readonly aheadMs: number;
  /** How long after that some of them expire. */
  readonly ttl: string;
}

/** A payload that says what it is, what is to be done, and how many bytes it has. */
export function payloadOf(id: string, what: 'ok' | 'wait' | 'fail' | 'refuse' | 'slow', pad: number): string {
  const text = JSON.stringify({ id, do: what, bytes: '00000000', pad: 'x'.repeat(pad) });
  return text.replace('00000000', String(text.length).padStart(8, '0'));
}

/** Jobs of every kind that handlers know, most of them plain. */
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

  /** The process that is enqueuing now, if any. */
  get pid(): number | undefined {
    return this.child?.exitCode === null && this.child.signalCode === null ? this.child.pid : undefined;
  }

  begin(): this {
    this.#ended = this.produce();
    return this;
  }

  /** Ends when what was begun is answered. */
  async stop(): Promise<void> {
    this.over = true;
    await this.#ended;
  }

  protected abstract produce(): Promise<void>;

  protected spawn(args: string[]): ChildProcess {
    const { random, url, errors } = this.how;
    const clock = canSetClocks && random.chance(0.1) ? clockOff(random.pick(['+300s', '-300s'])) : {};
    const child = spawn('delayq', args, { env: cronEnv({ DELAYQ_REDIS_URL: url, ...clock }), stdio: 'pipe' });
    child.stdin.on('error', () => {});
    child.stderr.pipe(createWriteStream(errors, { flags: 'a' }));
    this.child = child;
    return child;
  }
}

/** `delayq enqueue`, one process a job: exit 0 confirms it, anything else leaves it in doubt. */
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

/** How many lines are fed to bulk at once, and how often, ms: 300 jobs a second. */
const PER_ROUND = 30;
const ROUND_MS = 100;

/** `delayq enqueue --jobs q -`, fed steadily: the ids that it prints are confirmed. */
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
        // A process that is killed may have written its last line in part.
        const lines = (text + data).split('\n');
        text = lines.pop() as string;
        for (const id of lines) ledger.confirmed(id);
      });
      // Another queue, in another process, after a while.
      for (let rounds = random.whole(5, 60); rounds > 0 && open && !this.over; rounds--) {
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

/** The library, many at a time, in this process. */
export class InProcess extends Producer {
  protected async produce(): Promise<void> {
    const { url, ledgers, random, aheadMs } = this.how;
    const redis = new Connection(url);
    while (!this.over) {
      const ledger = random.pick(ledgers);
      const jobs = Array.from({ length: random.whole(1, 20) }, () => {
        const inMs = random.whole(0, aheadMs);
        const id = ledger.sending(inMs);
        return { id, in: inMs, payload: JSON.parse(anyPayload(id, random)) };
      });
      // In doubt, or not there at all: the ledger knows both as "of unknown outcome".
      const done = await new Queue(redis, ledger.queue).enqueue(jobs).catch(() => []);
      for (const { id } of done) ledger.confirmed(id);
      await sleep(random.whole(100, 400));
    }
    redis.close();
  }
}
