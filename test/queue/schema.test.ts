import { beforeEach, describe, expect, it } from 'vitest';
import {
  BatchWorker,
  JsonText,
  Operator,
  Queue,
  RawPayload,
  type Schema,
  type TaskResult,
  Worker,
} from '../../src/index.js';
import { connection, freshName, freshQueue } from '../support/redis.js';

interface Order {
  readonly orderId: number;
}

/** A schema that takes `{ orderId: '42' }`, and makes `{ orderId: 42 }` of it. */
const ORDER: Schema<{ orderId: string }, Order> = schemaOf((value) => {
  const { orderId } = Object(value);
  if (!/^\d+$/.test(orderId)) return { issues: [{ message: 'expected digits', path: ['orderId'] }] };
  return { value: { orderId: Number(orderId) } };
});

function schemaOf<Input, Output>(
  validate: Schema<Input, Output>['~standard']['validate'],
  wrap = (schema: Schema<Input, Output>) => schema,
): Schema<Input, Output> {
  return wrap({ '~standard': { version: 1, vendor: 'test', validate } });
}

/** A schema in whose eyes each value has these faults. */
const faulty = (...issues: { message: string; path?: readonly (PropertyKey | { key: PropertyKey })[] }[]) =>
  schemaOf<unknown, unknown>(() => ({ issues }));

let name: string;
let queue: Queue<Order, { orderId: string }>;
beforeEach(() => {
  name = freshName();
  queue = new Queue(connection, name, { schema: ORDER });
});

async function* stream<T>(...items: T[]): AsyncGenerator<T> {
  yield* items;
}

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

const bad = { payload: { orderId: 'x' } };
const good = { payload: { orderId: '42' } };

