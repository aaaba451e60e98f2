import { expect, it, vi } from 'vitest';
import { troubleTeller } from '../../src/consume/trouble.js';
import { Connection, DelayqError, Queue, Worker } from '../../src/index.js';
import { afterwards, during } from '../support/afterwards.js';
import { ManualClock } from '../support/manual-clock.js';
import { freshQueue } from '../support/redis.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

/** What is told on stderr during a test. */
function stderr(): string[] {
  const told: string[] = [];
  const spy = vi.spyOn(console, 'error').mockImplementation((text: string) => void told.push(text));
  afterwards(() => spy.mockRestore());
  return told;
}

const AWAY = new DelayqError('unreachable', 'cannot reach Redis', { why: 'refused', next: 'start it' });

it('each trouble is told once, and once that it is over, and for how long it lasted', () => {
  const told: string[] = [];
  const clock = new ManualClock();
  const tell = troubleTeller((what) => told.push(what), { clock });
  const queue = freshQueue();
  for (const where of [undefined, queue, undefined, queue, 'handlers'] as const) tell(AWAY, where);
  clock.pass(90_000);
  for (const where of [undefined, queue, undefined, 'handlers', queue] as const) tell(undefined, where);
  expect(told).toEqual([
    'cannot reach Redis',
    'still trying',
    'cannot reach Redis',
    `going on without ${queue.name}, retrying every second`,
    'cannot reach Redis: start it',
    'Redis is back after 1m 30s',
    `${queue.name} is back after 1m 30s`,
    'handlers work again after 1m 30s',
  ]);
});

it('each failure of onDead is told, and no end of them', () => {
  const told: string[] = [];
  const tell = troubleTeller((what) => told.push(what));
  for (const what of ['q a: onDead failed: away', 'q b: onDead failed: away'])
    tell(new DelayqError('temporary', what), 'onDead');
  tell(undefined, 'onDead');
  expect(told).toEqual(['q a: onDead failed: away', 'q b: onDead failed: away']);
});

it('a worker tells on stderr that Redis is away, and that it is back', async () => {
  const told = stderr();
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  const queue = new Queue(redis, 'q');
  await queue.counts();
  const worker = new Worker(queue, () => {});
  const running = worker.run();
  await server.end('SIGKILL');
  await until(() => told.length >= 2);
  await server.run();
  await until(() => told.length >= 3);
  worker.stop();
  await running;
  expect(told).toEqual([
    expect.stringMatching(/^delayq: .+\n {2}why: {2}.+\n {2}next: .+$/),
    'delayq: still trying',
    expect.stringMatching(/^delayq: Redis is back after \S+$/),
  ]);
});

it('its own onTrouble replaces that', async () => {
  const told = stderr();
  const queue = freshQueue();
  await queue.enqueue([{ payload: 1 }, { payload: 2 }]);
  const troubles: unknown[] = [];
  const worker = new Worker(
    queue,
    () => {
      throw new Error('no such host');
    },
    { watch: false, maxFailures: 1, onResult: () => {}, onTrouble: (error, where) => troubles.push(error, where) },
  );
  expect(await worker.run()).toMatchObject({ retried: 1, circuitOpen: true });
  expect(troubles).toMatchObject([{ what: '1 failure in a row', why: 'no such host' }, 'handlers']);
  expect(told).toEqual([]);
});
