import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { describe, expect, inject, it } from 'vitest';
import type { NewJob, Queue } from '../src/index.js';
import { afterFile } from './support/afterwards.js';
import { binary, delayq, sh } from './support/cli.js';
import { read } from './support/examples.js';
import { path as file, script, show } from './support/handlers.js';
import { Postgres } from './support/postgres.js';
import { admin, freshQueue, onCluster, timePasses } from './support/redis.js';

const example = (name: string) => fileURLToPath(new URL(`../examples/${name}`, import.meta.url));
const has = (line: string) => spawnSync('sh', ['-c', line]).status === 0;

it('the guide shows the statements that the examples run', () => {
  const [table, ...statements] = [...read('docs/guide/handlers-twice.md').matchAll(/^```sql\n([\s\S]*?)^```$/gm)];
  expect(readFileSync(example('add-points'), 'utf8')).toContain(`#   ${table?.[1]}`);
  for (const [i, name] of ['add-points', 'close-unpaid'].entries()) {
    expect(readFileSync(example(name), 'utf8')).toContain(`<<SQL\n${statements[i]?.[1]}SQL\n`);
  }
});

/** A handler whose drain is killed when it has done its work for the first time, before it can ack. */
const crashing = script('"$@" || exit; [ "$DELAYQ_ATTEMPT" -gt 1 ] || kill -KILL $PPID');

type Env = Record<string, string>;

/** Enqueues a job, and drains the queue into a handler. */
async function once(queue: Queue, job: NewJob, handler: readonly string[], env: Env = {}): Promise<void> {
  await queue.enqueue(job);
  await delayq(['drain', '-q', queue.name, '--', ...handler], { env });
}

/** The same, but the first drain dies between the effect and its ack; another one gets the job when its lease is over. */
async function twice(queue: Queue, job: NewJob, handler: readonly string[], env: Env = {}): Promise<void> {
  await queue.enqueue(job);
  const drain = ['drain', '-q', queue.name, '--', crashing, ...handler];
  expect((await binary(drain, { env })).signal).toBe('SIGKILL');
  await timePasses(queue.name, 60_001);
  await delayq(drain, { env });
  expect(await queue.counts()).toMatchObject({ active: 0, stats: { delivered: 2, lost: 1 } });
}

let postgres: Promise<Postgres> | undefined;
afterFile(async () => (await postgres)?.stop());

/** The databases that the examples are for: the program that a handler reaches them with, and how the test asks them. */
const databases = [
  {
    name: 'PostgreSQL',
    isThere: Postgres.isInstalled && has('psql --version && jq -V'),
    open: async () => {
      postgres ??= Postgres.start();
      const { env } = await postgres;
      return { env, words: ['psql', '-qX', '-v', 'ON_ERROR_STOP=1'], asking: ['-At', '-c'] };
    },
  },
  {
    name: 'SQLite',
    isThere: has('sqlite3 --version && jq -V'),
    open: async () => ({ env: {}, words: ['sqlite3', '-bail', '-cmd', '.timeout 5000', file()], asking: [] }),
  },
];

describe.each(databases)('with $name', ({ isThere, open }) => {
  const opened = async () => {
    const { env, words, asking } = await open();
    const [program = '', ...args] = [...words, ...asking];
    const ask = (sql: string) =>
      execFileSync(program, [...args, sql], { env: { ...process.env, ...env } })
        .toString()
        .trim();
    return { env, words, ask };
  };

  describe.runIf(isThere)('a job that comes twice', { concurrent: true }, () => {
    it('has one effect', async () => {
      const { env, words, ask } = await opened();
      // The statement of the example itself.
      const [, handled = ''] = /^# {3}(CREATE TABLE .*)$/m.exec(readFileSync(example('add-points'), 'utf8')) ?? [];
      ask(`${handled} CREATE TABLE customers (id int, points int); INSERT INTO customers VALUES (7, 0)`);
      const points = () => Number(ask('SELECT points FROM customers'));

      // Without a guard there would be two.
      const job = { id: `it's"7"\\`, payload: { customer: 7, points: 10 } };
      const bare = script(`echo 'UPDATE customers SET points = points + 10' | "$@"`);
      await twice(freshQueue(), job, [bare, ...words], env);
      expect(points()).toBe(20);

      const queue = freshQueue();
      const adding = [example('add-points'), ...words];
      await twice(queue, job, adding, env);
      expect(points()).toBe(30);
      expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 1 } });
      // The same id again is the same work, unless the job says that it is not.
      await once(queue, job, adding, env);
      expect(points()).toBe(30);
      await once(queue, { ...job, attributes: { run: '2' } }, adding, env);
      expect(points()).toBe(40);

      // Two at the same time: when a drain is killed, its handler goes on.
      const line = adding.map((word) => `'${word}'`).join(' ');
      const both = ['a', 'b'].map((receipt) =>
        sh(line, {
          input: '{"customer":7,"points":10}',
          env: { ...env, DELAYQ_QUEUE: queue.name, DELAYQ_ID: 'both', DELAYQ_RECEIPT: receipt },
        }),
      );
      expect((await Promise.all(both)).map(({ code }) => code)).toEqual([0, 0]);
      expect(points()).toBe(50);

      // What fails leaves nothing behind that would stop the next attempt.
      ask('ALTER TABLE customers RENAME TO gone');
      await once(queue, { id: 'b', payload: { customer: 7, points: 5 } }, adding, env);
      expect(await show(queue, 'b')).toMatchObject({ state: 'pending', failures: 1 });
      expect(ask('SELECT count(*) FROM handled')).toBe('3');
    });

    it('closes an unpaid order once, and no other', async () => {
      const { env, words, ask } = await opened();
      ask(`CREATE TABLE items (id int, stock int); INSERT INTO items VALUES (1, 0);
      CREATE TABLE orders (id int, item int, state text, closed_by text);
      INSERT INTO orders VALUES (42, 1, 'unpaid', NULL), (43, 1, 'paid', NULL)`);
      const [queue, closing] = [freshQueue(), [example('close-unpaid'), ...words]];
      await twice(queue, { id: 'order:42', payload: { orderId: 42 } }, closing, env);
      await once(queue, { id: 'order:43', payload: { orderId: 43 } }, closing, env);
      expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 2 } });
      expect(ask('SELECT state FROM orders ORDER BY id')).toBe('closed\npaid');
      expect(ask('SELECT stock FROM items')).toBe('1');
      await once(queue, { id: 'bad', payload: { orderId: '1 OR 1=1' } }, closing, env);
      expect(await show(queue, 'bad')).toMatchObject({ state: 'dead', reason: 'refused' });
    });
  });
});

