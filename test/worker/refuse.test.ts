import { expect, it } from 'vitest';
import { BatchWorker, Inspector, RawPayload, type TaskResult } from '../../src/index.js';
import { connection, freshQueue } from '../support/redis.js';

const inspector = new Inspector(connection);

it('a job that refuse names a reason for is dead at once, and the rest of its batch is handled', async () => {
  const queue = freshQueue();
  await queue.enqueue([
    ...['a', 'b', 'c'].map((id) => ({ id, payload: id })),
    { id: 'raw', payload: new RawPayload(Buffer.from([255])) },
  ]);
  const [batches, results]: [string[][], TaskResult[]] = [[], []];
  const worker = new BatchWorker(queue, (tasks) => batches.push(tasks.map(({ id }) => id).sort()), {
    watch: false,
    refuse: ({ id, payload }) => (id === 'b' || payload[0] === 255 ? `no ${id}` : undefined),
    onResult: (result) => results.push(result),
  });
  expect(await worker.run()).toMatchObject({ acked: 2, dead: 2, retried: 0 });
  expect(batches).toEqual([['a', 'c']]);
  const dead = results.filter(({ outcome }) => outcome === 'dead');
  expect(dead.map(({ job, reason, error }) => [job.id, reason, error]).sort()).toEqual([
    ['b', 'refused', 'no b'],
    ['raw', 'refused', 'no raw'],
  ]);
  const [b] = await inspector.show(queue.name, ['b']);
  expect(b).toMatchObject({ state: 'dead', reason: 'refused', error: 'no b' });
});

it('a task whose payload is not JSON has its bytes, and json() throws', async () => {
  const queue = freshQueue();
  await queue.enqueue({ payload: new RawPayload(Buffer.from('{')) });
  const seen: unknown[] = [];
  const worker = new BatchWorker(
    queue,
    ([task]) => {
      seen.push(String(task?.payload));
      expect(() => task?.json()).toThrow(SyntaxError);
    },
    { watch: false },
  );
  expect(await worker.run()).toMatchObject({ acked: 1 });
  expect(seen).toEqual(['{']);
});

it('a worker ends if refuse throws', async () => {
  const queue = freshQueue();
  await queue.enqueue({ payload: 1 });
  const refuse = () => {
    throw new Error('broken');
  };
  await expect(new BatchWorker(queue, () => {}, { watch: false, refuse }).run()).rejects.toThrow('broken');
  expect(await queue.counts()).toMatchObject({ pending: 1, active: 0 });
});
