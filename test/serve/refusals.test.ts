import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { afterwards, during } from '../support/afterwards.js';
import { ManualClock } from '../support/manual-clock.js';
import { type ServedHere, serveHere } from '../support/serve.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

type Commands = readonly (readonly string[])[];

/** What Redis refuses, by its word. */
interface Trouble {
  readonly word: RegExp;
  readonly begin: (redis: Server) => Promise<unknown>;
  readonly end: (redis: Server) => Promise<unknown>;
  /** What publishes get, and what takes and reads get. */
  readonly status: readonly [publish: number, take: number, read: number];
}

const send = async ({ admin }: Server, commands: Commands) => {
  for (const [command = '', ...args] of commands) await admin.call(command, ...args);
};
const troubles = (word: RegExp, begin: Commands, end: Commands, status: Trouble['status']): Trouble => ({
  word,
  begin: (redis) => send(redis, begin),
  end: (redis) => send(redis, end),
  status,
});
const acl = (...rules: string[]) => ['ACL', 'SETUSER', 'app', ...rules];
const FOLLOW = ['REPLICAOF', '127.0.0.1', '1'];
const LEAD = ['REPLICAOF', 'NO', 'ONE'];
const STALE = ['CONFIG', 'SET', 'replica-serve-stale-data', 'no'];
const CUT = ['CLIENT', 'KILL', 'USER', 'app'];
const [MAY_PASS, MAY_NOT] = [
  [503, 503, 503],
  [500, 500, 500],
] as const;

const TROUBLES: [string, Trouble][] = [
  ['READONLY', troubles(/READONLY/, [FOLLOW], [LEAD], MAY_PASS)],
  ['MASTERDOWN', troubles(/MASTERDOWN/, [STALE, FOLLOW], [LEAD], MAY_PASS)],
  [
    'OOM',
    troubles(/OOM/, [['CONFIG', 'SET', 'maxmemory', '1mb']], [['CONFIG', 'SET', 'maxmemory', '0']], [503, 200, 200]),
  ],
  [
    'MISCONF',
    {
      word: /MISCONF/,
      begin: async (redis) => {
        // A directory in the place of the file.
        await mkdir(join(redis.directory, 'dump.rdb', 'x'), { recursive: true });
        await send(redis, [['CONFIG', 'SET', 'save', '3600 1'], ['BGSAVE']]);
        await until(async () => (await redis.admin.info('persistence')).includes('rdb_last_bgsave_status:err'));
      },
      end: (redis) => send(redis, [['CONFIG', 'SET', 'stop-writes-on-bgsave-error', 'no']]),
      status: MAY_PASS,
    },
  ],
  [
    'BUSY',
    {
      word: /BUSY/,
      begin: async (redis) => {
        const busy = redis.admin.duplicate();
        afterwards(() => busy.disconnect());
        busy.eval('while true do end', 0).catch(() => {});
        const isBusy = (error: unknown) => String(error).includes('BUSY');
        await until(() => redis.admin.ping().then(() => false, isBusy));
      },
      end: (redis) => redis.admin.script('KILL'),
      status: MAY_PASS,
    },
  ],
  ['WRONGPASS', troubles(/WRONGPASS/, [acl('resetpass', '>other'), CUT], [acl('>secret')], MAY_NOT)],
  ['NOPERM of the keys', troubles(/NOPERM/, [acl('resetkeys', '~delayq:http:*')], [acl('allkeys')], MAY_NOT)],
  ['NOPERM of scripts', troubles(/NOPERM/, [acl('-evalsha', '-eval')], [acl('+@all')], MAY_NOT)],
];

const PATH = '/api/ns/q';

/** A server that is a user of its own Redis. What it says rarely, it says once. */
async function serving(): Promise<{ redis: Server; served: ServedHere }> {
  const redis = await during(Server.start({ args: ['--lua-time-limit', '50'] }));
  await redis.admin.call('ACL', 'SETUSER', 'app', 'on', '>secret', 'allkeys', 'allchannels', '+@all');
  const url = redis.url.replace('://', '://app:secret@');
  const served = await during(serveHere(url, { logLevel: 'errors', clock: new ManualClock() }));
  return { redis, served };
}

