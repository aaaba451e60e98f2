// What an id costs that is remembered since its job is done (`enqueue --once-for`), measured on one node.
import { parseArgs } from 'node:util';
import { prepare } from './prepare.js';

const HELP = `Usage: node bench/remembered.js [options]

Enqueues jobs with a window, does them, and tells the memory that their ids
take until the window closes. Takes a minute.

Options:
  --ids N     ids to remember (default: 1e6)
  -h, --help  show this help`;

const { values } = parseArgs({
  options: { ids: { type: 'string', default: '1e6' }, help: { type: 'boolean', short: 'h', default: false } },
});
if (values.help) {
  console.log(HELP);
  process.exit();
}
const wanted = Number(values.ids);
if (!(wanted >= 1_000 && wanted <= 1e9)) {
  console.error(`remembered: --ids must be a number of at least 1000, not ${values.ids}\n  next: add --help`);
  process.exit(64);
}

prepare();
const { connect, Queue } = await import('../dist/lib/index.js');
const { ClusterNodes } = await import('./nodes.js');
const { Rig } = await import('./rig.js');

const BATCH = 250;

const cluster = await ClusterNodes.start(new Rig(), { masters: 1, replicas: 0 });
try {
  const [{ admin }] = cluster.nodes;
  const used = async () => Number(/used_memory:(\d+)/.exec(await admin.info('memory'))[1]);
  const kinds = {
    'ids made by delayq (13 characters)': () => undefined,
    'ids of 40 characters': (n) => `order:${String(n).padStart(34, '0')}`,
  };
  for (const [kind, idOf] of Object.entries(kinds)) {
    const redis = await connect(cluster.url);
    const queue = new Queue(redis, 'remembered');
    await queue.enqueue({ payload: 1, onceFor: '1d' });
    await queue.drain({ leaseMs: 0 });
    const before = await used();
    for (let n = 0; n < wanted; n += BATCH) {
      await queue.enqueue(Array.from({ length: BATCH }, (_, i) => ({ id: idOf(n + i), payload: 1, onceFor: '1d' })));
      await queue.drain({ leaseMs: 0 });
    }
    const ids = await admin.zcard('delayq:{remembered}:done');
    console.log(`${kind}: ${Math.round(((await used()) - before) / ids)} bytes each (${ids} are remembered)`);
    redis.close();
    await admin.flushall();
  }
} finally {
  await cluster.stop();
}
