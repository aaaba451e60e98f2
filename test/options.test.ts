import { describe, expect, it } from 'vitest';
import {
  Auditor,
  BatchWorker,
  check,
  Doctor,
  Inspector,
  metricsText,
  Operator,
  Queue,
  Spread,
  Transfer,
  Worker,
} from '../src/index.js';
import { admin, connection, freshQueue } from './support/redis.js';

const queue = freshQueue();
const { name } = queue;
const inspector = new Inspector(connection);
const operator = new Operator(connection);
const transfer = new Transfer(connection);

/** Calls as JavaScript makes them, without types. Each takes options with a key that it does not know. */
// biome-ignore lint/suspicious/noExplicitAny: so that wrong options reach the library
const calls: readonly (readonly [what: string, options: object, meant: string, call: (options: any) => unknown])[] = [
  ['a job', { payload: 1, inMs: 5 }, 'in', (job) => queue.enqueue(job)],
  ['a job of an array', { payload: 1, atMs: 5 }, 'at', (job) => queue.enqueue([{ payload: 2 }, job])],
  ['a job with its data elsewhere', { paylod: {} }, 'payload', (job) => queue.enqueue([job])],
  ['a job of a stream', { payload: 1, trie: 5 }, 'tries', (job) => all(queue.enqueue(stream(job)))],
  ['an unknown key without a value', { payload: 1, ID: undefined }, 'id', (job) => queue.enqueue(job)],
  ['enqueue', { ifExist: 'replace' }, 'ifExists', (options) => queue.enqueue({ payload: 1 }, options)],
  ['enqueue of an array', { durible: true }, 'durable', (options) => queue.enqueue([{ payload: 1 }], options)],
  ['a word of enqueue', { ifExists: 'replce' }, 'replace', (options) => queue.enqueue({ payload: 1 }, options)],
  ['drain', { limits: 5 }, 'limit', (options) => queue.drain(options)],
  ['nack', { errors: 'no' }, 'error', (options) => queue.nack([], options)],
  ['a word of nack', { mode: 'realease' }, 'release', (options) => queue.nack([], options)],
  ['Queue', { prefx: 'a' }, 'prefix', (options) => new Queue(connection, 'q', options)],
  ['Inspector', { prefx: 'a' }, 'prefix', (options) => new Inspector(connection, options)],
  ['Operator', { prefx: 'a' }, 'prefix', (options) => new Operator(connection, options)],
  ['Transfer', { prefx: 'a' }, 'prefix', (options) => new Transfer(connection, options)],
  ['Doctor', { prefx: 'a' }, 'prefix', (options) => new Doctor(connection, options)],
  ['Auditor', { prefx: 'a' }, 'prefix', (options) => new Auditor(connection, options)],
  ['Worker', { concurency: 5 }, 'concurrency', (options) => new Worker(queue, () => {}, options)],
  ['Worker', { timeout: 5 }, 'timeoutMs', (options) => new Worker(queue, () => {}, options)],
  ['BatchWorker', { batches: 5 }, 'batch', (options) => new BatchWorker(queue, () => {}, options)],
  ['list', { state: 'dead' }, 'states', (filter) => all(inspector.list(name, filter))],
  ['ids', { states: ['dead'], texts: 'a' }, 'text', (filter) => all(inspector.ids(name, filter))],
  ['count', { states: ['dead'], form: 5 }, 'from', (filter) => inspector.count(name, filter)],
  ['a state', { states: ['ded'] }, 'dead', (filter) => inspector.count(name, filter)],
  ['export', { states: ['dead'], limt: 5 }, 'limit', (filter) => all(transfer.export(name, filter))],
  ['move', { to: 'q', state: ['dead'] }, 'states', (options) => transfer.move(name, [], options)],
  ['adopt', { zset: 'z', hash: 'h', unit: 's', dryrun: true }, 'dryRun', (o) => all(transfer.adopt(name, o))],
  ['bury', { reasons: 'no' }, 'reason', (options) => operator.bury(name, [], options)],
  ['requeue', { delivery: 5 }, 'deliveries', (options) => operator.requeue(name, [], undefined, options)],
  ['pause', { for: 5 }, 'forMs', (options) => operator.pause(name, options)],
  ['configure', { leaseMs: 5 }, 'lease', (change) => operator.configure(name, change)],
  ['Spread', { step: 5 }, 'stepMs', (options) => new Spread(options)],
  ['examine', { mended: true }, 'mend', (options) => new Auditor(connection).examine(name, options)],
  ['check', { warns: {}, max: {} }, 'warn', async (limits) => check(await inspector.inspect(name), limits)],
  ['metricsText', { label: {} }, 'labels', (options) => metricsText([], options)],
];

