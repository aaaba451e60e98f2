import { EventEmitter, once } from 'node:events';
import { readdir, readlink, writeFile } from 'node:fs/promises';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { MAX_PAYLOAD, Queue, RawPayload } from '../../../src/index.js';
import { afterwards, during } from '../../support/afterwards.js';
import { begin, binary, delayq, linesOf, onTerminal, sh } from '../../support/cli.js';
import { show, withAll } from '../../support/jobs.js';
import { FaultyProxy } from '../../support/proxy.js';
import { admin, connection, freshName, key, onCluster, redisTargets, timePasses } from '../../support/redis.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

const counts = (name: string) => new Queue(connection, name).counts();
const payloads = async (name: string) => (await admin.hvals(key(name, 'payload'))).sort();

describe('delayq enqueue', () => {
  it('prints the id of the job and nothing else', async () => {
    const name = freshName();
    const { code, stdout, stderr } = await delayq(['enqueue', '--in', '15m', name, '{"orderId":42}']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect(stdout).toMatch(/^[0-9A-Za-z]{13}\n$/);
    expect(await counts(name)).toMatchObject({ pending: 1, due: 0, upcoming: [] });
    expect(await admin.smembers('delayq:queues')).toContain(name);
  });

  it('takes options before and after the arguments, and global ones before the command', async () => {
    const name = freshName();
    expect((await delayq(['enqueue', name, '1', '--in', '1h', '--id', 'a'])).stdout).toBe('a\n');
    expect((await delayq(['--prefix', 'other', 'enqueue', name, '1', '--id', 'a'])).stdout).toBe('a\n');
    expect(await admin.exists(`other:{${name}}:pending`)).toBe(1);
    expect((await delayq(['enqueue', name, '1', '--prefix', 'third'])).code).toBe(0);
    expect(await admin.exists(`third:{${name}}:pending`)).toBe(1);
  });

  it('prints one JSON document when asked', async () => {
    const name = freshName();
    const { stdout } = await delayq(['enqueue', '--json', '--id', 'a', '--at', '@1795266000', name, '1']);
    expect(JSON.parse(stdout)).toEqual({ schema: 1, queue: name, id: 'a', outcome: 'created', due: 1_795_266_000_000 });
  });

  it('says what became of an id that is there already (failures 5)', async () => {
    const name = freshName();
    const again = (...more: string[]) => delayq(['enqueue', '--id', 'a', ...more, name, '2']);
    await delayq(['enqueue', '--id', 'a', name, '1']);
    expect(await again()).toMatchObject({ code: 0, stdout: 'a\n', stderr: expect.stringContaining('kept') });
    expect(await payloads(name)).toEqual(['1']);
    expect(await again('--if-exists', 'replace')).toMatchObject({
      code: 0,
      stdout: 'a\n',
      stderr: expect.stringContaining('replaced'),
    });
    expect(await payloads(name)).toEqual(['2']);
    const queue = new Queue(connection, name);
    await queue.nack((await queue.drain()).jobs, { mode: 'dead' });
    expect(await again()).toMatchObject({ code: 1, stderr: expect.stringContaining('dead') });
  });

  it('stores any text as a JSON string with --text', async () => {
    const name = freshName();
    await delayq(['enqueue', '--text', name, 'a "b"\n$(touch x) %']);
    expect(await payloads(name)).toEqual([JSON.stringify('a "b"\n$(touch x) %')]);
  });

  it('takes attributes with --attr, for one job or for each line; the last of a name counts', async () => {
    const queue = new Queue(connection, freshName());
    const attr = ['--attr', 'tenant=6', '--attr', 'filter=a=b, "c"', '--attr', 'none=', '--attr', 'tenant=7'];
    await delayq(['enqueue', ...attr, '--id', 'a', queue.name, '1']);
    await delayq(['enqueue', ...attr, queue.name, '-'], { input: '2\n3\n' });
    const { jobs } = await queue.drain();
    expect(jobs.map(({ attributes }) => attributes)).toEqual(
      Array(3).fill({ tenant: '7', filter: 'a=b, "c"', none: '' }),
    );
  });

  it('takes a file as one payload', async () => {
    const name = freshName();
    const file = join(temporaryDirectory(), 'order.json');
    await writeFile(file, '{\n  "orderId": 42\n}\n');
    expect((await delayq(['enqueue', name, `@${file}`])).code).toBe(0);
    expect(await payloads(name)).toEqual(['{   "orderId": 42 }']);
    expect(await delayq(['enqueue', name, '@/does/not/exist'])).toMatchObject({
      code: 66,
      stdout: '',
      stderr: expect.stringContaining('/does/not/exist'),
    });
    // No more of one that never ends is read than tells that it is too large.
    expect(await delayq(['enqueue', name, '@/dev/zero'])).toMatchObject({
      code: 65,
      stderr: expect.stringContaining('too large'),
    });
  });

  it('takes a payload of the largest size from a file, whose last line end does not count', async () => {
    const name = freshName();
    const directory = temporaryDirectory();
    const file = (end: string) =>
      join(
        directory,
        end.replaceAll(/./gs, (c) => String(c.charCodeAt(0))),
      );
    for (const end of ['\n', '\r\n', '\nx', '  \n'])
      await writeFile(file(end), `"${'x'.repeat(MAX_PAYLOAD - 2)}"${end}`);
    expect(await delayq(['enqueue', name, `@${file('\n')}`])).toMatchObject({ code: 0, stderr: '' });
    expect(await delayq(['enqueue', name, `@${file('\r\n')}`])).toMatchObject({ code: 0, stderr: '' });
    expect((await payloads(name)).map(({ length }) => length)).toEqual([MAX_PAYLOAD, MAX_PAYLOAD]);
    for (const end of ['\nx', '  \n']) {
      const tooLarge = { code: 65, stderr: expect.stringContaining('it is over 8 MiB') };
      expect(await delayq(['enqueue', name, `@${file(end)}`])).toMatchObject(tooLarge);
    }
  });

  it.each([[], ['--json']])(
    'names the job if its id cannot be printed: a repeat would make a second one',
    async (...how) => {
      const name = freshName();
      const { stdout, stderr } = await sh(`delayq enqueue ${how.join(' ')} ${name} 1 > /dev/full; echo $?`);
      const [id] = await admin.hkeys(key(name, 'payload'));
      expect(stdout).toBe('74\n');
      expect(linesOf(stderr)).toEqual([
        `delayq: job ${id} is enqueued, but the output cannot be written`,
        '  why:  ENOSPC: no space left on device, write',
        expect.stringContaining('do not repeat the command'),
      ]);
    },
  );

  // On a cluster the first call may only be told where to go.
  it.skipIf(onCluster).each([
    ['SIGINT', 'silent', 1],
    ['SIGTERM', 'silent', 1],
    ['SIGHUP', 'deaf', 0],
  ] as const)('at %s without a reply (%s) names the job that may be enqueued', async (signal, kind, pending) => {
    const name = freshName();
    const proxy = await during(FaultyProxy.start(...redisTargets));
    proxy.fault = { word: 'EVAL', kind, times: 1 };
    const signals = new EventEmitter();
    const ended = delayq(['enqueue', name, '1'], { signals, env: { DELAYQ_REDIS_URL: proxy.url } });
    await until(async () => proxy.struck > 0 && (await counts(name)).pending === pending);
    signals.emit(signal);
    const { code, stdout, stderr } = await ended;
    const [, id] = /^delayq: job (\S+) may or may not be enqueued\n/.exec(stderr) ?? [];
    expect({ code, stdout }).toEqual({ code: 130, stdout: '' });
    expect(stderr).toContain('why:  stopped before Redis replied\n');
    expect(stderr).toContain(`next: repeat with the id ${id}:`);
    expect(await admin.hkeys(key(name, 'payload'))).toEqual(pending ? [id] : []);
  });

  it('at a signal before it is connected has enqueued nothing', async () => {
    const server = createServer();
    await once(server.listen(0, '127.0.0.1'), 'listening');
    afterwards(() => server.close());
    const { port } = server.address() as AddressInfo;
    const signals = new EventEmitter();
    const ended = delayq(['enqueue', 'q', '1'], { signals, env: { DELAYQ_REDIS_URL: `redis://127.0.0.1:${port}` } });
    const [socket] = await once(server, 'connection');
    afterwards(() => socket.destroy());
    signals.emit('SIGTERM');
    expect(await ended).toMatchObject({ code: 130, stdout: '', stderr: 'delayq: nothing was enqueued\n' });
  });

  it('takes times as people write them, and says on a terminal on which day the job is due', async () => {
    const enqueue = (at: string) => onTerminal(`delayq enqueue -q --tz Asia/Tokyo --at '${at}' ${freshName()} 1`);
    const [hours, minutes] = new Date(Date.now() + 9 * 3_600_000 - 60_000).toISOString().slice(11, 16).split(':');
    const [aMinuteAgo, tomorrow, inFiveDays] = await Promise.all([
      enqueue(`${hours}:${minutes}`),
      enqueue('tomorrow 9:00'),
      enqueue('now + 5 days'),
    ]);
    // A minute ago may have been yesterday.
    expect(aMinuteAgo).toMatch(new RegExp(`: due (tomorrow|today), [-0-9]+ ${hours}:${minutes}:00 \\+09:00, in 23h 5`));
    expect(tomorrow).toMatch(/: due tomorrow, [-0-9]+ 09:00:00 \+09:00, in \d+[dh]/);
    expect(inFiveDays).toMatch(/: due [A-Z][a-z]+day, [-0-9]+ [0-9:]+ \+09:00, in (5d|4d 23h)$/m);
  });

  it('warns of a time that is past, and makes the job due now', async () => {
    const name = freshName();
    const { code, stderr } = await delayq(['enqueue', '--at', '2020-01-01T00:00:00Z', name, '1']);
    expect({ code, stderr }).toEqual({ code: 0, stderr: expect.stringContaining('due now') });
    expect(await counts(name)).toMatchObject({ due: 1 });
  });

  it('reads local times in the zone of --tz, DELAYQ_TZ or TZ, in this order', async () => {
    const name = freshName();
    const due = async (args: string[], env: Record<string, string>) =>
      JSON.parse((await delayq(['enqueue', '--json', '--at', '2036-07-01 12:00', ...args, name, '1'], { env })).stdout)
        .due;
    const noon = Date.parse('2036-07-01T12:00:00Z');
    expect(await due([], { TZ: 'UTC' })).toBe(noon);
    expect(await due([], { TZ: 'UTC', DELAYQ_TZ: 'Asia/Tokyo' })).toBe(noon - 9 * 3_600_000);
    expect(await due(['--tz', 'America/New_York'], { DELAYQ_TZ: 'Asia/Tokyo' })).toBe(noon + 4 * 3_600_000);
    expect(await due([], { TZ: ':Asia/Tokyo' })).toBe(noon - 9 * 3_600_000);
    expect(await delayq(['enqueue', '--at', '12:00', name, '1'], { env: { TZ: ':bad' } })).toMatchObject({ code: 64 });
    expect(await delayq(['enqueue', '--at', '12:00', name, '1'], { env: { TZ: ':/etc/localtime' } })).toMatchObject({
      code: 0,
    });
    expect(await delayq(['inspect', '--json', name], { env: { TZ: 'bad' } })).toMatchObject({ code: 0 });
  });

  it.each([
    [['enqueue'], 64, 'missing required argument'],
    [['enqueue', 'q', '{a'], 65, 'not JSON'],
    [['enqueue', 'q', ''], 65, 'empty'],
    [['enqueue', 'bad name', '1'], 64, 'cannot name a queue'],
    [['enqueue', '{q}', '1'], 64, 'cannot name a queue'],
    [['enqueue', 'q*', '1'], 64, 'cannot name a queue'],
    [['enqueue', '--id', 'a b', 'q', '1'], 64, "cannot be a job's id"],
    [['enqueue', '--id', '\x1b[2J', 'q', '1'], 64, '\\u001b[2J'],
    [['enqueue', '--id', 'x'.repeat(10_240), 'q', '1'], 64, "cannot be a job's id"],
    [['enqueue', '--prefix', 'a{b}', 'q', '1'], 64, 'cannot name a prefix'],
    [['enqueue', '--prefix', 'a b', 'q', '1'], 64, 'choose another name, for example shop'],
    [['enqueue', '--in', '5', 'minutes', 'q', '1'], 64, 'write 5s, 5m or 5h, as one word'],
    [['enqueue', '--ttl', '1x', 'q', '1'], 64, 'there is no unit x'],
    [['enqueue', '--at', 'next friday 9:00', 'q', '1'], 64, 'the format is not known'],
    [['enqueue', '--in', '5m', '--at', '12:00', 'q', '1'], 64, 'cannot be used with'],
    [['enqueue', '--at', '2026', 'q', '1'], 64, 'bare number'],
    [['enqueue', '--tries', '0', 'q', '1'], 64, 'from 1'],
    [['enqueue', '--deliveries', '0', 'q', '1'], 64, 'from 1'],
    [['enqueue', '--jobs', '--deliveries', '1', 'q', '-'], 64, 'cannot be used with'],
    [['enqueue', '--if-exists', 'append', 'q', '1'], 64, 'choices are keep, replace'],
    [['enqueue', '--attr', 'tenant', 'q', '1'], 64, '"tenant" is not an attribute'],
    [['enqueue', '--attr', 'Tenant=7', 'q', '1'], 64, '"Tenant" cannot name an attribute'],
    [['enqueue', '--attr', '=7', 'q', '1'], 64, '"" cannot name an attribute'],
    [['enqueue', '--attr', 'tenant=\x1b[2J', 'q', '1'], 64, 'attribute tenant has an invalid value'],
    [['enqueue', ...Array.from({ length: 17 }, (_, i) => ['--attr', `n${i}=x`]).flat(), 'q', '1'], 64, 'at most 16'],
    [['enqueue', '--jobs', '--attr', 'a=x', 'q', '-'], 64, 'cannot be used with'],
    [['enqueue', '--jobs', 'q', '1'], 64, 'delayq enqueue --jobs q - < file'],
    [['enqueue', '--atomic', 'q', '1'], 64, 'delayq enqueue --atomic q - < file'],
    [['enqueue', '--jobs', '--in', '1s', 'q', '-'], 64, 'cannot be used with'],
    [['enqueue', '{"a":1}', 'q'], 64, 'delayq enqueue QUEUE \'{"a":1}\''],
    [['enqueue', '--id', 'a', 'q', '-'], 64, '--id is for a single job'],
    [['enqueue', '--id', 'a', '--frist', 'q', '1'], 64, "unknown option '--frist'"],
  ])('%j exits %d', async (args, code, message) => {
    const ended = await delayq(args as string[]);
    expect(ended).toMatchObject({ code, stdout: '', stderr: expect.stringContaining(message as string) });
    expect(ended.stderr).not.toContain('\n    at ');
    expect(ended.stderr).not.toContain('\x1b');
  });
});

describe('delayq enqueue -', () => {
  it('enqueues a payload a line, in order, and prints the ids', async () => {
    const name = freshName();
    const { code, stdout, stderr } = await delayq(['enqueue', name, '-'], { input: '{"n":1}\n{"n":2}\n3' });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    const ids = linesOf(stdout);
    expect(ids).toHaveLength(3);
    expect(await admin.hmget(key(name, 'payload'), ...ids)).toEqual(['{"n":1}', '{"n":2}', '3']);
  });

  it('reports bad lines by number, enqueues the good ones, and exits 1 (failures 3)', async () => {
    const name = freshName();
    const input = Buffer.concat([
      Buffer.from('\ufeff{"bom":1}\r\n'), // 1
      Buffer.from('\n  \r\n'), // 2, 3 blank
      Buffer.from('{broken\n'), // 4
      Buffer.from('{"nul":"\0"}\n'), // 5
      Buffer.from([0x22, 0xff, 0xfe, 0x22, 0x0a]), // 6 no UTF-8
      Buffer.from('{"good":"ü"}\n'), // 7
      Buffer.from(`"${'x'.repeat(20 * 1024 * 1024)}"\n`), // 8 too large
      Buffer.from('"after"\n'), // 9
      Buffer.from('"last, without an end"'), // 10
    ]);
    const { code, stdout, stderr } = await delayq(['enqueue', name, '-'], { input });
    expect(code).toBe(1);
    expect(linesOf(stdout)).toHaveLength(4);
    expect(linesOf(stderr).map((line) => /line (\d+)/.exec(line)?.[1])).toEqual(['4', '5', '6', '8']);
    expect(await payloads(name)).toEqual(['"after"', '"last, without an end"', '{"bom":1}', '{"good":"ü"}']);
  });

  it.each(['{a:1}', '{orderId:42,paid:true}', "{'a':1}", '[a,b]'])(
    'of %s on the command line says that the shell took its quotes',
    async (payload) => {
      for (const args of [
        ['enqueue', 'q', payload],
        ['every', '--id', 'x', '1h', 'q', payload],
      ]) {
        const { code, stderr } = await delayq(args);
        expect({ code, stderr }).toEqual({
          code: 65,
          stderr: expect.stringMatching(/shell.*\n.*next: .* '\{"a":1\}'\n$/),
        });
      }
      const typed = await delayq(['enqueue', freshName(), '-'], { input: payload });
      expect(typed).toMatchObject({ code: 1, stderr: expect.not.stringContaining('shell') });
    },
  );

  it('with --ttl 0s makes a job that does not expire, whatever the ttl of the queue', async () => {
    const name = freshName();
    await delayq(['config', '--create', name, 'ttl=1s']);
    const line = '{"payload":2,"id":"b","ttl":"0s"}';
    for (const [args, input] of [
      [['--ttl', '0s', '--id', 'a', name, '1'], ''],
      [['--jobs', name, '-'], line],
      [['--id', 'c', name, '3'], ''],
    ] as const)
      expect(await delayq(['enqueue', '-q', ...args], { input })).toMatchObject({ code: 0, stderr: '' });
    await timePasses(name, 60_000);
    expect((await delayq(['show', name, 'a'])).stdout).toMatch(/ttl +none\n/);
    expect(await delayq(['drain', '-q', name])).toMatchObject({ code: 0, stdout: '1\n2\n' });
    expect(await delayq(['config', name, 'ttl=0s'])).toMatchObject({
      stdout: expect.stringMatching(/ttl +- +none/),
    });
  });

  it('says that stdin had no line, and exits 3 if asked to', async () => {
    const name = freshName();
    const none = 'delayq: stdin had no line: nothing was enqueued\n';
    for (const more of [[], ['--atomic'], ['--jobs']]) {
      const args = ['enqueue', ...more, name, '-'];
      expect(await delayq(args, { input: '' })).toMatchObject({ code: 0, stdout: '', stderr: none });
      expect(await delayq([...args, '--fail-if-empty'], { input: '' })).toMatchObject({ code: 3, stderr: none });
    }
    expect(await delayq(['enqueue', '-q', name, '-'], { input: '' })).toMatchObject({ code: 0, stderr: '' });
    expect((await delayq(['enqueue', '--fail-if-empty', name, '-'], { input: 'x\n' })).code).toBe(1);
    expect(await delayq(['enqueue', '--fail-if-empty', name, '-'], { input: '1\n' })).toMatchObject({
      code: 0,
      stderr: '',
    });
    const refused = await delayq(['enqueue', '--fail-if-empty', name, '1']);
    expect(refused).toMatchObject({
      code: 64,
      stderr: expect.stringContaining('--fail-if-empty needs lines on stdin'),
    });
    expect(await counts(name)).toMatchObject({ pending: 1 });
  });

  it('with --atomic enqueues none if one line is bad', async () => {
    const name = freshName();
    const bad = await delayq(['enqueue', '--atomic', name, '-'], { input: '1\n2\n{3\n' });
    expect(bad).toMatchObject({ code: 65, stdout: '', stderr: expect.stringContaining('line 3') });
    expect((await counts(name)).pending).toBe(0);
    const good = await delayq(['enqueue', '--atomic', name, '-'], { input: '1\n2\n3\n' });
    expect(good).toMatchObject({ code: 0, stderr: '' });
    expect((await counts(name)).pending).toBe(3);
  });

  it('with --jobs takes time, id, limits and attributes from each line, and payloads byte for byte', async () => {
    const name = freshName();
    const lines = [
      '{"payload": {"big":12345678901234567890, "a":1,"a":2} ,"in":"1h","id":"a"}',
      '{"id":"b","at":"@1795266000","tries":2,"deliveries":3,"ttl":"1m","attributes":{"tenant":"7"},"payload":"payload\\/\\"}"}',
      '{"payload":[{"payload":1}],"payload":[ 2 ]}',
    ];
    const { code, stdout } = await delayq(['enqueue', '--jobs', name, '-'], { input: lines.join('\n') });
    expect(code).toBe(0);
    const ids = linesOf(stdout);
    expect(ids.slice(0, 2)).toEqual(['a', 'b']);
    expect(await admin.hmget(key(name, 'payload'), ...ids)).toEqual([
      '{"big":12345678901234567890, "a":1,"a":2}',
      '"payload\\/\\"}"',
      '[ 2 ]',
    ]);
    expect(await admin.zscore(key(name, 'pending'), 'b')).toBe('1795266000000');
    expect(JSON.parse((await admin.hget(key(name, 'meta'), 'b')) ?? '')).toEqual({
      ...{ tries: 2, deliveries: 3, ttl: 60_000, 'a:tenant': '7' },
    });
  });

  it('stores a limit of deliveries, of one job and of each line', async () => {
    const name = freshName();
    await delayq(['enqueue', '--deliveries', '1', name, '1']);
    await delayq(['enqueue', '--deliveries', '1', name, '-'], { input: '2\n3\n' });
    expect(await admin.hvals(key(name, 'meta'))).toEqual(Array(3).fill('{"deliveries":1}'));
  });

  it('refuses a directory, exit 66', async () => {
    expect(await sh('delayq enqueue q - < /')).toMatchObject({
      code: 66,
      stdout: '',
      stderr: expect.stringContaining('directory'),
    });
  });

  it('without a directory for the lines of --atomic says so, exit 78', async () => {
    const name = freshName();
    const ended = await binary(['enqueue', '--atomic', name, '-'], { input: '1\n', env: { TMPDIR: '/nowhere' } });
    expect(ended).toMatchObject({ code: 78, stdout: '' });
    expect(ended.stderr).toMatch(/^delayq: cannot keep the lines.*\n {2}why: +ENOENT.*\n {2}next: set TMPDIR.*\n$/);
    expect((await counts(name)).pending).toBe(0);
  });

  it.each([['SIGINT'], ['SIGTERM'], ['SIGHUP'], ['SIGTERM', '--json']] as const)(
    'at %s while --atomic still reads has enqueued nothing and leaves nothing behind',
    async (signal, ...more) => {
      const name = freshName();
      const TMPDIR = temporaryDirectory();
      const running = begin(['enqueue', '--atomic', ...more, name, '-'], { env: { TMPDIR } });
      running.child.stdin?.write('1\n2\n');
      // The temporary file has no name, but a descriptor.
      const descriptors = `/proc/${running.child.pid}/fd`;
      await until(async () => {
        const paths = (await readdir(descriptors)).map((fd) => readlink(join(descriptors, fd)).catch(() => ''));
        return (await Promise.all(paths)).some((path) => path.startsWith(TMPDIR));
      });
      running.child.kill(signal);
      expect(await running.ended).toMatchObject({ code: 130, stdout: '', stderr: 'delayq: nothing was enqueued\n' });
      expect(await readdir(TMPDIR)).toEqual([]);
      expect((await counts(name)).pending).toBe(0);
    },
  );

  it('stopped after --atomic has read everything says up to which line it came', async () => {
    const name = freshName();
    const signals = new EventEmitter();
    const input = Array.from({ length: 100_000 }, (_, i) => `${i}\n`).join('');
    const ended = delayq(['enqueue', '--atomic', name, '-'], { input, signals });
    await until(async () => (await counts(name)).pending > 0);
    signals.emit('SIGTERM');
    const { code, stderr } = await ended;
    const { pending } = await counts(name);
    expect({ code, stderr }).toEqual({ code: 130, stderr: `delayq: lines after ${pending}: not enqueued\n` });
    expect(pending).toBeLessThan(100_000);
  });

  it('with --jobs takes payloads up to the limit', async () => {
    const name = freshName();
    const payload = `"${'x'.repeat(MAX_PAYLOAD - 2)}"`;
    const { code, stderr } = await delayq(['enqueue', '--jobs', name, '-'], {
      input: `{"in":"1h","payload":${payload}}`,
    });
    expect({ code, stderr }).toEqual({ code: 0, stderr: '' });
    expect((await payloads(name))[0]?.length).toBe(MAX_PAYLOAD);
  });

  it('with --jobs refuses lines that say what it does not know', async () => {
    const name = freshName();
    const lines = [
      '{"payload":1,"inn":"1h"}',
      '{"in":"1h"}',
      '[]',
      '{"payload":1,"in":5}',
      '{"payload":1,"in":"1s","at":"12:00"}',
      '{"payload":1,"id":"a b"}',
      '{"payload":1,"tries":1.5}',
      '{"payload":1,"tries":"2"}',
      '{"payload":1,"deliveries":0}',
      '{"payload":1,"deliveries":"1"}',
      '{"payload":1,"attributes":["a"]}',
      '{"payload":1,"attributes":{"A":"x"}}',
      '{"payload":1,"attributes":{"a":null}}',
      'null',
    ];
    const { code, stderr } = await delayq(['enqueue', '--jobs', name, '-'], { input: lines.join('\n') });
    expect(code).toBe(1);
    expect(linesOf(stderr)).toHaveLength(lines.length);
    expect((await counts(name)).pending).toBe(0);
  });

  it.each([
    ['sed \'s/"orderId":null/"orderId":7/\'', 'show --json QUEUE a'],
    ["jq -c '.payload.orderId = 7'", 'show --json QUEUE a'],
    ["jq -c '.payload.orderId = 7'", 'list --json --dead QUEUE'],
  ])('with --jobs takes back what show and list print, edited by %s: delayq %s', async (editor, line) => {
    if (editor.startsWith('jq') && (await sh('jq --version')).code !== 0) return;
    const queue = new Queue(connection, freshName());
    const own = { tries: 1, maxLost: 3, deliveries: 9, onceFor: '2d', created: 1_795_000_000_000 };
    await queue.enqueue({ payload: { orderId: null }, id: 'a', ttl: '1h', attributes: { tenant: '7' }, ...own });
    await queue.nack((await queue.drain()).jobs, { error: 'no such order: null' });
    const before = await show(queue, 'a');
    expect(before?.state).toBe('dead');
    const pipe = `delayq ${line} | ${editor} | delayq enqueue --jobs --if-exists replace QUEUE -`;
    const { code, stdout, stderr } = await sh(pipe.replaceAll('QUEUE', queue.name));
    expect({ code, stdout, stderr }).toEqual({ code: 0, stdout: 'a\n', stderr: '' });
    const { tries, maxLost, deliveries, ttl, onceFor, created, attributes } = before ?? {};
    const limits = { tries, maxLost, deliveries, ttl, onceFor, created, attributes };
    const anew = { state: 'pending', failures: 0, losses: 0, error: undefined, reason: undefined };
    expect(await show(queue, 'a')).toMatchObject({ ...limits, ...anew });
    expect((await delayq(['drain', queue.name])).stdout).toBe('{"orderId":7}\n');
  });

  it('with --jobs keeps the due time of a shown job that is not dead, unless another is added, and bytes', async () => {
    const queue = await withAll();
    await queue.enqueue({ payload: new RawPayload(Buffer.from([0, 255])), id: 'raw', in: '1h' });
    const before = await Promise.all(['a', 'b', 'raw'].map((id) => show(queue, id)));
    const { stdout } = await delayq(['list', '--json', queue.name]);
    const lines = linesOf(stdout).map((line) => (/"id":"c"/.test(line) ? line.replace('{', '{"in":"5h",') : line));
    const again = await delayq(['enqueue', '--jobs', '--if-exists', 'replace', queue.name, '-'], {
      input: lines.join('\n'),
    });
    expect(again).toMatchObject({ code: 0, stderr: '' });
    for (const job of before)
      expect(await show(queue, job?.id ?? '')).toMatchObject({
        due: job?.due,
        payload: job?.payload,
        state: 'pending',
      });
    expect(((await show(queue, 'c'))?.due ?? 0) - (await connection.now())).toBeGreaterThan(4 * 3_600_000);
    expect(await queue.counts()).toMatchObject({ pending: lines.length, active: 0, dead: 0 });
  });

  it('with --jobs refuses a shown job whose id is not a line, a shown recurring job, and keys that it does not have', async () => {
    const name = freshName();
    const input =
      '{"state":"dead","id":"base64:/w==","idBase64":"/w==","payload":1}\n' +
      '{"state":"dead","id":"base64:YQpi","idBase64":"YQpi","payload":1}\n' +
      '{"state":"dead","tires":3,"payload":1}\n';
    await delayq(['every', '--id', 'tick', '1h', name, '1']);
    const { stdout: tick } = await delayq(['show', '--json', name, 'tick']);
    const { code, stderr } = await delayq(['enqueue', '--jobs', name, '-'], { input: `${input}${tick}` });
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      expect.stringContaining('its id is not text on one line; give it another id, and remove the key idBase64'),
      expect.stringContaining('its id is not text on one line; change it with delayq edit'),
      expect.stringContaining('it has the unknown key "tires"'),
      expect.stringContaining('it is a recurring job, which makes jobs; change it with delayq every and its --id'),
    ]);
    expect((await counts(name)).pending).toBe(0);
  });

  it('with --json prints one document of counts', async () => {
    const name = freshName();
    const { stdout } = await delayq(['enqueue', '--json', name, '-'], { input: '1\n{\n2\n' });
    expect(JSON.parse(stdout)).toEqual({
      schema: 1,
      queue: name,
      created: 2,
      replaced: 0,
      kept: 0,
      keptDead: 0,
      keptDone: 0,
      refused: 1,
      unconfirmed: 0,
      unknown: 0,
    });
  });

  it('goes on when the reader of the ids goes away', async () => {
    const name = freshName();
    const input = Array.from({ length: 20_000 }, (_, i) => `${i}\n`).join('');
    const running = begin(['enqueue', name, '-']);
    running.child.stdout?.destroy();
    running.child.stdin?.end(input);
    expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
    expect((await counts(name)).pending).toBe(20_000);
  });

  it.each([[], ['--json']])('says which lines are enqueued if the output cannot be written', async (...how) => {
    const name = freshName();
    const line = `seq 3000 | delayq enqueue ${how.join(' ')} ${name} - > /dev/full; echo $?`;
    const { stdout, stderr } = await sh(line);
    expect(stdout).toBe('74\n');
    expect(linesOf(stderr)).toEqual([
      'delayq: 3,000 jobs enqueued, up to line 3000, but the output cannot be written',
      '  why:  ENOSPC: no space left on device, write',
      expect.stringMatching(/enqueue only .* not enqueued/),
    ]);
    expect((await counts(name)).pending).toBe(3_000);
  });

  it('says which lines are not enqueued if the output could not be written before they came', async () => {
    const name = freshName();
    const line = `(seq 3000; while sleep 0.1; do echo 1 || break; done) | delayq enqueue ${name} - > /dev/full; echo $?`;
    const { stdout, stderr } = await sh(line);
    const { pending } = await counts(name);
    expect(stdout).toBe('74\n');
    expect(linesOf(stderr)).toEqual([
      `delayq: lines after ${pending}: not enqueued`,
      expect.stringMatching(/^delayq: [\d,]+ jobs enqueued, up to line \d+, but the output/),
      expect.stringContaining('ENOSPC'),
      expect.stringContaining('enqueue only'),
    ]);
    expect(stderr).toContain(`up to line ${pending},`);
  });

  it('sends lines as they trickle in, and prints their ids', async () => {
    const name = freshName();
    const running = begin(['enqueue', name, '-']);
    for (const n of [1, 2, 3]) {
      running.child.stdin?.write(`${n}\n`);
      await until(async () => (await counts(name)).pending === n && linesOf(running.stdout).length === n);
    }
    running.child.stdin?.end();
    expect(await running.ended).toMatchObject({ code: 0, stderr: '' });
  });

  it('at SIGINT stops, and says up to which line it came', async () => {
    const name = freshName();
    const running = begin(['enqueue', name, '-']);
    running.child.stdin?.write(Array.from({ length: 1_200 }, (_, i) => `${i}\n`).join(''));
    await until(async () => (await counts(name)).pending === 1_200);
    running.child.kill('SIGINT');
    expect(await running.ended).toMatchObject({
      code: 130,
      stderr: expect.stringContaining('lines after 1200: not enqueued'),
    });
    expect((await counts(name)).pending).toBe(1_200);
  });
});
