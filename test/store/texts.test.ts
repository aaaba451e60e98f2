import { describe, expect, it } from 'vitest';
import { isOfTexts, type NewJob, Operator, type SettingsChange } from '../../src/internal.js';
import { admin, connection, freshQueue, key } from '../support/redis.js';

const operator = new Operator(connection);

describe('a take from a queue of texts', () => {
  const limits: SettingsChange = { rate: { jobs: 1_000, perMs: 1 }, maxActive: 100 };
  it.each<[string, SettingsChange]>([
    ['without limits', {}],
    ['with limits', limits],
  ])('tells of them with every reply that brings jobs, %s', async (_, change) => {
    const [texts, plain] = [freshQueue(), freshQueue()];
    await operator.configure(texts.name, { ...change, text: true });
    await operator.configure(plain.name, change);
    const takes: NewJob[][] = [
      [{ payload: 'one' }],
      [{ payload: 'a' }, { payload: 'b' }],
      [{ payload: 'record', attributes: { tenant: '7' } }],
    ];
    for (const jobs of takes) {
      for (const queue of [texts, plain]) {
        await queue.enqueue(jobs);
        const drained = await queue.drain();
        expect(drained.jobs.map(({ payload }) => JSON.parse(String(payload)))).toEqual(
          jobs.map(({ payload }) => payload),
        );
        expect(drained).toMatchObject({ texts: queue === texts, hasLimits: 'rate' in change, leaseMs: 60_000 });
      }
    }
  });

  it('follows the setting from the next take on, in each partition', async () => {
    const queue = freshQueue();
    for await (const _ of operator.partition(queue.name, 3));
    const told = async () => {
      await queue.enqueue(Array.from({ length: 12 }, (_, i) => ({ id: `${i}`, payload: 'a' })));
      const seen: boolean[] = [];
      for (let left = 12; left > 0; ) {
        const { jobs, texts } = await queue.drain();
        left -= jobs.length;
        if (jobs.length > 0) seen.push(texts);
        await queue.ack(jobs);
      }
      return new Set(seen);
    };
    expect(await told()).toEqual(new Set([false]));
    await operator.configure(queue.name, { text: true });
    expect(await told()).toEqual(new Set([true]));
    await operator.configure(queue.name, { text: null });
    expect(await told()).toEqual(new Set([false]));
  });

  it('counts what config has turned on, and no field that other software has written', async () => {
    const queue = freshQueue();
    await operator.configure(queue.name, { text: false });
    expect(await admin.exists(key(queue.name, 'config'))).toBe(0);
    await queue.enqueue({ payload: 'a' });
    await admin.hset(key(queue.name, 'config'), 'text', '1');
    expect(await queue.drain()).toMatchObject({ texts: false, jobs: [{ attempt: 1 }] });
    expect(await isOfTexts(connection, 'delayq', queue.name)).toBe(false);
    await operator.configure(queue.name, { text: true });
    expect(await isOfTexts(connection, 'delayq', queue.name)).toBe(true);
    await queue.enqueue({ payload: 'a' });
    expect(await queue.drain()).toMatchObject({ texts: true, jobs: [{ attempt: 1 }] });
  });
});
