import { describe, expect, it } from 'vitest';
import { delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { admin, freshName, freshQueue, key } from '../../support/redis.js';

/** Müller-42 in Latin-1, as a producer of another time writes it; bytes that are nothing; and what no argument can hold. */
const BAD = [Buffer.from('M\xfcller-42', 'latin1'), Buffer.from([0xff, 0x1b]), Buffer.from('a\0b')];
const WORDS = BAD.map((id) => `base64:${id.toString('base64')}`);

/** Jobs as other software makes them: those with bad ids, and before them one that is fine. */
async function withBad(set = 'pending'): Promise<string> {
  const name = freshName();
  for (const [i, id] of [Buffer.from('fine'), ...BAD].entries()) {
    await admin
      .multi()
      .hset(key(name, 'payload'), id, `${i}`)
      .zadd(key(name, set), Date.now() - 1_000 + i, id)
      .exec();
  }
  return name;
}

const standing = async (name: string, set: string) =>
  (await admin.zrangeBuffer(key(name, set), '0', '-1')).map((id) => id.toString('latin1'));
const latin1 = BAD.map((id) => id.toString('latin1'));
const ranked = (list: readonly string[]) => [...list].sort();

describe('a job whose id no handler can be given', () => {
  it.each([
    ['-- cat', "-q QUEUE -- sh -c 'cat; echo ran'", '0\nran\n'],
    ['--pipe', "-q QUEUE --pipe 'cat; echo ran'", '0\nran\n'],
    ['stdout', 'QUEUE', '0\n'],
    ['--at-most-once', '--at-most-once QUEUE', '0\n'],
    ['--lease', '--lease 1m QUEUE | jq .id', '"fine"\n'],
  ])('dies at its first take, and is told of: drain %s (failures 40)', async (form, line, expected) => {
    const name = await withBad();
    const { code, stdout, stderr } = await sh(`delayq drain ${line.replace('QUEUE', name)}`);
    expect(stdout).toBe(expected);
    // Of a pipeline sh tells the status of the last.
    expect(code).toBe(form === '--lease' ? 0 : 1);
    const said = [...stderr.matchAll(/^delayq: \S+ (base64:\S+): dead: has an invalid id$/gm)].map(([, id]) => id);
    expect(ranked(said as string[])).toEqual(ranked(WORDS));
    expect(ranked(await standing(name, 'dead'))).toEqual(ranked(latin1));
    expect(await delayq(['drain', name])).toMatchObject({ code: 0, stdout: '', stderr: '' });
  });

  it('is listed and shown by a word that names it, and by its bytes (failures 40)', async () => {
    const name = await withBad();
    await delayq(['drain', name]);
    const { stdout } = await delayq(['list', '--json', name]);
    const told = linesOf(stdout).map((line) => JSON.parse(line));
    expect(new Set(told.map(({ id, idBase64, reason }) => `${id} ${idBase64} ${reason}`))).toEqual(
      new Set(BAD.map((id, i) => `${WORDS[i]} ${id.toString('base64')} bad id`)),
    );
    const [, word = ''] = WORDS;
    expect(JSON.parse((await delayq(['show', '--json', name, word])).stdout)).toMatchObject({
      id: word,
      state: 'dead',
      payload: 2,
    });
    expect(linesOf((await delayq(['list', '--json', '--grep', 'ller-42', name])).stdout)).toHaveLength(1);
    const seen = await onTerminal(`delayq list ${name}; delayq show ${name} ${word}`);
    expect(seen).toMatch(/base64:\/xs= +.*has an invalid id[\s\S]* id +\ufffd\\x1b\n/);
    expect(seen).not.toContain('\x1b');
    expect(await delayq(['show', name, 'base64:AP8='])).toMatchObject({
      code: 3,
      stderr: expect.stringContaining('there is no job "base64:AP8="'),
    });
  });

  it.each([
    ['cancel', 'cancelled in', 'nowhere'],
    ['bury', 'buried in', 'dead'],
    ['reschedule --in 1h', 'rescheduled in', 'pending'],
    ['move --into OTHER', 'moved from', 'OTHER'],
  ])('is reached by a filter, as an argument, and on stdin: %s (failures 40)', async (act, done, where) => {
    for (const which of ['--all --yes QUEUE', `QUEUE ${WORDS.join(' ')} fine`, 'QUEUE -']) {
      const [name, other] = [await withBad(), freshName()];
      const line = `delayq ${act.replace('OTHER', other)} ${which.replace('QUEUE', name)}`;
      const { code, stderr } = await sh(
        which.endsWith('-') ? `delayq list --json ${name} | jq -r .id | ${line}` : line,
      );
      expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining(`4 jobs ${done}`) });
      const all = ranked(['fine', ...latin1]);
      if (where === 'nowhere') expect(await admin.exists(key(name, 'pending'), key(name, 'payload'))).toBe(0);
      else if (where === 'OTHER') expect(ranked(await standing(other, 'pending'))).toEqual(all);
      else expect(ranked(await standing(name, where))).toEqual(all);
    }
  });

  it('stays dead when it is requeued, and the word says why and what to do; the others go (failures 40)', async () => {
    const name = await withBad('dead');
    const filtered = await delayq(['requeue', '--all', '--yes', name]);
    expect(filtered).toMatchObject({
      code: 1,
      stderr: expect.stringMatching(/1 job requeued.*\n.*3 of them stay dead: their ids /),
    });
    const { code, stderr } = await delayq(['requeue', name, WORDS[0] as string]);
    expect({ code, stderr }).toMatchObject({
      code: 1,
      stderr: expect.stringContaining(`${WORDS[0]} stays dead: its id `),
    });
    expect(await standing(name, 'pending')).toEqual(['fine']);
  });

  it('is saved by an export whose line is given another id (failures 40)', async () => {
    const name = await withBad('dead');
    const { code } = await sh(
      `delayq export ${name} | jq -c 'if .idBase64 then .id = "saved:" + .idBase64 | del(.idBase64) else . end' | ` +
        `delayq import ${name}-2 && delayq requeue --all --yes ${name}-2 && delayq drain ${name}-2 | sort`,
    );
    expect(code).toBe(0);
    expect(await delayq(['purge', '--yes', name])).toMatchObject({ code: 0 });
    expect(await admin.exists(key(name, 'dead'), key(name, 'payload'))).toBe(0);
  });

  it('is told by doctor, and set aside by --fix (failures 40)', async () => {
    const name = await withBad();
    const { code, stdout } = await delayq(['doctor', name]);
    expect(code).toBe(2);
    expect(stdout).toMatch(/fail .*3 jobs with an id that is not UTF-8, or contains a NUL byte\n +ids: .*base64:\/xs=/);
    expect((await delayq(['doctor', '--fix', '--yes', name])).stdout).toContain('moved to dead (bad id)');
    expect(ranked(await standing(name, 'dead'))).toEqual(ranked(latin1));
    expect(JSON.parse((await delayq(['show', '--json', name, WORDS[0] as string])).stdout).reason).toBe('bad id');
  });
});

