import { describe, expect, it } from 'vitest';
import { columns } from '../../../src/cli/terminal/output.js';
import { Queue } from '../../../src/index.js';
import { newId, timeOfId } from '../../../src/model/id.js';
import { delayq, linesOf, onTerminal } from '../../support/cli.js';
import { admin, connection, freshName, freshQueue, key } from '../../support/redis.js';

/** What a terminal of 80 columns shows. */
const onNarrow = (line: string) => onTerminal(line, { columns: 80 });

const DIGITS = '0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz';

/** An id as delayq made it then. */
function idOf(ms: number): string {
  let head = '';
  for (let rest = ms; head.length < 7; rest = Math.floor(rest / 62)) head = DIGITS[rest % 62] + head;
  return `${head}abcdef`;
}

describe('an id of delayq', () => {
  it('tells when it was made, and no other id does', () => {
    const now = Date.now();
    expect(timeOfId(newId(now + 5_000))).toBe(now + 5_000);
    expect(timeOfId(idOf(now))).toBe(now);
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
    const { code, stdout, stderr } = await delayq(['show', '--tz', 'UTC', queue.name, idOf(made)]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: '' });
    const time = new Date(made).toISOString().slice(0, 19).replace('T', ' ');
    expect(stderr).toContain(
      'it left the queue, or never existed: jobs that are done, cancelled or moved are not kept',
    );
    expect(stderr).toMatch(new RegExp(`its id was created ${time} \\+00:00, 2m( \\d+s)? ago`));
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

describe('delayq list on a terminal', () => {
  it('keeps to its columns, however wide the characters are (failures 30)', async () => {
    const queue = freshQueue();
    const payloads = [
      '注文'.repeat(60),
      '🫠'.repeat(90),
      'e\u0301'.repeat(200),
      `\x1b[2J\u202e${'x'.repeat(99)}`,
      'short',
    ];
    await queue.enqueue([
      ...payloads.map((payload, i) => ({ payload, id: `job-${i}`, at: Date.now() + 1_000 * i })),
      { payload: 1, id: `long-${'y'.repeat(200)}`, in: '1h' },
    ]);
    await admin.zadd(key(queue.name, 'dead'), Date.now(), 'コンビニ');
    const shown = await onNarrow(`delayq list ${queue.name}`);
    const lines = linesOf(shown);
    expect(lines).toHaveLength(8);
    for (const line of lines) expect(columns(line)).toBeLessThanOrEqual(80);
    expect(shown).toMatch(/"注文(注文)*注?…$/m);
    expect(shown).toMatch(/"(🫠)+…$/mu);
    expect(shown).toMatch(/^long-y+… /m);
    for (const raw of ['\x1b', '\u202e']) expect(shown).not.toContain(raw);
    // Payloads begin at the same column in every row.
    const places = lines.filter((line) => /"/.test(line)).map((line) => columns(line.slice(0, line.indexOf('"'))));
    expect(new Set(places).size).toBe(1);
    expect(await onNarrow(`delayq list --full ${queue.name}`)).toContain(`long-${'y'.repeat(200)}`);
  });
});
