import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Connection, Queue } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { binary, linesOf, sh } from '../support/cli.js';
import { canSetClocks, clockOff } from '../support/clock.js';
import { FaultyProxy } from '../support/proxy.js';
import { admin, connection, freshName, key, redisUrl, timePasses } from '../support/redis.js';
import { Sentinels } from '../support/sentinel.js';
import { Server } from '../support/server.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';
import { Consumer, type Form } from './consumers.js';
import { Ledger, readLog, remainsOf } from './ledger.js';
import { seed } from './options.js';
import { payloadOf } from './producers.js';
import { Random } from './random.js';

const ALWAYS = ['--appendonly', 'yes', '--appendfsync', 'always'];

/** Consumers of one queue, and what they logged. */
class Watch {
  readonly #queue: string;
  readonly #url: string;
  readonly #directory = temporaryDirectory();
  readonly #consumers: Consumer[] = [];

  constructor(queue: string, url: string) {
    this.#queue = queue;
    this.#url = url;
  }

  begin(form: Form, clock?: string): this {
    const consumer = new Consumer(form, {
      queue: this.#queue,
      url: this.#url,
      clock,
      label: form,
      flags: '--watch',
      log: join(this.#directory, 'log'),
      errors: join(this.#directory, 'errors'),
    });
    this.#consumers.push(consumer);
    return this;
  }

  get log() {
    try {
      return readLog(readFileSync(join(this.#directory, 'log'), 'utf8'));
    } catch {
      return readLog('');
    }
  }

  /** Stops the consumers as a service manager does, the last first: nobody takes what a reader's drain gives back. */
  async end(): Promise<void> {
    for (const consumer of [...this.#consumers].reverse()) {
      consumer.signal('drain', 'SIGTERM');
      await consumer.end();
    }
  }

  async stop(): Promise<void> {
    for (const consumer of this.#consumers) await consumer.kill();
  }
}

describe(`a failover (seed ${seed})`, () => {
  it('to a replica that lags loses nothing that --replicas has confirmed, and lost acks only redeliver (failures 22)', async () => {
    const random = new Random(seed);
    const redis = await during(Sentinels.start({ sentinels: 1, args: ALWAYS, proxied: true }));
    const [primary, replica] = redis.servers as [Server, Server];
    // Clients connect through this, as through a service address that follows the primary.
    const clients = await during(FaultyProxy.start(primary.port));
    const env = { DELAYQ_REDIS_URL: clients.url };
    const ledger = new Ledger('safe');
    const ids = Array.from({ length: 200 }, () => ledger.sending(0));
    const jobs = ids.map((id) => `{"id":"${id}","payload":${payloadOf(id, 'ok', 100)}}\n`).join('');
    const bulk = await binary(['enqueue', '--replicas', '1', '--jobs', 'safe', '-'], { input: jobs, env });
    expect(bulk.code).toBe(0);
    for (const id of linesOf(bulk.stdout)) ledger.confirmed(id);

    const direct = new Connection(clients.url);
    afterwards(() => direct.close());
    const queue = new Queue(direct, 'safe');
    await primary.admin.hset(key('safe', 'config'), 'layout', '1 0/1 uses settings', 'lease', '1000');
    const { jobs: taken } = await queue.drain({ limit: random.whole(1, 50) });
    await primary.copied(1);

    // From here on nothing reaches the replica, and neither side notices.
    expect(redis.proxyOf(primary).strike('half-open', (said) => said.includes('PSYNC'))).toBe(1);
    expect(new Set(await queue.ack(taken))).toEqual(new Set(['held']));
    const alone = Array.from({ length: random.whole(1, 50) }, (_, i) => `${i}\n`).join('');
    const plain = await binary(['enqueue', 'unsafe', '-'], { input: alone, env });
    expect(plain.code).toBe(0);
    const doubted = await binary(['enqueue', '--replicas', '1', 'unsafe', '1'], { env });
    expect(doubted).toMatchObject({ code: 75, stdout: '', stderr: expect.stringContaining('0 of 1 replicas') });

    await primary.end('SIGKILL');
    await until(async () => (await redis.primary()) === replica);
    clients.retarget(replica.port);
    const watch = await during(new Watch('safe', clients.url).begin('exec').begin('worker'));
    await until(async () => (await replica.admin.hlen(key('safe', 'payload'))) === 0);
    await watch.end();

    const { violations, figures } = ledger.balance(watch.log, await remainsOf(replica.admin, 'safe'));
    expect(violations).toEqual([]);
    expect(figures).toMatchObject({ confirmed: 200, handled: 200 });
    const again = watch.log.handlings.filter(({ attempt }) => attempt === 2).map(({ id }) => id);
    expect(again).toEqual(expect.arrayContaining(taken.map(({ id }) => id)));
    // Jobs that were enqueued without --replicas are lost in such a failover.
    expect(await replica.admin.exists(key('unsafe', 'payload'))).toBe(0);
  });
});

describe.runIf(canSetClocks)(`clocks (seed ${seed})`, () => {
  it('of clients five minutes off either way: nothing is early, nothing late by that (failures 24)', async () => {
    const random = new Random(seed);
    const queue = freshName();
    const ledger = new Ledger(queue);
    const watch = await during(new Watch(queue, redisUrl).begin('stdout', '+300s').begin('lease', '-300s'));
    for (let n = 0; n < 30; n++) {
      const inMs = random.whole(0, 2_500);
      const id = ledger.sending(inMs);
      const clock = clockOff(random.pick(['+300s', '-300s', '+0s']));
      const args = ['enqueue', '--in', `${inMs}ms`, '--id', id, queue, payloadOf(id, 'ok', 10)];
      expect(await binary(args, { env: clock })).toMatchObject({ code: 0 });
      ledger.confirmed(id);
    }
    await until(() => watch.log.handlings.length === 30);
    await watch.end();
    const { violations, figures } = ledger.balance(watch.log, await remainsOf(admin, queue));
    expect(violations).toEqual([]);
    // Polling takes up to a second; the rest is for a busy machine.
    expect(figures['lateness worst ms']).toBeLessThan(60_000);
  });
});

it('consumers that were down for 30 days, through a restart: all is there, oldest first (failures 17)', async () => {
  const random = new Random(seed);
  const server = await during(Server.start({ args: ALWAYS }));
  const env = { DELAYQ_REDIS_URL: server.url };
  const days = Array.from({ length: 400 }, () => random.whole(0, 29 * 24 * 60));
  const jobs = days.map((minutes) => `{"in":"${minutes}m","payload":${minutes}}\n`).join('');
  expect(await binary(['enqueue', '-q', '--jobs', 'q', '-'], { input: jobs, env })).toMatchObject({ code: 0 });
  await server.end('SIGKILL');
  await server.run();
  await timePasses('q', 30 * 24 * 3_600_000, server.admin);
  const { code, stdout } = await binary(['drain', 'q'], { env });
  expect({ code, lines: linesOf(stdout).map(Number) }).toEqual({ code: 0, lines: [...days].sort((a, b) => a - b) });
});

/** Runs a command in a mount namespace of its own. */
const OWN_MOUNT = 'unshare -rm';

describe.runIf(spawnSync('sh', ['-c', `${OWN_MOUNT} mount -t tmpfs -o size=32k tmpfs /mnt`]).status === 0)(
  'a disk that is full',
  () => {
    const payloads = Array.from({ length: 80 }, (_, n) => JSON.stringify({ n, pad: 'x'.repeat(1_000) }));
    const onFullDisk = (line: string, env: Record<string, string>) =>
      sh(
        `${OWN_MOUNT} sh -c 'mount -t tmpfs -o size=32k tmpfs /mnt
          ${line}; status=$?; cat /mnt/log >> "$LOG"; exit $status'`,
        { env },
      );

    it.each([
      ['handlers, which have failed', 'delayq drain -q "$Q" -- sh -c "cat >> /mnt/log && echo >> /mnt/log"', 1],
      ['stdout, which exits 74', 'delayq drain "$Q" > /mnt/log', 74],
    ])('under %s: what was not written comes again (failures 10)', async (_, line, status) => {
      const queue = freshName();
      await new Queue(connection, queue).enqueue(payloads.map((text) => ({ payload: JSON.parse(text) })));
      const log = join(temporaryDirectory(), 'log');
      const ended = await onFullDisk(line, { Q: queue, LOG: log });
      expect(ended).toMatchObject({ code: status, stderr: expect.stringMatching(/No space left|ENOSPC|no space/) });
      const written = linesOf(readFileSync(log, 'utf8')).filter((text) => payloads.includes(text));
      // Nothing stays of a chunk that does not fit.
      if (status !== 74) expect(written.length).toBeGreaterThan(10);
      expect(written.length).toBeLessThan(80);
      await admin.hset(key(queue, 'config'), 'layout', '1 0/1 uses settings', 'tries', '100');
      // Makes failed jobs due now.
      for (const id of await admin.zrange(key(queue, 'pending'), '0', '-1'))
        await admin.zadd(key(queue, 'pending'), 1, id);
      const rest = linesOf((await binary(['drain', queue])).stdout);
      expect(new Set([...written, ...rest])).toEqual(new Set(payloads));
      expect(await admin.hlen(key(queue, 'payload'))).toBe(0);
    });
  },
);