describe.concurrent('a Redis that refuses calls', () => {
  it.each(TROUBLES)(
    '%s: 503 for what may pass, 500 for what may not, the cause in the log and not in the answer; all goes on afterwards',
    async (_, { word, begin, end, status: [publish, take, read] }) => {
      const { redis, served } = await serving();
      const { call } = served;
      await call('PUT', `${PATH}/bulk`, { body: '[1,2,3,4,5,6,7,8,9]' });
      const [held, other] = (await call('GET', `${PATH}?count=2&receipts=1`)).json as Record<string, string>[];
      const init = { headers: { 'X-Receipt': held?.receipt as string } };
      await begin(redis);
      const refusals = [
        { status: 503, json: { error: 'redis is not available' } },
        { status: 500, json: { error: 'internal error' } },
      ];
      const expectRefusal = (answer: { status: number }, status: number) =>
        status < 500
          ? expect(answer.status).toBeLessThan(300)
          : expect(answer).toMatchObject(refusals.find((one) => one.status === status) as object);
      for (const path of ['', '?id=own', '/bulk', '/job/none'])
        expectRefusal(await call('PUT', PATH + path, { body: '[1]' }), publish);
      // A wait that ends meanwhile must not read as an empty queue.
      for (const path of ['', '?timeout=1', ',other?timeout=300ms&count=2'])
        expectRefusal(await call('GET', PATH + path), take);
      expectRefusal(await call('POST', `${PATH}/job/${held?.job_id}/renew`, init), take);
      expectRefusal(await call('POST', `${PATH}/job/${held?.job_id}/nack`, init), take);
      expectRefusal(await call('DELETE', `${PATH}/job/${other?.job_id}`), take);
      for (const path of ['/size', '/peek', '/deadletter', '/deadletter/size'])
        expectRefusal(await call('GET', PATH + path), read);
      for (const url of [served.api, served.admin]) expect((await call('GET', `${url}/healthz`)).status).toBe(200);
      await Promise.all(Array.from({ length: 20 }, () => call('PUT', PATH, { body: 'x' })));
      const lines = served.log.split('\n').filter((line) => word.test(line));
      expect(lines.length).toBeGreaterThan(0);
      expect(lines.length).toBeLessThan(10);

      await end(redis);
      await until(async () => (await call('PUT', PATH, { body: 'x' })).status === 201);
      expect((await call('GET', `${PATH}?timeout=60`)).status).toBe(200);
    },
  );

  it('half-way through a large bulk: 503, with the ids of the jobs that are there', async () => {
    const { redis, served } = await serving();
    const { call } = served;
    const path = `${PATH}/bulk`;
    await call('PUT', path, { body: '[1]' });
    const body = JSON.stringify(Array.from({ length: 10 }, () => 'x'.repeat(700_000)));
    // More and more room, until it is enough for some of the jobs.
    let room = 1_000_000;
    let ids: string[] = [];
    await until(async () => {
      await redis.admin.call('CONFIG', 'SET', 'maxmemory', '0');
      await call('DELETE', PATH);
      const used = Number(/used_memory:(\d+)/.exec(await redis.admin.info('memory'))?.[1]);
      room += 500_000;
      await redis.admin.call('CONFIG', 'SET', 'maxmemory', String(used + room));
      const { status, json } = await call('PUT', path, { body });
      expect(status).toBe(503);
      ids = (json as { job_ids?: string[] }).job_ids ?? [];
      const stored = await redis.admin.hkeys('delayq:{ns.q}:payload');
      expect(ids).toEqual(expect.arrayContaining(stored));
      // A Redis that takes long to answer leaves some in doubt: they are named, too.
      return ids.length > 0 && ids.length === stored.length;
    });
    expect(ids.length).toBeLessThan(10);
  });
});
