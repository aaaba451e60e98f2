import { bad, type Finding, fine, unknown } from '../health/finding.js';
import { grouped, many, moveLine, queueWord } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import type { Load } from './load.js';

/** The number of slots of every cluster. */
const SLOTS = 16_384;

/** A node as CLUSTER NODES shows it. */
export interface Member {
  readonly id: string;
  /** host:port */
  readonly place: string;
  readonly flags: readonly string[];
  /** The id of its primary; `-` if it is one. */
  readonly primary: string;
  readonly slots: readonly (readonly [from: number, to: number])[];
  /** Slots that it sends or receives now. */
  readonly moving: readonly number[];
}

/** Reads CLUSTER NODES. */
export function parseMembers(text: string): Member[] {
  return text
    .split('\n')
    .filter(Boolean)
    .map((line) => {
      const [id = '', address = '', flags = '', primary = '', , , , , ...ranges] = line.trim().split(' ');
      const [place = '', ...names] = address.split(',');
      const name = names.find((one) => one !== '' && !one.includes('='));
      const port = /:(\d+)(?:@|$)/.exec(place)?.[1] ?? '';
      return {
        id,
        place: name ? `${name}:${port}` : place.replace(/@\d+$/, ''),
        flags: flags.split(','),
        primary,
        slots: ranges.filter((one) => !one.startsWith('[')).map(rangeOf),
        moving: ranges.flatMap((one) => (one.startsWith('[') ? [Number.parseInt(one.slice(1), 10)] : [])),
      };
    });
}

function rangeOf(text: string): [number, number] {
  const [from = 0, to = from] = text.split('-').map(Number);
  return [from, to];
}

/** The primary of each slot that serves it. */
export function ownersOf(members: readonly Member[]): (Member | undefined)[] {
  const owners: (Member | undefined)[] = new Array(SLOTS).fill(undefined);
  for (const member of members.filter(({ flags }) => !flags.includes('fail'))) {
    for (const [from, to] of member.slots) owners.fill(member, from, to + 1);
  }
  return owners;
}

/** What is known of a cluster besides its members. */
export interface Known {
  /** host:port of a node that answers. */
  readonly place: string;
  /** Its version moves all keys of a slot at once, in the background. */
  readonly movesWhole: boolean;
  /** cluster-node-timeout, ms; undefined: CONFIG is not allowed. */
  readonly timeoutMs: number | undefined;
  /** The queues that can be used, those with most jobs first. */
  readonly loads: readonly Load[];
  /** It accepts calls. */
  readonly isUp: boolean;
  /** The queues that cannot be used. */
  readonly lost: readonly string[];
}

/** Checks a cluster as a whole. */
export function clusterFindings(members: readonly Member[], known: Known): Finding[] {
  return [
    ...down(members, known),
    slots(members, known),
    ...withoutReplica(members, known),
    ...moving(members, known),
    ...slotSize(known),
    ...sharedSlots(known),
    ...balance(members, known),
    ...uneven(members, known),
  ];
}

/** Whether a primary that fails stops the queues of the others. `setting` is that of one node; undefined: unknown. */
export function coverage(setting: string | undefined, place: string): Finding {
  if (setting === undefined) return unknown('full-coverage', 'CONFIG is not allowed');
  const what = `cluster-require-full-coverage is ${setting}`;
  if (setting === 'no') return fine('full-coverage', `${what}: a node that fails stops only its own queues`);
  const why = 'a node that fails stops the queues of all nodes, until a replica has taken over';
  const cure = `redis-cli --cluster call ${place} config set cluster-require-full-coverage no`;
  return bad('warn', 'full-coverage', what, why, cure);
}

const isPrimary = ({ flags, slots }: Member) => flags.includes('master') && slots.length > 0;

/** Names of queues or nodes, at most three. */
function named(all: readonly string[]): string {
  const more = all.length - 3;
  return all.slice(0, 3).join(', ') + (more > 0 ? ` and ${grouped(more)} more` : '');
}

const labelOf = ({ queue, partition }: Load) => (partition === undefined ? queue : `${queue} partition ${partition}`);

/** The command that spreads a queue over more slots than it is in now. */
function growthOf(queue: string, loads: readonly Load[]): string {
  const has = loads.filter((load) => load.queue === queue).length;
  return `delayq config ${queueWord(queue)} partitions=${has === 1 ? 16 : 2 * has}`;
}

