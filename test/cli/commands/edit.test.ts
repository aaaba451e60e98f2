import { existsSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { JsonText, Operator, type Queue, RawPayload } from '../../../src/index.js';
import { beginSh, binary, delayq, linesOf, sh } from '../../support/cli.js';
import { show, withAll } from '../../support/jobs.js';
import { admin, connection, freshName, freshQueue, key, onCluster } from '../../support/redis.js';
import { Server } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { Terminal, tmux } from '../../support/terminal.js';
import { until } from '../../support/until.js';

const directory = temporaryDirectory();

/** Runs `delayq edit` with an editor: a line for sh, after which the path of the file comes. */
const edit = (editor: string, args: string[], env: Record<string, string> = {}) =>
  binary(['edit', ...args], { env: { EDITOR: editor, ...env } });

/** A script that is an editor: it gets the file as $1. Returns its path. */
let scripts = 0;
function script(body: string): string {
  const path = join(directory, `editor-${++scripts}`);
  writeFileSync(path, `#!/bin/sh\n${body}\n`, { mode: 0o755 });
  return path;
}

/** An editor that puts a text into the file. */
function writes(text: string): string {
  const path = join(directory, `text-${++scripts}`);
  writeFileSync(path, text);
  return `cp ${path}`;
}

/** A queue with the dead job d, which has everything that a job can have. */
async function withDead(payload: unknown = JsonText.parse('{"orderId":null}')): Promise<Queue> {
  const queue = freshQueue();
  const own = {
    tries: 1,
    maxLost: 3,
    ttl: '1d',
    onceFor: '2d',
    created: 1_795_000_000_000,
    attributes: { tenant: '7' },
  };
  await queue.enqueue({ payload, id: 'd', ...own });
  await queue.nack((await queue.drain()).jobs, { error: 'no such order: null' });
  return queue;
}

const payloadOf = async (queue: Queue, id: string) => String((await show(queue, id))?.payload);
const keptPath = (stderr: string) => /your text is kept in (\S+);/.exec(stderr)?.[1] ?? '';

describe.concurrent('delayq edit', () => {
  it('gives a dead job another payload, and makes it pending again, with all that it was enqueued with', async () => {
    const queue = await withDead();
    const before = await show(queue, 'd');
    const { code, stdout, stderr } = await edit('sed -i s/null/42/', [queue.name, 'd']);
    expect({ code, stdout }).toEqual({ code: 0, stdout: '' });
    expect(stderr).toBe('delayq: d has its new payload and is pending again, due now\n');
    const { tries, maxLost, ttl, onceFor, created, attributes } = before ?? {};
    const after = await show(queue, 'd');
    expect(after).toMatchObject({ state: 'pending', failures: 0, attempts: 0, error: undefined, reason: undefined });
    expect(after).toMatchObject({ tries, maxLost, ttl, onceFor, created, attributes });
    expect((await delayq(['drain', queue.name])).stdout).toBe('{"orderId":42}\n');
    expect((await queue.counts()).stats).toMatchObject({ requeued: 1, acked: 1 });
  });

  it('leaves a pending job due as it is, with its failures', async () => {
    const queue = freshQueue();
    await queue.enqueue({ payload: { n: 1 }, id: 'a' });
    const { jobs } = await queue.drain();
    await queue.nack(jobs.map((job) => ({ ...job, delayMs: 3_600_000, error: 'exit 1' })));
    await admin.zincrby(key(queue.name, 'pending'), 0.25, 'a');
    const [score, before] = [await admin.zscore(key(queue.name, 'pending'), 'a'), await show(queue, 'a')];
    expect(await edit('sed -i s/1/2/', [queue.name, 'a'])).toMatchObject({
      code: 0,
      stderr: expect.stringMatching(/^delayq: a has its new payload: due [\d-]+ [\d:]+ \+00:00\n$/),
    });
    expect(await admin.zscore(key(queue.name, 'pending'), 'a')).toBe(score);
    expect(await show(queue, 'a')).toEqual({ ...before, payload: Buffer.from('{"n":2}') });
  });

  it('lays JSON out, stores it without whitespace, and keeps numbers, keys, escapes and their order', async () => {
    const json = '{"big":12345678901234567890,"f":1.0,"e":[],"o":{},"t":"a, {b}: \\u00e4\\"","b":[1,{"a":null}]}';
    const queue = await withDead(JsonText.parse(json));
    const copy = join(directory, 'laid-out');
    await edit(script(`cp "$1" ${copy}; sed -i s/null/2/ "$1"`), [queue.name, 'd']);
    expect(linesOf(readFileSync(copy, 'utf8'))).toEqual([
      ...['{', '  "big": 12345678901234567890,', '  "f": 1.0,', '  "e": [],', '  "o": {},'],
      ...['  "t": "a, {b}: \\u00e4\\"",', '  "b": [', '    1,', '    {', '      "a": null', '    }', '  ]', '}'],
    ]);
    expect(await payloadOf(queue, 'd')).toBe(json.replace('null', '2'));
  });

  it('gives the editor a file of its own, as json, that nobody else can read, and removes it', async () => {
    const queue = await withDead();
    const seen = join(directory, 'seen');
    const editor = script(`echo "$1" >> ${seen}; stat -c %a "$1" "$(dirname "$1")" >> ${seen}; touch "$1~"`);
    await edit(editor, [queue.name, 'd']);
    const [path = '', ...modes] = linesOf(readFileSync(seen, 'utf8'));
    expect(path).toMatch(/\/payload\.json$/);
    expect(modes).toEqual(['600', '700']);
    expect(existsSync(dirname(path))).toBe(false);
  });

  it.each([
    ['the file is unchanged', 'true', 'the payload is unchanged'],
    ['only whitespace has changed', "sed -i 's/: /:   /'", 'the payload is unchanged'],
    ['the file is empty', 'truncate -s 0', 'the file is empty'],
    ['the file is gone', 'rm', 'the file is empty'],
    ['the editor fails', 'false', 'the editor failed with exit status 1'],
    ['the editor removes the file and fails', 'rm "$1"; false', 'the editor failed with exit status 1'],
    ['the editor is killed', 'kill -KILL $$ #', 'the editor was ended by SIGKILL'],
  ])('changes nothing if %s, exit 1', async (_, editor, why) => {
    const queue = await withDead();
    const before = await show(queue, 'd');
    const { code, stderr } = await edit(editor, [queue.name, 'd']);
    expect({ code, stderr }).toEqual({ code: 1, stderr: `delayq: ${why}: nothing was changed\n` });
    expect(await show(queue, 'd')).toEqual(before);
  });

  it.each([
    ['fails', 'false', 'the editor failed with exit status 1', 1],
    ['is killed', 'kill -KILL $$ #', 'the editor was ended by SIGKILL', 1],
    ['hangs up delayq', 'kill -HUP $PPID; exec sleep 60 #', 'stopped', 130],
    ['ends delayq', 'kill -TERM $PPID; exec sleep 60 #', 'stopped', 130],
  ])('keeps what the editor has saved before it %s', async (_, end, why, status) => {
    const queue = await withDead();
    const { code, stderr } = await edit(`sed -i s/null/42/ "$1"; ${end}`, [queue.name, 'd']);
    expect(code).toBe(status);
    expect(stderr).toContain(`delayq: ${why}: nothing was changed\n`);
    expect(await show(queue, 'd')).toMatchObject({ state: 'dead' });
    const path = keptPath(stderr);
    const [, again = ''] = /to repeat the edit: (.*)\n/.exec(stderr) ?? [];
    expect(await sh(again)).toMatchObject({ code: 0 });
    expect(await payloadOf(queue, 'd')).toBe('{"orderId":42}');
    await sh(`rm -r ${dirname(path)}`);
  });

  it('keeps a swap file that the editor has left at SIGHUP, and names the directory', async () => {
    const queue = await withDead();
    const editor = script('echo 77 > "$(dirname "$1")/.payload.json.swp"; kill -HUP $PPID; exec sleep 60');
    const { code, stderr } = await edit(editor, [queue.name, 'd']);
    expect(code).toBe(130);
    const kept = keptPath(stderr);
    expect(stderr).toContain(`open ${kept}/payload.json in your editor to recover it; `);
    expect(readFileSync(join(kept, '.payload.json.swp'), 'utf8')).toBe('77\n');
    await sh(`rm -r ${kept}`);
  });

  it('keeps what the editor has saved if a second signal ends delayq before the editor', async () => {
    const queue = await withDead();
    const path = join(directory, 'ignores-term');
    const editor = script(`trap '' TERM; echo 77 > "$1"; echo "$1 $$" > ${path}; while :; do sleep 0.1; done`);
    const running = beginSh(`exec delayq edit ${queue.name} d`, { env: { EDITOR: editor } });
    await until(() => existsSync(path) && readFileSync(path, 'utf8') !== '');
    const [file = '', pid] = readFileSync(path, 'utf8').trim().split(' ');
    const again = setInterval(() => running.child.kill('SIGTERM'), 200);
    await until(() => running.child.exitCode !== null);
    clearInterval(again);
    process.kill(Number(pid), 'SIGKILL');
    await running.ended;
    expect(readFileSync(file, 'utf8')).toBe('77\n');
    await sh(`rm -r ${dirname(file)}`);
  });

  it.each([
    ['{\n  "a": 1,\n  "b": oops\n}\n', 'line 3, column 8'],
    ['{\n  "a": 1,\n}\n', 'line 3, column 1'],
    ['[1, 2', 'line 1, column 6'],
    ['{"a": 1} 2', 'line 1, column 10'],
    ['{"a": "open}\n', 'line 1, column 7'],
    ["{'a': 1}", 'line 1, column 2'],
    ['[1 2]', 'line 1, column 4'],
    ['{"a" 1}', 'line 1, column 6'],
    ['[1}', 'line 1, column 3'],
  ])('says where %j is no JSON, keeps the text and names its file, exit 65', async (text, where) => {
    const queue = await withDead();
    const { code, stderr } = await edit(writes(text), [queue.name, 'd']);
    expect(code).toBe(65);
    expect(stderr).toContain(`delayq: the payload is not JSON\n  why:  it breaks at ${where}\n`);
    const path = keptPath(stderr);
    expect(readFileSync(path, 'utf8')).toBe(text);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(await show(queue, 'd')).toMatchObject({ state: 'dead' });
    // What the advice says, after the text was corrected.
    writeFileSync(path, '{"orderId":42}');
    const [, again = ''] = /repeat: (.*)\n/.exec(stderr) ?? [];
    expect(await sh(again)).toMatchObject({ code: 0 });
    expect(await payloadOf(queue, 'd')).toBe('{"orderId":42}');
    await sh(`rm -r ${dirname(path)}`);
  });

  it.each([
    ['delivered', 'drain --lease 5m QUEUE', 'its handler has the old payload'],
    ['done', 'drain QUEUE', 'it is not in the queue any more'],
    ['cancelled', 'cancel QUEUE p', 'it is not in the queue any more'],
    ['rescheduled', 'reschedule --in 1h QUEUE p', 'it is pending now'],
    ['buried', 'bury QUEUE p', 'it is dead now'],
    ['replaced', 'enqueue --id p --if-exists replace QUEUE 3', 'it is pending now'],
    ['failed', "drain QUEUE -- sh -c 'exit 1'", 'it is pending now'],
  ])('changes nothing if the job is %s meanwhile, and keeps the text, exit 1', async (_, line, why) => {
    const queue = freshQueue();
    await queue.enqueue({ payload: 1, id: 'p' });
    const meanwhile = `delayq ${line.replace('QUEUE', queue.name)} > /dev/null 2>&1`;
    const { code, stderr } = await edit(script(`${meanwhile}; echo 2 > "$1"`), [queue.name, 'p']);
    expect(code).toBe(1);
    expect(stderr).toContain(`delayq: nothing was changed: p has changed in the meantime\n  why:  ${why}`);
    const isGone = why.startsWith('it is not');
    const advice = isGone ? `delayq enqueue ${queue.name} @` : `look at delayq show ${queue.name} p, then repeat`;
    expect(stderr).toContain(advice);
    expect(await payloadOf(queue, 'p')).not.toBe('2');
    const path = keptPath(stderr);
    expect(readFileSync(path, 'utf8')).toBe('2\n');
    await sh(`rm -r ${dirname(path)}`);
  });

  it('refuses an active job, and one that does not exist, before it opens the editor', async () => {
    const queue = await withAll();
    const touched = join(directory, 'touched');
    expect(await edit(`touch ${touched}`, [queue.name, 'a'])).toMatchObject({
      code: 1,
      stderr:
        'delayq: nothing was changed: a is active\n  why:  its handler has the old payload: edit it when it has failed\n',
    });
    const { code, stderr } = await edit(`touch ${touched}`, [queue.name, 'nobody']);
    expect({ code, stderr }).toEqual({ code: 3, stderr: expect.stringContaining('there is no job "nobody"') });
    expect(await edit(`touch ${touched}`, [freshName(), 'a'])).toMatchObject({ code: 3 });
    expect(existsSync(touched)).toBe(false);
  });

  it('names the pipe where there is no editor: none is set and there is no terminal, or it cannot be started', async () => {
    const queue = await withDead();
    const pipe = `delayq show --json ${queue.name} d | jq -c ".payload.x = 1" | delayq enqueue --jobs --if-exists replace ${queue.name} -`;
    const none = await binary(['edit', queue.name, 'd']);
    expect(none).toMatchObject({
      code: 64,
      stderr: expect.stringContaining(`set EDITOR, or edit it in a pipe: ${pipe}\n`),
    });
    const wrong = await edit('no-such-editor --wait', [queue.name, 'd']);
    expect(wrong).toMatchObject({
      code: 78,
      stderr: expect.stringContaining('cannot start the editor no-such-editor --wait'),
    });
    expect(wrong.stderr).toContain(pipe);
  });

  it('chooses VISUAL before EDITOR, but not on a dumb terminal, as git does', async () => {
    const queue = await withDead();
    const args = [queue.name, 'd'];
    const both = { VISUAL: 'sed -i s/null/1/', EDITOR: 'sed -i s/null/2/' };
    await binary(['edit', ...args], { env: { ...both, TERM: 'xterm' } });
    expect(await payloadOf(queue, 'd')).toBe('{"orderId":1}');
    await edit('sed -i s/1/null/', args);
    await binary(['edit', ...args], { env: { ...both, TERM: 'dumb' } });
    expect(await payloadOf(queue, 'd')).toBe('{"orderId":2}');
  });

  it('edits texts byte for byte in a queue of texts, but for the line end that editors add', async () => {
    const queue = freshQueue();
    await delayq(['config', '--create', queue.name, 'text=on']);
    const text = ' one "line"\n\ttwo ä';
    await queue.enqueue({ payload: text, id: 't', in: '1h' });
    const copy = join(directory, 'text');
    const { code } = await edit(script(`cp "$1" ${copy}; sed -i s/two/2/ "$1"; echo >> "$1"`), [queue.name, 't']);
    expect(code).toBe(0);
    expect(readFileSync(copy, 'utf8')).toBe(text);
    expect(readFileSync(copy, 'utf8').endsWith('\n')).toBe(false);
    expect(await payloadOf(queue, 't')).toBe(JSON.stringify(text.replace('two', '2')));
    expect(await edit(script(`echo >> "$1"`), [queue.name, 't'])).toMatchObject({ code: 1 });
    expect(await edit(writes('not { JSON\n\n'), [queue.name, 't'])).toMatchObject({ code: 0 });
    expect(await payloadOf(queue, 't')).toBe('"not { JSON\\n"');
  });

  it('edits what is not JSON as it is', async () => {
    const queue = await withDead(new RawPayload(Buffer.from('{"orderId":42')));
    expect(await edit(script('printf } >> "$1"'), [queue.name, 'd'])).toMatchObject({ code: 0 });
    expect((await delayq(['drain', queue.name])).stdout).toBe('{"orderId":42}\n');
  });

  it('gives a payload to a dead job that has lost its own', async () => {
    const queue = await withDead();
    await admin.hdel(key(queue.name, 'payload'), 'd');
    expect(await edit(writes('{"orderId": 42}\n'), [queue.name, 'd'])).toMatchObject({ code: 0 });
    expect(await show(queue, 'd')).toMatchObject({ state: 'pending', payload: Buffer.from('{"orderId":42}') });
  });

  it.each(['ln -sf /dev/zero "$1"', 'rm "$1"; mkfifo "$1"', 'truncate -s 1G "$1"'])(
    'changes nothing if the editor leaves what may never end: %s',
    async (acts) => {
      const queue = await withDead();
      const { code, stderr } = await edit(script(acts), [queue.name, 'd']);
      expect({ code, stderr }).toMatchObject({
        code: 65,
        stderr: expect.stringMatching(/the edited file is no payload/),
      });
      expect(await queue.counts()).toMatchObject({ dead: 1, pending: 0 });
      rmSync(dirname(keptPath(stderr) || join(directory, 'none', 'x')), { recursive: true, force: true });
    },
  );

  it('edits a payload of 5,000 levels', async () => {
    const queue = await withDead();
    const payload = `${'['.repeat(5_000)}1${']'.repeat(5_000)}`;
    await queue.enqueue({ id: 'deep', payload: JsonText.parse(payload), in: '1h' });
    expect(await edit('sed -i s/1/2/', [queue.name, 'deep'])).toMatchObject({ code: 0 });
  });

  it('edits a payload of 1 MiB', async () => {
    const queue = await withDead({ a: 'x'.repeat(2 ** 20), end: null });
    expect(await edit('sed -i s/null/true/', [queue.name, 'd'])).toMatchObject({ code: 0 });
    expect(await payloadOf(queue, 'd')).toMatch(/x{1048576}","end":true}$/);
  });

  it('edits jobs with any id that handlers can receive, and no other', async () => {
    const queue = freshQueue();
    const ids = ["it's $(id) `x`", '-n', 'a b\\"c', 'ä\u2028', 'base64:!!'];
    for (const id of ids) {
      await admin.hset(key(queue.name, 'payload'), id, '1');
      await admin.zadd(key(queue.name, 'dead'), 5_000_000_000, id);
      expect(await edit('sed -i s/1/2/', ['--', queue.name, id])).toMatchObject({ code: 0 });
      expect(await payloadOf(queue, id)).toBe('2');
    }
    const bad = Buffer.from([0xff, 0x41]);
    await admin.hset(key(queue.name, 'payload'), bad, '1');
    await admin.zadd(key(queue.name, 'dead'), 5_000_000_000, bad);
    const { code, stderr } = await edit('sed -i s/1/2/', [queue.name, `base64:${bad.toString('base64')}`]);
    expect(code).toBe(1);
    expect(stderr).toContain('has an id that no handler can receive\n  why:  it is not UTF-8');
    if ((await sh('jq --version')).code !== 0) return;
    // What the advice says.
    const [, pipe = '', cancel = ''] = /another id: (.*); then: (.*)\n/.exec(stderr) ?? [];
    expect(await sh(pipe)).toMatchObject({ code: 0, stdout: 'NEW\n' });
    expect(await sh(cancel)).toMatchObject({ code: 0 });
    expect(await payloadOf(queue, 'NEW')).toBe('1');
  });

  it('finds its job in each partition, and while the queue grows', async () => {
    const queue = freshQueue();
    const ids = ['a', 'b', 'c', 'd', 'e'];
    await queue.enqueue(ids.map((id) => ({ payload: 1, id, in: '1h' })));
    await new Operator(connection).bury(queue.name, ['a', 'b', 'c', 'd']);
    const grows = script(`delayq config -q ${queue.name} partitions=4 > /dev/null 2>&1; echo 2 > "$1"`);
    expect(await edit(grows, [queue.name, 'a'])).toMatchObject({ code: 0 });
    for (const id of ids.slice(1)) expect(await edit('sed -i s/1/2/', [queue.name, id])).toMatchObject({ code: 0 });
    for (const id of ids) expect(await show(queue, id)).toMatchObject({ state: 'pending', payload: Buffer.from('2') });
    expect(await queue.counts()).toMatchObject({ pending: 5, dead: 0 });
  });

  it.each(['SIGTERM', 'SIGHUP'] as const)('ends the editor at %s, and removes the file, exit 130', async (signal) => {
    const queue = await withDead();
    const path = join(directory, signal);
    const running = beginSh(`exec delayq edit ${queue.name} d`, {
      env: { EDITOR: script(`echo "$1" > ${path}; exec sleep 60`) },
    });
    await until(() => existsSync(path) && readFileSync(path, 'utf8') !== '');
    running.child.kill(signal);
    expect(await running.ended).toMatchObject({ code: 130, stderr: 'delayq: stopped: nothing was changed\n' });
    expect(existsSync(dirname(readFileSync(path, 'utf8').trim()))).toBe(false);
    expect(await show(queue, 'd')).toMatchObject({ state: 'dead' });
  });

  it('leaves Ctrl-C and Ctrl-\\ to the editor', async () => {
    const queue = await withDead();
    const editor = script(`kill -INT $PPID; kill -QUIT $PPID; kill -INT $PPID; sed -i s/null/42/ "$1"`);
    expect(await edit(editor, [queue.name, 'd'])).toMatchObject({ code: 0 });
  });
});

describe('an edit', () => {
  it.skipIf(onCluster)('works on a full Redis, and keeps the text if Redis has gone', async () => {
    const server = await Server.start();
    const env = { DELAYQ_REDIS_URL: server.url };
    for (const id of ['p', 'd']) await delayq(['enqueue', '--id', id, '--in', '1h', 'q', '1'], { env });
    await delayq(['bury', 'q', 'd'], { env });
    await server.admin.config('SET', 'maxmemory', '1');
    expect(await delayq(['enqueue', 'q', '1'], { env })).toMatchObject({ code: 75 });
    for (const id of ['p', 'd']) expect(await edit('sed -i s/1/22/', ['q', id], env)).toMatchObject({ code: 0 });
    expect((await delayq(['list', '--json', '--pending', 'q'], { env })).stdout.match(/"payload":22/g)).toHaveLength(2);
    const gone = await edit(script(`redis-cli -s ${server.socket} shutdown nosave; echo 3 > "$1"`), ['q', 'd'], env);
    expect(gone.code).toBeOneOf([69, 75]);
    const path = keptPath(gone.stderr);
    expect(readFileSync(path, 'utf8')).toBe('3\n');
    await sh(`rm -r ${dirname(path)}`);
    await server.stop();
  });

  it.skipIf(!tmux)('has the terminal, and asks on it whether to edit a bad text again', async () => {
    const queue = await withDead();
    const editor = script('printf "new text: "; read -r text; echo "$text" > "$1"');
    const terminal = new Terminal(`EDITOR=${editor} delayq edit ${queue.name} d`);
    await until(() => terminal.text.includes('new text:'));
    terminal.press('oops', 'Enter');
    await until(() => terminal.text.includes('edit it again? [y/N]'));
    expect(terminal.text).toContain('delayq: the payload is not JSON: it breaks at line 1, column 1\n');
    terminal.press('y', 'Enter');
    await until(() => terminal.text.match(/new text:/g)?.length === 2);
    terminal.press('7', 'Enter');
    await until(() => terminal.text.includes('ended 0'));
    expect(await payloadOf(queue, 'd')).toBe('7');
  });
});

describe('Operator.edit', () => {
  it('gives the job to a function, and stores what it returns, if the job has not changed since', async () => {
    const queue = await withDead({ n: 1 });
    const operator = new Operator(connection);
    const more = operator.edit(queue.name, 'd', async ({ payload }) => {
      expect(await operator.edit(queue.name, 'd', () => undefined)).toBe('unchanged');
      return { n: JSON.parse(String(payload)).n + 1 };
    });
    expect(await more).toBe('requeued');
    expect(await payloadOf(queue, 'd')).toBe('{"n":2}');
    expect(await operator.edit(queue.name, 'd', () => ({ n: 3 }))).toBe('edited');
    const raced = operator.edit(queue.name, 'd', async () => {
      await operator.edit(queue.name, 'd', () => 4);
      return 5;
    });
    expect(await raced).toBe('changed');
    expect(await operator.edit(queue.name, 'nobody', () => 1)).toBe('missing');
    await queue.drain();
    expect(await operator.edit(queue.name, 'd', () => 1)).toBe('active');
  });
});