it('an id that only looks like bytes names itself, as long as it has a job (failures 40)', async () => {
  const queue = freshQueue();
  const { name } = queue;
  const bytes = Buffer.from([0xff]);
  await queue.enqueue({ id: 'base64:/w==', payload: 'text', in: '1h' });
  await admin.multi().hset(key(name, 'payload'), bytes, '1').zadd(key(name, 'pending'), 5, bytes).exec();
  const cancel = () => delayq(['cancel', name, 'base64:/w==']);
  expect(await cancel()).toMatchObject({ code: 0 });
  expect(await standing(name, 'pending')).toEqual(['\xff']);
  expect(await cancel()).toMatchObject({ code: 0 });
  expect(await cancel()).toMatchObject({ code: 1, stderr: expect.stringContaining('base64:/w== is not in') });
  // Any id can be written as bytes, also one that a shell or a line would take for something else.
  await admin.multi().hset(key(name, 'payload'), ' -\n', '1').zadd(key(name, 'pending'), 5, ' -\n').exec();
  expect(await delayq(['cancel', name, `base64:${Buffer.from(' -\n').toString('base64')}`])).toMatchObject({ code: 0 });
  expect(await admin.exists(key(name, 'pending'))).toBe(0);
});

it('an id that cannot be a line is named by its bytes, so that what list names is what an act gets (failures 40)', async () => {
  const name = freshName();
  const ids = ['a', ' a', 'a\nb', '\ufeffa'];
  for (const id of ids)
    await admin.multi().hset(key(name, 'payload'), id, '1').zadd(key(name, 'pending'), 5, id).exec();
  const cancel = await sh(`delayq list --json ${name} | jq -r 'select(.id != "a") | .id' | delayq cancel ${name} -`);
  expect(cancel).toMatchObject({ code: 0, stderr: expect.stringContaining('3 jobs cancelled') });
  expect(await standing(name, 'pending')).toEqual(['a']);
});

it('no id at all is a bad one (failures 40)', async () => {
  const name = freshName();
  await admin.multi().hset(key(name, 'payload'), '', '1').zadd(key(name, 'pending'), 5, '').exec();
  expect(await delayq(['drain', name])).toMatchObject({
    code: 1,
    stdout: '',
    stderr: expect.stringContaining('base64:: dead: has an invalid id'),
  });
  expect(await sh(`delayq list --json --dead ${name} | jq -r .id | delayq cancel ${name} -`)).toMatchObject({
    code: 0,
  });
  expect(await admin.exists(key(name, 'dead'), key(name, 'payload'))).toBe(0);
});

it('a line of stdin that is no text names no job', async () => {
  const queue = freshQueue();
  await admin
    .multi()
    .hset(key(queue.name, 'payload'), '(line 1)', '1')
    .zadd(key(queue.name, 'pending'), 5, '(line 1)')
    .exec();
  const { code, stderr } = await delayq(['cancel', queue.name, '-'], { input: Buffer.from([0xff, 10]) });
  expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringMatching(/line 1: .*not valid UTF-8/) });
  expect(await queue.counts()).toMatchObject({ pending: 1 });
});