function slots(members: readonly Member[], { lost, isUp, timeoutMs }: Known): Finding {
  const unserved = ownersOf(members).filter((owner) => owner === undefined).length;
  if (unserved > 0 || !isUp) {
    const why = `${isUp ? 'queues there cannot be used' : 'no queue can be used'}${lost.length > 0 ? `: ${named(lost)}` : ''}`;
    const next = 'start their node again, or promote a replica of it: on the replica, CLUSTER FAILOVER TAKEOVER';
    const which = `${grouped(unserved)} of ${grouped(SLOTS)} slots are not served`;
    const what = isUp ? which : `the cluster is down${unserved > 0 ? `: ${which}` : ', as this node sees it'}`;
    return bad('fail', 'slots', what, why, next);
  }
  const replicas = members.filter(({ flags }) => flags.includes('slave') && !flags.includes('fail')).length;
  const serve = `${members.filter(isPrimary).length} primaries and ${many(replicas, 'replica')} serve all slots`;
  const after =
    timeoutMs === undefined ? '' : `; a primary that is silent for ${formatDuration(timeoutMs)} is replaced`;
  return fine('slots', `${serve}${after}${after && ' (cluster-node-timeout)'}`);
}

function down(members: readonly Member[], { place }: Known): Finding[] {
  return members.flatMap((member) => {
    const { id, flags, slots } = member;
    if (!flags.some((flag) => flag === 'fail' || flag === 'fail?')) return [];
    const isFailed = flags.includes('fail');
    const role = isPrimary(member) ? 'a primary' : flags.includes('slave') ? 'a replica' : 'a former primary';
    const what = `${member.place}, ${role}, ${isFailed ? 'is down' : 'does not answer at the moment'}`;
    const why = slots.length > 0 ? 'its queues cannot be used' : 'it cannot take over when another node fails';
    const gone = `if it is gone for good: redis-cli --cluster del-node ${place} ${id}`;
    const next = slots.length > 0 ? 'start it again, and see its log' : `start it again; ${gone}`;
    return [bad(isFailed ? 'fail' : 'warn', 'node', what, why, next)];
  });
}

function withoutReplica(members: readonly Member[], { place }: Known): Finding[] {
  const up = members.filter(({ flags }) => flags.includes('slave') && !flags.includes('fail'));
  const primaries = members.filter((one) => isPrimary(one) && !one.flags.includes('fail'));
  const alone = primaries.filter(({ id }) => !up.some(({ primary }) => primary === id));
  const [first] = alone;
  if (!first) return [];
  const which = named(alone.map((one) => one.place));
  const why = 'if such a node fails, its queues stand still until it is back';
  const next = `redis-cli --cluster add-node NEW-HOST:PORT ${place} --cluster-slave --cluster-master-id ${first.id}`;
  const what = `${alone.length} of ${primaries.length} primaries ${alone.length === 1 ? 'has' : 'have'} no replica: ${which}`;
  return [bad('warn', 'replicas-missing', what, why, next)];
}

function moving(members: readonly Member[], { place }: Known): Finding[] {
  const open = [...new Set(members.flatMap((member) => member.moving))];
  if (open.length === 0) return [];
  const what = `${many(open.length, 'slot')} ${open.length === 1 ? 'is' : 'are'} being moved: ${named(open.map(String))}`;
  const why = 'calls for their queues wait or fail until this is done';
  return [bad('warn', 'open-slots', what, why, `if no reshard is running: redis-cli --cluster fix ${place}`)];
}

/** How long MIGRATE stops a node: measured with 100,000 to 1,000,000 jobs of 116 bytes and 10,000 of 10,000 bytes. */
const migrationMs = ({ jobs, bytes }: { jobs: number; bytes: number }) => jobs * 0.002 + bytes * 5e-6;

/** The shortest stop to report, ms. */
const NOTICED_MS = 100;

/** Half of the time limit of a call, ms: a slot that stops its node for longer cannot be moved quickly. */
const LONG_MOVE_MS = 2_500;

/** cluster-node-timeout if it is unknown: its default, ms. */
const NODE_TIMEOUT_MS = 15_000;

