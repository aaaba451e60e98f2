// How many nodes and partitions a queue needs: from what a job costs on this machine, measured on one node.
import { parseArgs } from 'node:util';
import { prepare } from './prepare.js';

const HELP = `Usage: node bench/capacity.js [options]

Measures what a job costs Redis here (bytes while it waits, CPU time from
enqueue to ack), and calculates what a queue needs. Takes half a minute.

Options:
  --jobs N       jobs that wait at once (default: 1e9)
  --rate N       jobs that fall due a second (default: 1e6)
  --payload N    bytes of a payload (default: 115)
  --memory GIB   memory of a node (default: 64)
  --full PERCENT how much of its memory and its core a node may use (default: 60)
  -h, --help     show this help`;

const { values } = parseArgs({
  options: {
    jobs: { type: 'string', default: '1e9' },
    rate: { type: 'string', default: '1e6' },
    payload: { type: 'string', default: '115' },
    memory: { type: 'string', default: '64' },
    full: { type: 'string', default: '60' },
    help: { type: 'boolean', short: 'h', default: false },
  },
});
if (values.help) {
  console.log(HELP);
  process.exit();
}
const [wanted, rate, payloadBytes, memory, full] = ['jobs', 'rate', 'payload', 'memory', 'full'].map((name) => {
  const n = Number(values[name]);
  if (n > 0 && n < 1e15) return n;
  console.error(`capacity: --${name} must be a number greater than 0, not ${values[name]}\n  next: add --help`);
  return process.exit(64);
});

prepare();
const { connect, Operator, Queue, Worker } = await import('../dist/lib/index.js');
const { ClusterNodes } = await import('./nodes.js');
const { treeCpu } = await import('./processes.js');
const { Rig } = await import('./rig.js');

/** So that the hash tables of the partitions are three quarters full, as they are on average. */
const MEASURED = 196_608;
const PARTITIONS = 16;
/** So many partitions a node that the busiest has at most an eighth more than the mean. */
const A_NODE = 8;
const MAX_PARTITIONS = 1_024;

/** What a job costs: bytes while it waits, and CPU time of Redis from enqueue to ack, µs. */
async function measure() {
  const cluster = await ClusterNodes.start(new Rig(), { masters: 1, replicas: 0 });
  try {
    const [{ admin, pid }] = cluster.nodes;
    const redis = await connect(cluster.url);
    const queue = new Queue(redis, 'capacity');
    for await (const _ of new Operator(redis).partition('capacity', PARTITIONS));
    const used = async () => Number(/used_memory:(\d+)/.exec(await admin.info('memory'))[1]);
    const [bytes, cpu] = [await used(), treeCpu(pid)];
    const payload = 'x'.repeat(Math.max(0, payloadBytes - 2));
    const at = Date.now() - 1_000;
    async function* groups() {
      for (let i = 0; i < MEASURED; i += 1_000)
        yield Array.from({ length: Math.min(1_000, MEASURED - i) }, () => ({ payload, at }));
    }
    for await (const result of queue.enqueueBatches(groups())) if ('error' in result) throw result.error;
    const stored = (await used()) - bytes;
    await new Worker(queue, () => {}, { watch: false, concurrency: 100 }).run();
    const spent = treeCpu(pid) - cpu;
    redis.close();
    return { bytes: stored / MEASURED, micros: spent / MEASURED };
  } finally {
    cluster.stop();
  }
}

const { bytes, micros } = await measure();
const share = full / 100;
const forMemory = Math.ceil((wanted * bytes) / (memory * 2 ** 30 * share));
const forWork = Math.ceil((rate * micros) / 1e6 / share);
const nodes = Math.max(forMemory, forWork);
const partitions = nodes === 1 ? 1 : Math.min(MAX_PARTITIONS, 2 ** Math.ceil(Math.log2(nodes * A_NODE)));
const busiest = (Math.ceil(partitions / nodes) * nodes) / partitions;
const number = (n) => n.toLocaleString('en', { maximumFractionDigits: n < 100 ? 1 : 0 });
const row = (name, value) => console.log(`${name.padEnd(46)}${value}`);
row('a job that waits', `${number(bytes)} bytes`);
row('a job from enqueue to ack', `${number(micros)} µs of CPU`);
row(`${number(wanted)} jobs wait`, `${number((wanted * bytes) / 2 ** 30)} GiB`);
row(`${number(rate)} jobs a second`, `${number((rate * micros) / 1e6)} cores`);
row(`masters of ${memory} GiB for memory, ${full} % full`, number(forMemory));
row(`masters for CPU, ${full} % busy`, number(forWork));
row('masters, and as many replicas', number(nodes));
row('partitions', number(partitions));
row('jobs in a partition', number(wanted / partitions));
row('the busiest master has, of the mean', `${number(busiest * 100)} %`);
process.exit();
