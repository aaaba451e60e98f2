import { expect, it } from 'vitest';
import { Connection, type DelayqError, poll, Queue, type TakenJobs } from '../../src/internal.js';
import { afterwards, during } from '../support/afterwards.js';
import { freshQueue, listeners } from '../support/redis.js';
import { Server } from '../support/server.js';
import { stopClock } from '../support/stopped-clock.js';

/**
 * A queue on a server of its own, one on the shared server, and a clock that only `clockUntil` moves: how busy the machine
 * is does not matter.
 */
async function farAndNear() {
  const server = await during(Server.start());
  const redis = new Connection(server.url);
  afterwards(() => redis.close());
  const [far, near] = [new Queue(redis, 'far'), freshQueue()];
  for (const one of [far, near]) await one.counts();
  // The other server will not answer.
  return { server, far, near, ...stopClock(near) };
}

/** Whether the next jobs have come. */
function coming(loop: AsyncGenerator<TakenJobs>) {
  const next = { hasCome: false };
  void loop.next().then(() => {
    next.hasCome = true;
  });
  return next;
}

it.each([['the first'], ['the second']])(
  'a queue whose server does not answer holds up the others once, for 250 ms: %s',
  async (place) => {
    const { server, far, near, settledUntil, clockUntil, advance } = await farAndNear();
    server.signal('SIGSTOP');
    const troubles: (string | undefined)[] = [];
    const onTrouble = (error: DelayqError | undefined) => troubles.push(error?.code);
    const queues = place === 'the first' ? [far, near] : [near, far];
    const loop = poll(queues, { watch: true, batch: 1, onTrouble });
    const waits: number[] = [];
    // Until the first call has failed by its deadline, and others after it.
    for (let after = 0; after < 20; after += troubles.length > 0 ? 1 : 0) {
      const next = coming(loop);
      await settledUntil(async () => (await listeners(near.wakeChannel)) > 0);
      await near.enqueue({ payload: 'near' });
      waits.push(await clockUntil(() => next.hasCome));
      advance(150);
    }
    // And some steps of the clock, until what follows is done.
    expect(waits[0]).toBeGreaterThanOrEqual(250);
    expect(waits[0]).toBeLessThan(2 * 250);
    // A message may be missed while the channel is subscribed anew: then the next look at the queue finds the job.
    expect(waits.slice(1).filter((ms) => ms >= 250).length).toBeLessThan(waits.length / 4);
    expect(troubles[0]).toMatch(/unknown|unreachable/);
    await loop.return(undefined);
  },
);

it('many queues whose server does not answer hold up the others for 25 ms each, after the first', async () => {
  const { server, far, near, clockUntil } = await farAndNear();
  server.signal('SIGSTOP');
  const many = Array.from({ length: 12 }, (_, n) => new Queue(far.redis, `far-${n}`));
  await near.enqueue({ payload: 'near' });
  const loop = poll([...many, near], { watch: true });
  const next = coming(loop);
  const ms = await clockUntil(() => next.hasCome);
  expect(ms).toBeGreaterThanOrEqual(250 + 11 * 25);
  expect(ms).toBeLessThan(2 * 250 + 11 * 25);
  await loop.return(undefined);
});