function slotSize({ loads, movesWhole, timeoutMs = NODE_TIMEOUT_MS }: Known): Finding[] {
  if (movesWhole) return [];
  const sums = new Map<number, { slot: number; jobs: number; bytes: number; queues: string[] }>();
  for (const load of loads) {
    const { slot, jobs, bytes } = load;
    const sum = sums.get(slot) ?? { slot, jobs: 0, bytes: 0, queues: [] };
    sums.set(slot, { slot, jobs: sum.jobs + jobs, bytes: sum.bytes + bytes, queues: [...sum.queues, labelOf(load)] });
  }
  const [largest] = [...sums.values()].sort((a, b) => migrationMs(b) - migrationMs(a));
  const ms = largest ? migrationMs(largest) : 0;
  if (!largest || ms < NOTICED_MS) return [];
  const slot = `slot ${largest.slot} (${named(largest.queues)}: ${many(largest.jobs, 'job')})`;
  const took = formatDuration(Math.round(ms));
  const what = `moving ${slot} to another node would stop both nodes for about ${took}`;
  if (ms < Math.min(LONG_MOVE_MS, timeoutMs / 2)) return [fine('slot-size', what)];
  const why =
    ms < timeoutMs / 2
      ? 'calls for all queues of both nodes wait that long, or fail after 5s'
      : `cluster-node-timeout is ${formatDuration(timeoutMs)}: a failover may begin half-way, and split the queue`;
  const { queue } = loads.find((load) => load.slot === largest.slot) as Load;
  const grow = growthOf(queue, loads);
  const next = `do not reshard this slot before the queue is shorter, or split: ${grow}; Redis 8.4 and Valkey 9 do not stop`;
  return [bad('warn', 'slot-size', what, why, next)];
}

/** Queues with fewer jobs than this can share a slot. */
const LARGE_QUEUE = 10_000;

function sharedSlots({ loads }: Known): Finding[] {
  const large = loads.filter(({ jobs, partition }) => jobs >= LARGE_QUEUE && partition === undefined);
  return [...new Set(large.map(({ slot }) => slot))].flatMap((slot) => {
    const queues = large.filter((load) => load.slot === slot).map(({ queue }) => queue);
    if (queues.length < 2) return [];
    const what = `${named(queues)} share slot ${slot}`;
    const why = 'they are always on the same node, however many nodes there are';
    const next = `give one another name: ${moveLine(String(queues.at(-1)), `${queues.at(-1)}-2`)}`;
    return [bad('warn', 'shared-slot', what, why, next)];
  });
}

/** Fewer jobs than this need not be spread. */
const MANY_JOBS = 100_000;

function balance(members: readonly Member[], { loads, place }: Known): Finding[] {
  const owners = ownersOf(members);
  const primaries = members.filter(isPrimary);
  const total = loads.reduce((sum, { jobs }) => sum + jobs, 0);
  if (primaries.length < 2 || total < MANY_JOBS) return [];
  const limit = Math.min(2 / primaries.length, 0.9) * total;
  return primaries.flatMap((member) => {
    const own = loads.filter(({ slot }) => owners[slot] === member);
    const jobs = own.reduce((sum, load) => sum + load.jobs, 0);
    if (jobs <= limit) return [];
    const queues = named(own.map((load) => `${labelOf(load)} (${grouped(load.jobs)})`));
    const what = `${member.place} holds ${Math.floor((100 * jobs) / total)} % of all jobs: ${queues}`;
    const why = 'its memory and processor limit these queues, whatever the other nodes have left';
    const whole = own.find(({ partition }) => partition === undefined);
    const next = whole ? growthOf(whole.queue, loads) : `redis-cli --cluster rebalance ${place}`;
    return [bad('warn', 'balance', what, why, next)];
  });
}

/** Whether some primary has many more partitions of a queue than the others. */
function uneven(members: readonly Member[], { loads, place }: Known): Finding[] {
  const owners = ownersOf(members);
  const primaries = members.filter(isPrimary);
  const split = new Set(loads.filter(({ partition }) => partition !== undefined).map(({ queue }) => queue));
  return [...split].flatMap((queue) => {
    const own = loads.filter((load) => load.queue === queue);
    const mean = own.length / primaries.length;
    const counts = primaries.map((member) => own.filter(({ slot }) => owners[slot] === member).length);
    const most = Math.max(...counts);
    if (most <= 1.5 * mean || most <= mean + 1) return [];
    const busiest = primaries[counts.indexOf(most)]?.place;
    const what = `${busiest} has ${most} of ${own.length} partitions of ${queue}, ${primaries.length} primaries have ${mean.toFixed(1)} each on average`;
    const why = 'it limits the whole queue, whatever the other nodes have left';
    return [bad('warn', 'uneven', what, why, `redis-cli --cluster rebalance ${place}`)];
  });
}
