import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { afterwards, during } from '../../support/afterwards.js';
import { Authority } from '../../support/certificates.js';
import { binary, delayq } from '../../support/cli.js';
import { Cluster } from '../../support/cluster.js';
import { freshName, redisUrl } from '../../support/redis.js';
import { Sentinels } from '../../support/sentinel.js';
import { freePort } from '../../support/server.js';
import { temporaryDirectory } from '../../support/temporary.js';
import { until } from '../../support/until.js';

/** What an enqueue answers at `url`. */
const ask = (url: string, env: Record<string, string> = {}) =>
  delayq(['enqueue', 'q', '1'], { env: { ...env, DELAYQ_REDIS_URL: url } });

const works = { code: 0, stderr: '' };

/** An error of three parts. */
const told = (code: number, what: string, why: string, next: string) => ({
  code,
  stdout: '',
  stderr: expect.stringMatching(RegExp(`^delayq: ${what}\n {2}why: +${why}\n {2}next: ${next}\n$`)),
});

/** The address of a server that accepts connections and never answers. */
async function silent(): Promise<string> {
  const server = createServer((socket) => afterwards(() => socket.destroy())).listen(0, '127.0.0.1');
  await once(server, 'listening');
  afterwards(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe.concurrent('a cluster', () => {
  it('is reached with TLS by any of its nodes, and what is wrong is told in three parts', async () => {
    const authority = new Authority();
    const { ca } = authority;
    const stranger = authority.selfSign('stranger').cert;
    const cluster = await during(Cluster.start({ tls: { ca, ...authority.issue('node') } }));
    const hosts = cluster.nodes.map((node) => `localhost:${node.port}`);
    const list = hosts.join(',');
    for (const url of [
      ...hosts.map((host) => `rediss://${host}?ca=${ca}`),
      `rediss://${list}?ca=${ca}`,
      `rediss+cluster://localhost:${await freePort()},${list}/0?ca=${ca}`,
    ])
      expect(await ask(url)).toMatchObject(works);
    expect(await ask(`rediss+cluster://${list}`, { DELAYQ_TLS_CA: stranger })).toMatchObject(
      told(
        69,
        'cannot reach any of 3 servers of Redis',
        `${hosts.join(', ')}: .* another CA .*`,
        'give .* --tls-ca .*',
      ),
    );
    expect(await ask(`rediss+cluster://${hosts[0]}?ca=${ca}&servername=other`)).toMatchObject(
      told(69, `cannot reach Redis at rediss://${hosts[0]}`, '.* not for other .*', '.*--tls-servername .*'),
    );
    expect(await ask(`rediss://${list}/1?ca=${ca}`)).toMatchObject(
      told(78, 'Redis at rediss://localhost.* refused the call', 'a Redis Cluster has only database 0.*', 'omit .*'),
    );
    expect(await ask(`rediss+cluster://${list}/1?ca=${ca}`)).toMatchObject(
      told(64, 'cannot use database 1 of a cluster', 'a Redis Cluster has only database 0', 'omit .* prefix .*'),
    );
  });

  it('of which no node answers is unreachable, with the reason of each', async () => {
    const closed = `127.0.0.1:${await freePort()}`;
    const others = [await silent(), await silent()];
    const start = 'start Redis there .*--redis or DELAYQ_REDIS_URL';
    const check = 'check that this is the address of Redis, .*';
    const none = 'cannot reach any of 2 servers of Redis';
    const refused = 'nothing listens there \\(ECONNREFUSED\\)';
    // Each waits for its time limit: all at once.
    const [shut, plain, cluster, one] = await Promise.all([
      ask(`redis://${closed},${closed}`),
      ask(`redis://${others}`),
      ask(`redis+cluster://${others}`),
      ask(`redis://${others[0]},${closed}`),
    ]);
    expect(shut).toMatchObject(told(69, none, `${closed}, ${closed}: ${refused}`, start));
    for (const ended of [plain, cluster])
      expect(ended).toMatchObject(told(69, none, `${others.join(', ')}: no answer in time`, check));
    expect(one).toMatchObject(
      told(69, none, `${others[0]}: no answer in time; ${closed}: ${refused}`, 'start one of them, .*'),
    );
  });
});

describe.concurrent('Sentinels', () => {
  it('are asked with their own login, and what is wrong is told in three parts', async () => {
    const group = await during(Sentinels.start({ replicas: 0, sentinels: 2, login: { password: 'p@ss:w' } }));
    const hosts = group.sentinels.map((one) => `127.0.0.1:${one.port}`);
    const [primary] = group.servers;
    const directory = temporaryDirectory();
    const right = join(directory, 'right');
    const wrong = join(directory, 'wrong');
    writeFileSync(right, 'p@ss:w\n');
    writeFileSync(wrong, 's3cret');
    const variable = { DELAYQ_SENTINEL_PASSWORD_FILE: right };
    const url = (name: string) => `redis+sentinel://${hosts}/${name}`;
    expect(await ask(url(group.name), variable)).toMatchObject(works);
    expect(await ask(`${url(group.name)}/3?sentinel-password-file=${right}`)).toMatchObject(works);
    expect(await ask(`redis-sentinel://127.0.0.1:1,${hosts}?sentinelMasterId=${group.name}`, variable)).toMatchObject(
      works,
    );
    expect(await ask(`redis-sentinel://${hosts}/3#${group.name}`, variable)).toMatchObject(works);
    // The others are in database 3.
    expect(await primary?.admin.zcard('delayq:{q}:pending')).toBe(2);

    const words = ['--redis', url(group.name), '--sentinel-password-file', right, ''];
    const complete = ['completion', '--words', '--', 'drain', ...words];
    // Nobody waits long for a completion: on a busy machine it may come without the queues.
    await until(async () => (await delayq(complete)).stdout === 'words\nq\t\n');

    const any = 'redis://127.0.0.1:\\d+';
    const refused = `the Sentinel at ${any} refused the call`;
    const path = '--sentinel-password-file or DELAYQ_SENTINEL_PASSWORD_FILE';
    expect(await ask(url('nobody'), variable)).toMatchObject(
      told(78, `the Sentinel at ${any} knows no primary called "nobody"`, 'it knows "delayq"', 'correct the name .*'),
    );
    expect(await ask(`${url(group.name)}?sentinel-password-file=${wrong}`)).toMatchObject(
      told(77, refused, 'WRONGPASS .*', `check the login of the Sentinels: --sentinel-user .* ${path}`),
    );
    expect(await ask(url(group.name))).toMatchObject(
      told(77, refused, 'it requires a password: .*', `give the password of the Sentinels, .*${path}`),
    );
    expect(await ask(url(group.name), { DELAYQ_SENTINEL_PASSWORD_FILE: 's3cret' })).toMatchObject(
      told(78, 'cannot use the file with the password of the Sentinels', 'there is no such file .*', `give .* ${path}`),
    );
    expect(await ask(`redis+sentinel://127.0.0.1:${primary?.port}/${group.name}`)).toMatchObject(
      told(78, `the server at ${any} is not a Sentinel`, 'it does not know the command SENTINEL', '.*usually 26379.*'),
    );
    const closed = `127.0.0.1:${await freePort()}`;
    expect(await ask(`redis+sentinel://${closed},${await silent()}/m`)).toMatchObject(
      told(69, 'cannot reach any of 2 Sentinels', `${closed}: nothing .*; 127.* in time`, 'start one of them, .*'),
    );
  });
});

describe.concurrent('the variables of a place', () => {
  it.each(['DELAYQ_URL', 'DELAYQ_REDIS', 'DELAYQ_HOST'])(
    'that are guessed (%s) are an error while the place is not given: jobs must not go to another Redis',
    async (name) => {
      const guessed = { DELAYQ_REDIS_URL: undefined, [name]: redisUrl };
      const { code, stdout, stderr } = await delayq(['inspect'], { env: guessed });
      expect({ code, stdout }).toEqual({ code: 78, stdout: '' });
      expect(stderr).toMatch(new RegExp(`^delayq: ${name} has no effect\n {2}why: .*\n {2}next: set DELAYQ_REDIS_URL`));
      const enqueue = ['enqueue', freshName(), '1'];
      expect(await delayq(enqueue, { env: { ...guessed, REDIS_URL: redisUrl } })).toMatchObject({ code: 0 });
      expect(await delayq([...enqueue, '--redis', redisUrl], { env: guessed })).toMatchObject({ code: 0 });
    },
  );

  it('may have a password that Redis does not ask for: no command says a word of it', async () => {
    const env = { DELAYQ_REDIS_URL: redisUrl.replace('://', '://:needless@') };
    expect(await binary(['enqueue', freshName(), '1'], { env })).toMatchObject({ code: 0, stderr: '' });
  });
});
