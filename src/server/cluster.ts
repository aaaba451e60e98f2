import { bad, type Finding, fine, unknown } from '../health/finding.js';
import { grouped, many } from '../model/text.js';
import { formatDuration } from '../model/time.js';

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
  /** cluster-node-timeout, ms; undefined: CONFIG is not allowed. */
  readonly timeoutMs: number | undefined;
  /** It accepts calls. */
  readonly isUp: boolean;
  /** The queues that cannot be used. */
  readonly lost: readonly string[];
}

/** Checks a cluster as a whole. */
export function clusterFindings(members: readonly Member[], known: Known): Finding[] {
  return [...down(members, known), slots(members, known), ...withoutReplica(members, known), ...moving(members, known)];
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
