import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { tablesOf } from '../../scripts/docs/text.js';
import { Operator } from '../../src/index.js';
import { during } from '../support/afterwards.js';
import { begin, delayq, linesOf } from '../support/cli.js';
import { Cluster } from '../support/cluster.js';
import { admin, connection, freshName } from '../support/redis.js';
import { until } from '../support/until.js';

const tables = tablesOf(readFileSync(new URL('../../docs/reference/json.md', import.meta.url), 'utf8'));

/** Fields as json.md lists them in the tables below a heading (one of them, if `which` says so), for a command if it names some. */
function documented(heading: string, { which, command }: { which?: number; command?: string } = {}): string[] {
  const found = tables.filter((table) => table.heading === heading);
  const chosen = which === undefined ? found : [found[which]];
  const rows = chosen.flatMap((table) => table?.rows ?? []);
  const names = rows
    .filter(([, second = '']) => !command || second === 'all' || second.split(', ').includes(command))
    .map(([field = '']) => field.replaceAll('`', ''));
  expect(names.length, `${heading} is documented`).toBeGreaterThan(1);
  return [...new Set(names)];
}

/** The fields of a document, as json.md writes them: what it documents as a whole is not looked into. */
function fieldsOf(value: unknown, known: readonly string[], path = ''): string[] {
  const at = (name: string) => (path === '' ? name : `${path}.${name}`);
  if (Array.isArray(value)) return value.flatMap((one) => fieldsOf(one, known, `${path}[]`));
  const isWhole = path !== '' && !known.some((name) => name.startsWith(`${path}.`));
  if (typeof value !== 'object' || value === null || isWhole) return [path];
  const own = known.includes(path) ? [path] : [];
  if (known.includes(at('*'))) return [...own, ...Object.keys(value).map(() => at('*'))];
  return [...own, ...Object.entries(value).flatMap(([name, one]) => fieldsOf(one, known, at(name)))];
}

/** What json.md leaves out of documents, and what it promises that none of them has. */
function differences(documents: readonly unknown[], known: readonly string[], elsewhere: readonly string[] = []) {
  const found = new Set(documents.flatMap((one) => fieldsOf(one, known)));
  return {
    undocumented: [...found].filter((field) => !known.includes(field)),
    missing: known.filter((field) => !found.has(field) && !elsewhere.includes(field)),
  };
}

const NONE = { undocumented: [], missing: [] };

/** A queue of its own in a namespace of its own, and delayq in that namespace, whose stdout is lines of JSON. */
function place() {
  const prefix = freshName();
  const key = (name: string, queue = 'q') => `${prefix}:{${queue}}:${name}`;
  const json = async (args: string, input = ''): Promise<Record<string, unknown>[]> => {
    const { stdout, stderr } = await delayq(args.split(' '), { input, env: { DELAYQ_PREFIX: prefix } });
    const lines = linesOf(stdout);
    expect(lines.length, `${args}: ${stderr}`).toBeGreaterThan(0);
    return lines.map((line) => JSON.parse(line));
  };
  const run = (args: string, input = '') => delayq(args.split(' '), { input, env: { DELAYQ_PREFIX: prefix } });
  return { prefix, key, json, run };
}

