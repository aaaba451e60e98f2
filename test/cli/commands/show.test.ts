import { describe, expect, it } from 'vitest';
import { Inspector, Queue, type StoredJob } from '../../../src/internal.js';
import { newId, timeOfId } from '../../../src/model/id.js';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { withDead } from '../../support/jobs.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';

const inspector = new Inspector(connection);

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** An id as delayq made it then. */
function madeAt(ms: number): string {
  let head = '';
  for (let rest = ms; head.length < 7; rest = Math.floor(rest / 62)) head = DIGITS[rest % 62] + head;
  return `${head}abcdef`;
}

describe('delayq show', () => {
  it('with --json writes all there is to know of a job', async () => {
    const queue = await withDead(1);
    const { stdout } = await delayq(['show', '--json', queue.name, 'd0']);
    expect(JSON.parse(stdout)).toMatchObject({
      schema: 1,
      queue: queue.name,
      id: 'd0',
      state: 'dead',
      reason: 'refused',
      payload: { n: 0 },
    });
  });

  it('shows the beginning of a long error or payload on a terminal, all of it in a pipe', async () => {
    const queue = freshQueue();
    const payload = 'x'.repeat(1_000_000);
    await queue.enqueue({ payload, id: 'a', tries: 1 });
    await queue.nack((await queue.drain()).jobs, {
      error: Array.from({ length: 40 }, (_, i) => `line ${i}`).join('\n'),
    });
    const shown = linesOf(await onTerminal(`delayq show ${queue.name} a`, { columns: 80, rows: 24 }));
    const lines = shown.flatMap((line) => line.match(/.{1,80}/g) ?? ['']);
    expect(lines.length).toBeLessThanOrEqual(22);
    expect(lines.join('')).toMatch(/line 7 +payload +1,000,002 bytes"x+…delayq: only the beginning is shown/);
    expect(shown.at(-1)).toMatch(new RegExp(`delayq show ${queue.name} a \\| less$`));
    const { stdout, stderr } = await delayq(['show', queue.name, 'a']);
    expect(stderr).toBe('');
    expect(stdout).toMatch(/\n +line 39\n +payload/);
    expect(linesOf(stdout).at(-1)).toBe(JSON.stringify(payload));
  });

  it('shows it in words', async () => {
    const queue = await withDead(1);
    await queue.enqueue([
      { payload: 'waits', id: 'p', in: '1h', attributes: { traceparent: '00-4bf9', tenant: '7 \u202e' } },
      { payload: 'held', id: 'a' },
    ]);
    await queue.drain();
    const dead = (await delayq(['show', '--tz', 'UTC', queue.name, 'd0'])).stdout;
    expect(dead).toMatch(new RegExp(`^${queue.name} d0  dead\n`));
    expect(dead).toMatch(/died +1970-01-01 00:00:10 \+00:00 +\S+.* ago +refused by its handler\n/);
    expect(dead).toMatch(/attempts +1: 1 failure of 7, 0 losses of 20\n/);
    expect(dead).toMatch(/error +exit 65: no such order\n +really\n/);
    expect(dead).toMatch(/payload +7 bytes\n\{"n":0\}\n$/);
    const waiting = await onTerminal(`delayq show ${queue.name} p`);
    expect(waiting).toMatch(/pending\n +due .* in (1h|5\dm)/);
    expect(waiting).toMatch(/\n {2}attributes {2}tenant=7 \\u\{202e\}\n {14}traceparent=00-4bf9\n/);
    expect(dead).not.toContain('attributes');
    expect(await onTerminal(`delayq show ${queue.name} a`)).toMatch(
      /active\n[\s\S]*held by +\S+:\d+ since [\s\S]*lease ends .* in (\d+s|1m)\n/,
    );
  });

  it('shows a limit of deliveries instead of the limits of the queue, and who told when the job was made', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'a', deliveries: 3, ttl: '1h', created: Date.UTC(2026, 0, 2, 3, 4, 5, 678) });
    await queue.enqueue({ payload: 1, id: 'b', deliveries: 3, tries: 2, in: '1h' });
    const { id } = await queue.enqueue({ payload: 1, in: '1h' });
    await queue.nack((await queue.drain()).jobs, { backoff: [3_600_000] });
    const text = (await delayq(['show', '--tz', 'UTC', queue.name, 'a'])).stdout;
    expect(text).toMatch(/made +2026-01-02 03:04:05 \+00:00 +.* ago, by its producer\n/);
    expect(text).toMatch(/attempts +1 of 3: 1 failure, 0 losses\n/);
    expect((await delayq(['show', queue.name, 'b'])).stdout).toMatch(/attempts +0 of 3: 0 failures of 2, 0 losses\n/);
    expect((await delayq(['show', queue.name, id])).stdout).toMatch(/made .*, by its id\n/);
    const [job] = await inspector.show(queue.name, ['a']);
    const { created, expires, deliveries } = job as StoredJob;
    expect(JSON.parse((await delayq(['show', '--json', queue.name, 'a'])).stdout)).toMatchObject({
      ...{ created, expires, deliveries, made: created },
    });
    expect(expires).toBeGreaterThan(Date.now());
  });

  it('of a job that is not there exits 3', async () => {
    const queue = await withDead(1);
    expect(await delayq(['show', queue.name, 'x'])).toMatchObject({
      code: 3,
      stdout: '',
      stderr: expect.stringContaining('there is no job "x"'),
    });
  });

  it('of jobs whose record or lease other software has spoilt shows what can be read', async () => {
    const name = freshName();
    await admin
      .multi()
      .hset(key(name, 'payload'), 'a', 'no json', 'b', '1')
      .zadd(key(name, 'dead'), 'inf', 'a', 1.5, 'b', 3, 'ghost')
      .hset(key(name, 'meta'), 'a', 'no json', 'b', '{"failures":"2","losses":null,"error":7,"tries":[]}')
      .exec();
    const lines = linesOf((await delayq(['list', '--json', name])).stdout).map((line) => JSON.parse(line));
    expect(lines).toMatchObject([
      { id: 'b', died: 1, failures: 2, losses: 0, error: null, tries: null, payload: 1 },
      { id: 'ghost', payload: null },
      { id: 'a', died: expect.any(Number), payloadBase64: 'bm8ganNvbg==' },
    ]);
  });
});

