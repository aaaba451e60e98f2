import { describe, expect, it } from 'vitest';
import { JsonText, RawPayload } from '../../src/internal.js';
import { freshQueue } from '../support/redis.js';

const EVERY_BYTE = Buffer.from(Array.from({ length: 256 }, (_, i) => i));

describe('a raw payload', () => {
  it.each([
    ['of every byte', EVERY_BYTE],
    ['of none', Buffer.alloc(0)],
    ['of lines', Buffer.from('a\r\nb\n')],
    ['of more than is sent as text', Buffer.alloc(70_000, 0xe9)],
  ])('%s is delivered as it is', async (_, bytes) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: new RawPayload(bytes), id: 'one' });
    await queue.enqueue({ payload: new RawPayload(Buffer.from('old')), id: 'two' });
    await queue.enqueue({ payload: new RawPayload(bytes), id: 'two' }, { ifExists: 'replace' });
    await queue.enqueue([{ payload: new RawPayload(bytes), attributes: { a: 'b' } }, { payload: 1 }]);
    const { jobs } = await queue.drain();
    const payloads = jobs.map(({ payload }) => payload.toString('latin1')).sort();
    expect(payloads).toEqual(['1', ...Array(3).fill(bytes.toString('latin1'))].sort());
  });

  it('that a drain at most once has removed is put back as it was', async () => {
    const queue = freshQueue();
    await queue.enqueue([{ payload: new RawPayload(EVERY_BYTE) }, { payload: new RawPayload(Buffer.alloc(0)) }]);
    await queue.putBack((await queue.drain({ leaseMs: 0 })).jobs);
    const { jobs } = await queue.drain();
    expect(jobs.map(({ payload }) => payload.length).sort()).toEqual([0, 256]);
  });

  it('comes in the order of an iterable, between others', async () => {
    const queue = freshQueue();
    const given = [new RawPayload(Buffer.from('x')), JsonText.parse('1'), new RawPayload(Buffer.from('\n'))];
    async function* jobs() {
      for (const [i, payload] of given.entries()) yield { payload, at: 1_000 + i };
    }
    for await (const { outcome } of queue.enqueue(jobs())) expect(outcome).toBe('created');
    expect((await queue.drain()).jobs.map(({ payload }) => String(payload))).toEqual(['x', '1', '\n']);
  });
});
