import { describe, expect, it } from 'vitest';
import { DelayqError } from '../../../src/index.js';
import { Turns } from '../../../src/serve/queues/turns.js';
import { upTo } from '../../support/jobs.js';

/** Something that ends when the test says so. */
function open<T>() {
  let resolve: (value: T) => void = () => {};
  let reject: (error: unknown) => void = () => {};
  const promise = new Promise<T>((yes, no) => {
    resolve = yes;
    reject = no;
  });
  return { promise, resolve, reject };
}

const turn = () => new Promise((resolve) => setImmediate(resolve));

describe('turns', () => {
  it('are taken by so many at a time, in the order in which they came', async () => {
    const turns = new Turns(2);
    const acts = upTo(5).map(() => open<number>());
    const begun: number[] = [];
    const all = acts.map(({ promise }, i) =>
      turns.take(() => {
        begun.push(i);
        return promise;
      }),
    );
    await turn();
    expect(begun).toEqual([0, 1]);
    acts[1]?.resolve(1);
    await turn();
    expect(begun).toEqual([0, 1, 2]);
    for (const [i, { resolve }] of acts.entries()) resolve(i);
    expect(await Promise.all(all)).toEqual([0, 1, 2, 3, 4]);
    expect(begun).toEqual([0, 1, 2, 3, 4]);
  });

  it('go on after one that failed', async () => {
    const turns = new Turns(1);
    const failed = turns.take(() => Promise.reject(new DelayqError('data', 'broken')));
    const next = turns.take(async () => 'done');
    await expect(failed).rejects.toThrow('broken');
    expect(await next).toBe('done');
    expect(await turns.take(async () => 'again')).toBe('again');
  });

  it('end for all that wait when Redis does not answer, and are free afterwards', async () => {
    const turns = new Turns(1);
    const first = open<string>();
    const all = [turns.take(() => first.promise), ...upTo(3).map(() => turns.take(async () => 'never'))];
    const ended = Promise.allSettled(all);
    first.reject(new DelayqError('unreachable', 'no answer'));
    expect((await ended).map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected', 'rejected']);
    expect(await turns.take(async () => 'again')).toBe('again');
  });
});