describe('json.md has the fields that are printed by', () => {
  it('enqueue', async () => {
    const { json } = place();
    // A server with replicas, or of Redis 7.2, could tell these.
    const confirmed = ['confirmed.disk', 'confirmed.replicas'];
    const one = await json('enqueue --json q 1');
    expect(differences(one, documented('enqueue --json', { which: 0 }), confirmed)).toEqual(NONE);
    const many = await json('enqueue --json q -', '1\n2\nx\n');
    expect(differences(many, documented('enqueue --json', { which: 1 }), confirmed)).toEqual(NONE);
  });

  it('every', async () => {
    const { json, run } = place();
    const job = 'every 15m --once-for 1d --attr a=x --json q {"a":1}';
    const put = [...(await json(`${job} --id a`)), ...(await json(`${job} --id a --tries 2`))];
    const known = documented('every --json', { which: 0 });
    expect(differences(put, known)).toEqual(NONE);
    await run('every 15m --id b q 1');
    const [list] = await json('every --list --json q');
    const own = ['schema', 'outcome', 'changes[]', 'upcoming[]'];
    expect(Object.keys(list ?? {})).toEqual(['schema', 'jobs']);
    expect(differences(list?.jobs as unknown[], known, own)).toEqual(NONE);
    expect(differences(await json('show --json q a'), known, own)).toEqual(NONE);
    const acts = ['--pause', '--resume', '--remove'].map((act) => json(`every ${act} --json q a none`));
    expect(differences((await Promise.all(acts)).flat(), documented('every --json', { which: 1 }))).toEqual(NONE);
  });

  it('drain and ack', async () => {
    const { json, run } = place();
    const jobs = [
      '{"payload":{"a":1},"in":"0s","tries":3,"deliveries":4,"ttl":"1h"}',
      '{"payload":2,"at":"@1795266000","id":"a","onceFor":"1d","attributes":{"a":"x"}}',
    ];
    expect(
      differences(
        jobs.map((job) => JSON.parse(job)),
        documented('enqueue --jobs'),
      ),
    ).toEqual(NONE);
    expect((await run('enqueue --jobs q -', jobs.join('\n'))).code).toBe(0);
    const lines = await json('drain --lease 1m -n 1 q');
    expect(differences(lines, documented('drain'), ['payloadBase64'])).toEqual(NONE);
    const named = documented('ack, nack, renew', { which: 0 });
    const line = JSON.stringify(Object.fromEntries(named.map((name) => [name, lines[0]?.[name]])));
    for (const command of ['renew', 'nack', 'ack']) {
      const settled = await json(`${command} --json`, line);
      expect(differences(settled, documented('ack, nack, renew', { which: 1 }))).toEqual(NONE);
    }
  });

  it('list and show', async () => {
    const { json, run, key } = place();
    await run('config --create q events=100');
    await run('enqueue --id p --attr a=x q 1');
    await admin.hset(key('payload'), Buffer.from([0xff]), '2', 'm', 'no json');
    await admin.zadd(key('pending'), 1, Buffer.from([0xff]));
    await admin.zadd(key('active'), 'inf', 'm');
    await admin.hset(key('lease'), 'm', 'receipt 1 1795266000000 move:other p token');
    await run('enqueue --id f q 1');
    await admin.hset(key('meta'), 'f', '{"failures":1,"failed":1795266000000}');
    const listed = [...(await json('list --json q')), ...(await json('list --json --failed q'))];
    expect(differences(listed, documented('list', { which: 0 }))).toEqual(NONE);
    const moving = [
      ...listed,
      ...(await json('show --json q m')),
      ...(await json('show --json q base64:/w==')),
      ...(await json('show --json q p')),
    ];
    expect(differences(moving, [...documented('list', { which: 0 }), ...documented('show')])).toEqual(NONE);
  });

  it('list --done, events and result', async () => {
    const { json, run } = place();
    await run('config --create q events=100 keep-done=1h partitions=2 tries=1');
    await run('enqueue --id a q 1');
    await run('enqueue --id b q 2');
    await run('drain q -- false');
    await run('enqueue --id c q 3');
    await run('drain q -- echo said');
    const done = [...(await json('list --done --json q')), ...(await json('show --json q c'))];
    const ofShow = documented('show').filter((name) => name !== 'made');
    const known = [...documented('list', { which: 1 }), ...ofShow];
    expect(differences(done, known, ['idBase64'])).toEqual(NONE);
    expect(differences(await json('events q'), documented('events'))).toEqual(NONE);
    const results = [...(await json('result --json q c')), ...(await json('result --json q b'))];
    expect(differences(results, documented('result --json'))).toEqual(NONE);
  });

  it('inspect', async () => {
    const { prefix, json, run, key } = place();
    await run('enqueue --jobs q -', '{"payload":1}\n{"payload":2,"in":"1h"}\n');
    await run('drain --lease 1m q');
    await run('config q tries=3 rate=1/s max-active=2');
    await run('every 1h --id r q 1');
    const failures = { done: 0, n: 1, since: Date.now(), at: Date.now(), error: 'e', by: 'host:1', kinds: { e: 1 } };
    await admin.hset(key('stats'), 'failures', JSON.stringify(failures), 'took:5', 1);
    await run('pause --for 1h q');
    // A sample of a minute ago, from which to tell a trend.
    await admin.hset(key('stats'), 'at:15', `${Date.now() - 60_000} 0 0 0 0 0 0 - 0`);
    await admin.set(key('pending', 'broken'), 'no sorted set');
    await admin.sadd(`${prefix}:queues`, 'broken');
    for await (const _ of new Operator(connection, { prefix }).partition('parted', 3));
    const tag = String(await admin.hget(key('config', 'parted'), 'partitions')).split(' ')[1] as string;
    await admin.set(key('pending', tag), 'no sorted set');
    const watching = begin(['inspect', '--json', '--watch', 'q'], { input: '', env: { DELAYQ_PREFIX: prefix } });
    await until(() => linesOf(watching.stdout).length > 1);
    watching.child.kill('SIGTERM');
    const looks = linesOf((await watching.ended).stdout).map((line) => JSON.parse(line));
    const parted = await json('inspect --json --partitions parted');
    expect(differences([...(await json('inspect --json')), ...parted, ...looks], documented('inspect'))).toEqual(NONE);
  });

  it.each([
    ['cancel', 'cancel --json q a'],
    ['requeue', 'requeue --json q a'],
    ['reschedule', 'reschedule --json --in 1h q a'],
    ['bury', 'bury --json q a'],
    ['move', 'move --json --into other q a'],
  ])('%s', async (command, line) => {
    const { json, run } = place();
    await run('enqueue --id a q 1');
    const dry = documented('Acting on jobs', { which: 1 });
    expect(differences(await json(`${line} --dry-run`), dry, ['samples[]'])).toEqual(NONE);
    const all = line.replace(/ a$/, ' --all --dry-run');
    if (command !== 'requeue') expect(differences(await json(all), dry)).toEqual(NONE);
    expect(differences(await json(line), documented('Acting on jobs', { which: 0, command }))).toEqual(NONE);
  });

  it('purge, pause, resume, wait and config', async () => {
    const { json, run, key } = place();
    await run('enqueue --id a q 1');
    const paused = [...(await json('pause --json q')), ...(await json('resume --json q'))];
    expect(differences(paused, documented('pause, resume'))).toEqual(NONE);
    expect(differences(await json('wait --timeout 0s --json q'), documented('wait --json'))).toEqual(NONE);
    await admin.hset(key('config', 'growing'), 'lease', '-5', 'layout', '1 0/2 from 1', 'partitions', 'growing/1.0');
    const configs = [...(await json('config --json q tries=3 rate=1/s')), ...(await json('config --json growing'))];
    expect(differences(configs, documented('config --json'))).toEqual(NONE);
    const purged = [...(await json('purge --dry-run --json q')), ...(await json('purge --yes --json q'))];
    expect(differences(purged, documented('purge --json'))).toEqual(NONE);
  });

  it('doctor', async () => {
    const { json, run, key } = place();
    await run('enqueue --id a q 1');
    await admin.hdel(key('payload'), 'a');
    // Only of several nodes one can differ.
    const cluster = await during(Cluster.start());
    const { stdout } = await delayq(['doctor', '--json'], { env: { DELAYQ_REDIS_URL: cluster.url } });
    const findings = [
      ...(await json('doctor --json q')),
      ...(await json('doctor --fix --yes --json q')),
      JSON.parse(stdout) as object,
    ];
    expect(differences(findings, documented('doctor --json'))).toEqual(NONE);
  });

  it('export and import', async () => {
    const { json, run, key } = place();
    await run('enqueue --id a --tries 3 --ttl 1h --once-for 1d --attr a=x q 1');
    await run('config q tries=4');
    const [odd, binary] = [Buffer.from([0xff]), Buffer.from([0xfe])];
    await admin.hset(key('payload'), odd, binary, 'dead', '1', 'far', '1');
    await admin.zadd(key('pending'), 1_795_266_000_000, odd, 'inf', 'far');
    await admin.zadd(key('dead'), 1_795_266_000_000, 'dead');
    await admin.hset(key('meta'), odd, binary, 'dead', '{"failures":1}');
    const [head, ...jobs] = await json('export --config q');
    expect(differences([head], documented('export', { which: 1 }))).toEqual(NONE);
    expect(differences(jobs, documented('export', { which: 0 }))).toEqual(NONE);
    const { stdout } = await run('export q');
    expect(differences(await json('import --json other', stdout), documented('import --json'))).toEqual(NONE);
    const [dry] = await json('import --dry-run --json third', stdout);
    expect(Object.keys(dry ?? {})).toEqual(['schema', 'queue', 'dryRun', 'jobs', 'recurring', 'refused']);
  });

  it('adopt', async () => {
    const { prefix, json } = place();
    await admin.zadd(`${prefix}-times`, 1_795_266_000, 'a');
    await admin.hset(`${prefix}-bodies`, 'a', '1', 'stray', '2');
    const line = `adopt --json --zset ${prefix}-times --hash ${prefix}-bodies`;
    const adopted = [...(await json(`${line} --dry-run q`)), ...(await json(`${line} q`))];
    expect(differences(adopted, documented('adopt --json'))).toEqual(NONE);
  });
});