// redis-cli of the example connects to one server.
describe.skipIf(onCluster)('with a key in Redis, a job that comes twice', { concurrent: true }, () => {
  const env = { REDISCLI_OPTIONS: `-s ${inject('redisSocket')}` };
  const job = { id: 'mail:7', payload: 'hello' };
  /** A command that sends a mail, into a file. */
  const mailer = (and = '') => {
    const sent = file();
    const mails = () => (existsSync(sent) ? readFileSync(sent, 'utf8') : '');
    return { send: script(`cat >> ${sent}; ${and}`), mails };
  };
  /** The key goes with the test. */
  const forget = (queue: Queue) => admin.del(`sent:${queue.name}:mail:7:`);

  it('sends one mail if the handler dies after its end', async () => {
    const queue = freshQueue();
    const { send, mails } = mailer();
    await twice(queue, job, [example('send-once'), send], env);
    expect(mails()).toBe('"hello"\n');
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 1 } });
    expect(await forget(queue)).toBe(1);
  });

  it.each([
    ['dead', 1, { dead: 1 }],
    ['skip', 1, { payload: 0, stats: { acked: 1 } }],
    ['again', 2, { payload: 0, stats: { acked: 1 } }],
  ])('does as it was told if the handler dies between the mail and the note of it: %s', async (UNSURE, count, then) => {
    const queue = freshQueue();
    // It kills its drain and its parent, the example. Its own second attempt is let live.
    const { send, mails } = mailer('[ "$DELAYQ_ATTEMPT" -gt 1 ] || kill -KILL "$DRAIN" $PPID');
    const started = script(`DRAIN=$PPID exec ${example('send-once')} "$@"`);
    await queue.enqueue(job);
    const drain = ['drain', '-q', queue.name, '--', started, send];
    expect((await binary(drain, { env: { ...env, UNSURE } })).signal).toBe('SIGKILL');
    await timePasses(queue.name, 60_001);
    await delayq(drain, { env: { ...env, UNSURE } });
    expect(mails()).toBe('"hello"\n'.repeat(count));
    expect(await queue.counts()).toMatchObject(then);
    if (UNSURE === 'dead') {
      expect(await show(queue, 'mail:7')).toMatchObject({
        error: expect.stringContaining('it may have been sent (sent:'),
      });
    }
    expect(await forget(queue)).toBe(1);
  });

  it('tries again what has failed', async () => {
    const queue = freshQueue();
    const { send, mails } = mailer('[ "$DELAYQ_ATTEMPT" -gt 1 ] || exit 75');
    await once(queue, job, [example('send-once'), send], env);
    expect(await show(queue, 'mail:7')).toMatchObject({
      state: 'pending',
      failures: 1,
      error: expect.stringMatching(/^exit 75/),
    });
    await timePasses(queue.name, 3_600_000);
    await delayq(['drain', '-q', queue.name, '--', example('send-once'), send], { env });
    expect(await queue.counts()).toMatchObject({ payload: 0, stats: { acked: 1 } });
    expect(mails()).toBe('"hello"\n'.repeat(2));
    expect(await forget(queue)).toBe(1);
  });

  it('does not know what became of a command that was killed', async () => {
    const queue = freshQueue();
    const { send, mails } = mailer('kill -KILL $$');
    await once(queue, job, [example('send-once'), send], env);
    await timePasses(queue.name, 3_600_000);
    await delayq(['drain', '-q', queue.name, '--', example('send-once'), send], { env });
    expect(await show(queue, 'mail:7')).toMatchObject({ state: 'dead', reason: 'refused', failures: 2 });
    expect(mails()).toBe('"hello"\n');
    expect(await forget(queue)).toBe(1);
  });

  it('sends nothing while Redis cannot say whether it was sent', async () => {
    const queue = freshQueue();
    const { send, mails } = mailer();
    await once(queue, job, [example('send-once'), send], { REDISCLI_OPTIONS: `-s ${file()}` });
    expect(await show(queue, 'mail:7')).toMatchObject({ state: 'pending', failures: 1 });
    expect(mails()).toBe('');
  });
});
