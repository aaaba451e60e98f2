import { describe, expect, it } from 'vitest';
import { type Job, Queue } from '../../src/index.js';
import { type HandlerCall, Runner } from '../../src/worker/runner.js';
import { ManualClock } from '../support/manual-clock.js';
import { connection } from '../support/redis.js';

const queue = new Queue(connection, 'run');
const job = { id: 'a' } as Job;

/** What a runner has said of the ends of its calls, and its clock. */
function running(handler: () => unknown, options: { timeoutMs?: number; abandonMs: number }) {
  const clock = new ManualClock();
  const ends: { call: HandlerCall; error: unknown }[] = [];
  const runner = new Runner(handler, options, (call, error) => ends.push({ call, error }), clock);
  runner.start(queue, [job]);
  /** Lets time pass, and what follows from it happen. */
  const pass = async (ms: number) => {
    clock.pass(ms);
    await new Promise(setImmediate);
  };
  return { clock, runner, ends, pass };
}

describe('a handler', () => {
  it('is aborted when its time is over, and abandoned if it does not end after that', async () => {
    const { runner, ends, pass } = running(() => new Promise(() => {}), { timeoutMs: 60_000, abandonMs: 5_000 });
    await pass(59_999);
    await pass(1);
    expect([runner.size, ends]).toEqual([1, []]);
    await pass(4_999);
    expect(ends).toEqual([]);
    await pass(1);
    expect(ends).toMatchObject([{ call: { cause: 'timeout', ms: 65_000 } }]);
    expect(ends[0]?.error).toEqual(new Error('timed out after 1m, and did not end'));
    expect(runner.size).toBe(0);
  });

  it('that ends in time is not aborted later', async () => {
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const { ends, pass } = running(() => ended, { timeoutMs: 60_000, abandonMs: 5_000 });
    await pass(59_999);
    end();
    await pass(0);
    expect(ends).toMatchObject([{ call: { cause: undefined, ms: 59_999 }, error: undefined }]);
    await pass(600_000);
    expect([ends.length, ends[0]?.call.cause]).toEqual([1, undefined]);
  });

  it('whose end is seen a moment after the end of its time has ended, if the process was suspended', async () => {
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const { clock, ends, pass } = running(() => ended, { timeoutMs: 60_000, abandonMs: 5_000 });
    clock.suspend(600_000);
    await pass(0);
    await pass(50);
    end();
    await pass(0);
    expect(ends).toMatchObject([{ call: { cause: undefined }, error: undefined }]);
  });

  it('whose end is seen together with the end of its time has ended: the process was suspended', async () => {
    let end = () => {};
    const ended = new Promise<void>((resolve) => {
      end = resolve;
    });
    const { ends, pass } = running(() => ended, { timeoutMs: 60_000, abandonMs: 5_000 });
    const passing = pass(600_000);
    end();
    await passing;
    expect(ends).toMatchObject([{ call: { cause: undefined }, error: undefined }]);
  });
});
