import { bad, type Finding, fine, redisCli, unknown } from '../health/finding.js';
import { isDelayqError } from '../model/errors.js';
import { many } from '../model/text.js';
import { formatDuration } from '../model/time.js';
import { placeText } from '../net/address.js';
import type { Caller, Reply } from '../redis/connection.js';
import { pairs } from '../store/replies.js';
import type { Info } from './info.js';

/** What one Sentinel knows. */
export interface SentinelView {
  /** host:port of the Sentinel. */
  readonly address: string;
  /** Why it could not be asked. */
  readonly trouble?: string;
  /** It does not allow this user to ask. */
  readonly isRefused?: boolean;
  /** SENTINEL MASTER: fields by name. */
  readonly primary: Readonly<Record<string, string>>;
  /** SENTINEL REPLICAS. */
  readonly replicas: readonly Readonly<Record<string, string>>[];
  /** SENTINEL CKQUORUM: why a failover could not be decided. */
  readonly noQuorum?: string;
}

/** Asks each Sentinel about the primary `name`. */
export function askSentinels(name: string, nodes: readonly Caller[]): Promise<SentinelView[]> {
  return Promise.all(
    nodes.map(async (node): Promise<SentinelView> => {
      const none = { address: node.address, primary: {}, replicas: [] };
      try {
        const ask = (what: string) => node.call('SENTINEL', what, name);
        const primary = Object.fromEntries(pairs(await ask('MASTER')));
        const replicas = ((await ask('REPLICAS')) as Reply[]).map((fields) => Object.fromEntries(pairs(fields)));
        const noQuorum = await ask('CKQUORUM').then(() => undefined, reasonOf);
        return { ...none, primary, replicas, ...(noQuorum !== undefined && { noQuorum }) };
      } catch (error) {
        return { ...none, trouble: reasonOf(error), isRefused: isDelayqError(error, 'refused') };
      }
    }),
  );
}

function reasonOf(error: unknown): string {
  if (!isDelayqError(error)) throw error;
  return error.why ?? error.what;
}

/** The fewest Sentinels of which one may fail. */
const FEWEST = 3;

const isDown = ({ flags = '' }: Readonly<Record<string, string>>) => /[so]_down|disconnected/.test(flags);

/** Checks what the Sentinels say about the primary that they call `name`. */
export function sentinelFindings(name: string, views: readonly SentinelView[]): Finding[] {
  const silent = views.flatMap(({ address, trouble, isRefused }) => {
    if (trouble === undefined) return [];
    if (isRefused) return [unknown('sentinel', `what the Sentinel at ${address} knows: ${trouble}`)];
    const [fault, cure] = /no such master/i.test(trouble)
      ? [`does not watch ${name}`, 'let it watch the primary (SENTINEL MONITOR)']
      : [`cannot be asked: ${trouble}`, 'start it again'];
    const why = 'with one Sentinel less, a failover may not be decided';
    return [bad('warn', 'sentinel', `the Sentinel at ${address} ${fault}`, why, `${cure}, or take it out of the URL`)];
  });
  const answering = views.filter(({ trouble }) => trouble === undefined);
  const [first] = answering;
  if (!first) return [...silent, unknown('sentinels', 'no Sentinel answers')];
  return [...silent, ...agreement(name, answering), ...count(name, answering), ...candidates(name, first)];
}

function agreement(name: string, answering: readonly SentinelView[]): Finding[] {
  const places = new Map<string, SentinelView[]>();
  for (const view of answering) {
    const place = placeText({ host: view.primary.ip ?? '', port: Number(view.primary.port) });
    places.set(place, [...(places.get(place) ?? []), view]);
  }
  if (places.size > 1) {
    const each = [...places].map(([place, views]) => `${place} (${views.map(({ address }) => address).join(', ')})`);
    const why = 'clients may write to a server that is no primary any more, and lose it';
    const next = `if no failover is running: sentinel reset ${name}, on the Sentinel that is wrong`;
    return [bad('fail', 'primary', `the Sentinels disagree where ${name} is: ${each.join('; ')}`, why, next)];
  }
  const [[place, [first]] = ['', []]] = places;
  const after = Number(first?.primary['down-after-milliseconds']);
  const rest = after > 0 ? `; it is replaced when silent for ${formatDuration(after)} (down-after-milliseconds)` : '';
  return [fine('primary', `${many(answering.length, 'Sentinel')} asked: ${name} is ${place}${rest}`)];
}

function count(name: string, answering: readonly SentinelView[]): Finding[] {
  const total = Math.max(...answering.map(({ primary }) => Number(primary['num-other-sentinels']) + 1));
  const quorum = answering[0]?.primary.quorum;
  const stuck = answering.find(({ noQuorum }) => /^NOQUORUM/.test(noQuorum ?? ''));
  const found: Finding[] = [];
  if (stuck) {
    const why = 'if the primary fails, nobody replaces it';
    const next = 'start the Sentinels that are down, or lower the quorum (SENTINEL SET)';
    found.push(bad('fail', 'quorum', `no failover can be decided: ${stuck.noQuorum}`, why, next));
  }
  if (total < FEWEST) {
    const what = `only ${many(total, 'Sentinel')} ${total === 1 ? 'watches' : 'watch'} ${name}`;
    const why = 'when one of them fails, no failover can be decided';
    found.push(bad('warn', 'sentinels', what, why, `run ${FEWEST}, on different machines`));
  }
  if (found.length > 0) return found;
  return [fine('quorum', `${total} Sentinels, and ${quorum} of them must find the primary down`)];
}

function candidates(name: string, { replicas }: SentinelView): Finding[] {
  const able = replicas.filter(
    (replica) => !isDown(replica) && replica['master-link-status'] === 'ok' && replica['slave-priority'] !== '0',
  );
  const what = `${able.length} of ${many(replicas.length, 'replica')} can take over`;
  if (able.length > 0) return [fine('candidates', what)];
  const why = 'if the primary fails, nobody replaces it: its jobs wait until it is back';
  const next = 'start the replicas, see why they are not in sync, and set replica-priority above 0';
  return [bad('fail', 'candidates', replicas.length > 0 ? what : `${name} has no replica`, why, next)];
}

/** Checks what a failover may lose. */
export function failoverLoss(info: Info, address: string): Finding {
  const replicas = Number(info.connected_slaves) || 0;
  const all = `with enqueue --replicas ${Math.max(1, replicas)}, which is all replicas, none`;
  // INFO shows this field if min-replicas-to-write is set.
  if (info.min_slaves_good_slaves !== undefined) {
    const what = 'min-replicas-to-write is set: a failover loses few of the jobs that were just confirmed';
    return fine('failover', `${what}; ${all}`);
  }
  const why =
    'until it learns of a failover, the old primary confirms jobs that are then lost: at worst 8,646 in 11 s of a test; ' +
    `with min-replicas-to-write 1, 706; ${all}`;
  const cure = `${redisCli(address, 'config set min-replicas-to-write 1')}; the same on the replicas`;
  return bad('fail', 'failover', 'min-replicas-to-write is 0', why, cure);
}