describe('an id of delayq', () => {
  it('tells when it was made, and no other id does', () => {
    const now = Date.now();
    expect(timeOfId(newId(now + 5_000))).toBe(now + 5_000);
    expect(timeOfId(madeAt(now))).toBe(now);
    for (const id of ['order:42', 'order-close-1', '0000000000000', 'zzzzzzzzzzzzz', `${newId()}x`, ''])
      expect(timeOfId(id)).toBe(undefined);
  });
});

describe('delayq show of a job that is not there', () => {
  it('tells when it was made and what the queue did since, and exits 3', async () => {
    const queue = freshQueue();
    const stats = key(queue.name, 'stats');
    await queue.enqueue({ payload: 1 });
    await admin.hdel(stats, 'sampled');
    const made = Date.now() - 120_000;
    await admin.hset(stats, `at:${Math.floor(made / 60_000) % 16}`, `${made - 500} 5 5 3 0 1 0 - 0`);
    await admin.hset(stats, { delivered: 1_205, acked: 1_200, removed: 3, expired: 4, dead: 3, cancelled: 1 });
    const { code, stdout, stderr } = await delayq(['show', '--tz', 'UTC', queue.name, madeAt(made)]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
    const time = new Date(made).toISOString().slice(0, 19).replace('T', ' ');
    expect(stderr).toContain(
      'it left the queue, or never existed: nothing is kept of it (see delayq config: keep-done, events)',
    );
    expect(stderr).toMatch(new RegExp(`its id was created ${time} \\+00:00, \\dm( \\d+s)? ago`));
    expect(stderr).toMatch(/since [\d: -]+ in this queue: 1,200 delivered, 1,200 done, 2 died/);
    expect(stderr).toContain('totals of this queue: 1,200 acked, 3 removed on delivery, 4 expired, 1 cancelled');
  });

  it('claims no more than is known', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1 });
    const { stderr } = await delayq(['show', queue.name, 'order:42']);
    expect(stderr).toContain('according to its counters, no job has ever left this queue');
    expect(stderr).not.toMatch(/created|since|totals/);
  });

  it('finds it in another queue, and a payload that was left behind', async () => {
    const prefix = freshName();
    const [one, other] = ['one', 'other'].map((name) => new Queue(connection, name, { prefix })) as [Queue, Queue];
    await one.enqueue({ payload: 1 });
    const [{ id } = { id: '' }] = [await other.enqueue({ payload: 2, in: '1h' })];
    await admin.hset(`${prefix}:{one}:payload`, id, '1');
    const { stderr } = await delayq(['show', '--prefix', prefix, one.name, id]);
    expect(stderr).toContain(`queue ${other.name} has a job "${id}": pending`);
    expect(stderr).toContain('its payload exists without a due time (an orphan)');
  });
});
