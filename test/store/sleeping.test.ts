import { beforeEach, expect, it } from 'vitest';
import { Connection, Inspector, Queue } from '../../src/index.js';
import { PartitionMap } from '../../src/store/map.js';
import { shaOf } from '../../src/store/script.js';
import { afterwards, during } from '../support/afterwards.js';
import { begin, delayq } from '../support/cli.js';
import { layoutsOf, openGrowth, placesOf } from '../support/partitions.js';
import { FaultyProxy } from '../support/proxy.js';
import { Server } from '../support/server.js';
import { until } from '../support/until.js';

const QUEUE = 'q';
const OWNERS = new PartitionMap(4, undefined, ['', '1', '2', '3']);
/** An id that belongs to another partition after the growth. */
const MOVER = ['a', 'b', 'c', 'd', 'e'].find((id) => OWNERS.ownerOf(id) > 0) as string;

let server: Server;
let proxy: FaultyProxy;
let env: { DELAYQ_REDIS_URL: string };
beforeEach(async () => {
  server = await during(Server.start());
  proxy = await during(FaultyProxy.start(server.socket));
  env = { DELAYQ_REDIS_URL: server.url };
  const direct = new Connection(server.url);
  await new Queue(direct, QUEUE).enqueue({ id: MOVER, payload: 'old' });
  direct.close();
  await openGrowth(server.admin, QUEUE, 4);
});

const CALLS: Record<string, string[]> = {
  replace: ['enqueue', '--if-exists', 'replace', '--id', MOVER, QUEUE, '"new"'],
  cancel: ['cancel', QUEUE, MOVER],
  reschedule: ['reschedule', '--in', '1h', QUEUE, MOVER],
};
const STEPS = ['transfer/hold', 'transfer/restore', 'transfer/end'] as const;

/** Starts a call by id that falls asleep while `step` is done. Returns what wakes it up. */
async function asleep(call: string[], step: (typeof STEPS)[number]) {
  let sleeps = false;
  const sleeper = begin(call, { env: { DELAYQ_REDIS_URL: proxy.url } });
  proxy.fault = {
    word: shaOf(step),
    kind: 'pass',
    times: 1,
    before: () => {
      sleeps = true;
      sleeper.child.kill('SIGSTOP');
    },
  };
  await until(() => sleeps);
  return () => {
    sleeper.child.kill('SIGCONT');
    return sleeper.ended;
  };
}

const both = Object.keys(CALLS).flatMap((call) => STEPS.map((step) => [call, step] as const));

it.each(both)(
  'a %s that slept after %s until the growth was done brings back no job that is done',
  async (call, step) => {
    const wake = await asleep(CALLS[call] as string[], step);
    expect(await delayq(['config', QUEUE, 'partitions=4'], { env })).toMatchObject({ code: 0 });
    expect(await layoutsOf(server.admin, QUEUE)).toEqual(['1 0/4', '1 1/4', '1 2/4', '1 3/4']);
    const done = await delayq(['drain', QUEUE], { env });
    expect(done).toMatchObject({ code: 0, stdout: '"old"\n' });
    const { code, stdout } = await wake();
    const places = await placesOf(server.admin, QUEUE);
    // Only the replace makes a job, if it says so.
    const isMade = call === 'replace' && code === 0;
    expect({ code, stdout, places: [...places] }).toEqual({
      code: call === 'replace' ? 0 : 1,
      stdout: call === 'replace' ? `${MOVER}\n` : '',
      places: isMade ? [[MOVER, [`${OWNERS.ownerOf(MOVER)} pending`]]] : [],
    });
  },
);

it.each(both)('a %s that slept after %s until the growth was done changes the one job', async (call, step) => {
  const wake = await asleep(CALLS[call] as string[], step);
  expect(await delayq(['config', QUEUE, 'partitions=4'], { env })).toMatchObject({ code: 0 });
  expect(await wake()).toMatchObject({ code: 0 });
  const places = await placesOf(server.admin, QUEUE);
  const place = [MOVER, [`${OWNERS.ownerOf(MOVER)} pending`]];
  expect([...places]).toEqual(call === 'cancel' ? [] : [place]);
  const direct = new Connection(server.url);
  afterwards(() => direct.close());
  const [job] = await new Inspector(direct).show(QUEUE, [MOVER]);
  const payload = job?.payload && JSON.parse(Buffer.from(job.payload).toString());
  expect(payload).toBe({ replace: 'new', cancel: undefined, reschedule: 'old' }[call]);
});