describe('a queue with a schema', () => {
  it('stores what the producer gave, and hands what the schema makes of it to the handler', async () => {
    await queue.enqueue(good);
    await queue.enqueue([good]);
    await all(queue.enqueue(stream(good)));
    await queue.swap('none', good);
    await queue.enqueue({ payload: JsonText.parse('{ "orderId": "42" }') });
    const seen: unknown[] = [];
    const stored: string[] = [];
    await new Worker(
      queue,
      (job) => {
        seen.push(job.json().orderId);
        stored.push(String(job.payload));
      },
      { watch: false },
    ).run();
    expect(seen).toEqual([42, 42, 42, 42, 42]);
    expect(new Set(stored)).toEqual(new Set(['{"orderId":"42"}', '{ "orderId": "42" }']));
  });

  it.each<[string, () => Promise<unknown>]>([
    ['a job', () => queue.enqueue(bad)],
    ['one of an array', () => queue.enqueue([good, bad])],
    ['one of a stream', () => all(queue.enqueue(stream(bad, good)))],
    ['one that replaces another', () => queue.swap('none', bad)],
    ['one that keeps its text', () => queue.enqueue({ payload: JsonText.parse('{"orderId":"x"}') })],
  ])('refuses a payload that does not fit before anything is sent: %s', async (_, enqueue) => {
    await expect(enqueue()).rejects.toMatchObject({
      code: 'data',
      what: `the payload does not fit the schema of ${name}`,
      why: 'orderId: expected digits',
      next: 'correct the payload, or the schema',
    });
    expect(await queue.counts()).toMatchObject({ pending: 0 });
  });

  it('refuses bytes that need not be JSON', async () => {
    const payload = new RawPayload(Buffer.from('{"orderId":"42"}'));
    await expect(queue.enqueue({ payload })).rejects.toMatchObject({ code: 'data', why: 'it is not JSON' });
    expect(await queue.counts()).toMatchObject({ pending: 0 });
  });

  it('judges a payload as its handler will read it', async () => {
    const dates = schemaOf<Date, Date>((value) =>
      value instanceof Date ? { value } : { issues: [{ message: `expected a date, not ${value}` }] },
    );
    const enqueued = new Queue(connection, name, { schema: dates }).enqueue({ payload: new Date(0) });
    await expect(enqueued).rejects.toMatchObject({ why: 'expected a date, not 1970-01-01T00:00:00.000Z' });
  });

  it('says where each fault is, and not all of many', async () => {
    const where = faulty({ message: 'a', path: ['lines', 0, { key: 'sku' }] }, { message: 'b', path: [Symbol('s')] });
    const many = faulty(...[1, 2, 3, 4, 5, 6, 7].map((n) => ({ message: `${n}` })));
    const refused = (schema: Schema) => new Queue(connection, name, { schema }).enqueue({ payload: 1 });
    await expect(refused(where)).rejects.toMatchObject({ why: 'lines.0.sku: a; Symbol(s): b' });
    await expect(refused(many)).rejects.toMatchObject({ why: '1; 2; 3; 4; 5; and 2 more' });
  });

  it('fails a job that others have enqueued and that does not fit: it is tried again', async () => {
    await new Queue(connection, name).enqueue({ payload: { orderId: 'x' }, id: 'a' });
    const results: TaskResult[] = [];
    const onResult = (result: TaskResult) => results.push(result);
    await new BatchWorker(queue, (jobs) => void jobs.map((job) => job.json()), { watch: false, onResult }).run();
    expect(results).toMatchObject([
      {
        outcome: 'retried',
        error: `the payload does not fit the schema of ${name}: orderId: expected digits; correct the payload, or the schema`,
        thrown: { code: 'data' },
      },
    ]);
  });

  it('hands over jobs of its partitions in the same way', async () => {
    await queue.enqueue(good);
    for await (const _ of new Operator(connection).partition(name, 3));
    await queue.enqueue(Array.from({ length: 20 }, (_, i) => ({ payload: { orderId: `${i}` }, id: `${i}` })));
    const seen: number[] = [];
    await new Worker(queue, (job) => seen.push(job.json().orderId), { watch: false }).run();
    expect(seen.sort((a, b) => a - b)).toEqual([...Array(20).keys(), 42]);
  });

  it('may have a function as its schema', async () => {
    const schema = schemaOf<number, number>(
      (value) => (value === 1 ? { value } : { issues: [{ message: 'not 1' }] }),
      (plain) => Object.assign(() => {}, plain),
    );
    const ones = new Queue(connection, name, { schema });
    await expect(ones.enqueue({ payload: 2 })).rejects.toMatchObject({ code: 'data' });
    expect(await ones.enqueue({ payload: 1 })).toMatchObject({ outcome: 'created' });
  });

  it('refuses a schema that says nothing', async () => {
    const silent = schemaOf<number, number>(() => undefined as never);
    const enqueued = new Queue(connection, name, { schema: silent }).enqueue({ payload: 1 });
    await expect(enqueued).rejects.toMatchObject({ code: 'usage', what: `the schema of ${name} says nothing` });
  });

  it('refuses a schema that must be waited for', async () => {
    const later = schemaOf<number, number>(() => Promise.reject(new Error('later')));
    const enqueued = new Queue(connection, name, { schema: later }).enqueue({ payload: 1 });
    await expect(enqueued).rejects.toMatchObject({ code: 'usage', what: `the schema of ${name} is asynchronous` });
  });

  it.each([{}, null, 'order', { '~standard': null }, { '~standard': { version: 2, validate: () => {} } }])(
    'refuses what is no schema: %j',
    (schema) => {
      expect(() => new Queue(connection, name, { schema: schema as never })).toThrow(
        expect.objectContaining({ code: 'usage', what: 'schema is not a Standard Schema' }),
      );
    },
  );
});

it('a queue without a schema checks no payloads, whatever its type', async () => {
  const typed: Queue<Order> = freshQueue() as Queue<Order>;
  await typed.enqueue({ payload: 'no order' as never });
  const seen: Order[] = [];
  await new Worker(typed, (job) => seen.push(job.json()), { watch: false }).run();
  expect(seen).toEqual(['no order']);
});