async function* stream<T>(...items: T[]): AsyncGenerator<T> {
  yield* items;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

describe('an option that the library does not know', () => {
  it.each(calls)('is refused, and the right one suggested: %s %j → %s', async (_, options, meant, call) => {
    await expect((async () => call(options))()).rejects.toMatchObject({
      code: 'usage',
      why: expect.stringContaining(meant),
      next: `did you mean ${meant}?`,
    });
  });

  it('is refused before anything is changed', async () => {
    expect(await queue.counts()).toMatchObject({ pending: 0, config: {} });
  });

  it('is refused where the other worker has it', () => {
    expect(() => new Worker(queue, () => {}, { batch: 5 } as object)).toThrow(
      expect.objectContaining({ code: 'usage', next: 'use BatchWorker' }),
    );
  });

  it('of a move is no state of jobs that it cannot move', async () => {
    const states = ['active'] as never;
    await expect(transfer.move(name, ['a'], { to: 'other', states })).rejects.toMatchObject({ code: 'usage' });
  });

  it('does not keep jobs from carrying data of the caller under a symbol', async () => {
    const other = freshQueue();
    const line = Symbol('line');
    const results = await all(other.enqueueBatches(stream([{ payload: 1, [line]: 7 }])));
    expect(results).toMatchObject([{ batch: [{ [line]: 7 }], enqueued: [{ outcome: 'created' }] }]);
  });
});

const wrong: readonly (readonly [what: string, call: () => unknown])[] = [
  ['a queue without a name', () => new Queue(connection, undefined as never)],
  ['a URL as the connection', () => new Queue('redis://127.0.0.1' as never, 'q')],
  ['a client of another library', () => new Queue(admin as never, 'q')],
  ['an inspector without a connection', () => new Inspector(undefined as never)],
  ['a worker without a handler', () => new Worker(queue, undefined as never)],
  ['a worker of a name', () => new Worker('q' as never, () => {})],
  ['an id that is null', () => queue.enqueue({ payload: 1, id: null as never })],
  ['an id that is a number', () => queue.enqueue({ payload: 1, id: 42 as never })],
  ['a due time in seconds', () => queue.enqueue({ payload: 1, at: 1_795_341_984 })],
  ['a job that is text', () => queue.enqueue('hello' as never)],
  ['no job', () => queue.enqueue(undefined as never)],
  ['options that are null', () => queue.enqueue({ payload: 1 }, null as never)],
  ['one id for an array of ids', () => operator.cancel(name, '42' as never)],
  ['one job for an array of jobs', () => queue.ack('a' as never)],
  ['a list without a filter', () => all(inspector.list(name, undefined as never))],
  ['a lease that is text', () => operator.configure(name, { lease: '5' as never })],
  ['a subscription', () => connection.call('SUBSCRIBE', 'x')],
];

describe('an argument that is none', () => {
  it.each(wrong)('is refused: %s', async (_, call) => {
    await expect((async () => call())()).rejects.toMatchObject({ code: 'usage' });
    expect(await queue.counts()).toMatchObject({ pending: 0, config: {} });
  });
});
