import type { Found } from '../health/audit.js';
import { bad, type Finding, redisCliFor, unknown } from '../health/finding.js';
import { DelayqError, isDelayqError, isPassing } from '../model/errors.js';
import { printable } from '../model/text.js';
import type { Caller, Connection } from '../redis/connection.js';
import { hasEvents } from '../store/events.js';
import type { PrefixOption } from '../store/keys.js';
import { unlistCommand } from '../store/queues.js';
import { slotOf } from '../store/sizes.js';
import { Stores } from '../store/store.js';
import { clusterFindings, coverage, ownersOf, parseMembers } from './cluster.js';
import { parseInfo } from './info.js';
import { Node, refusedOr } from './node.js';
import { checkPermissions } from './permissions.js';
import { askSentinels, failoverLoss, sentinelFindings } from './sentinel.js';

/** host:port, as redis-cli --cluster and CLUSTER NODES write it. */
const placeOf = (address: string) => address.replace(/^\w+:\/\//, '');

/** What was found about one server. */
interface Report {
  readonly address: string;
  readonly findings: readonly Finding[];
}

/** Makes equal findings of several servers one, which names the servers unless all have it. */
function together(reports: readonly Report[]): Finding[] {
  const groups = new Map<string, { finding: Finding; nodes: string[] }>();
  for (const { address, findings } of reports) {
    for (const finding of findings) {
      const key = JSON.stringify(finding);
      const { nodes } = groups.get(key) ?? { nodes: [] };
      groups.set(key, { finding, nodes: [...nodes, address] });
    }
  }
  return [...groups.values()].map(({ finding, nodes }) =>
    nodes.length === reports.length ? finding : { ...finding, nodes },
  );
}

/** Checks whether the servers are fit to keep queues. */
export class Doctor {
  readonly #stores: Stores;

  /** Throws a `usage` error for an invalid option. */
  constructor(redis: Connection, options: PrefixOption = {}) {
    this.#stores = new Stores(redis, options);
  }

  /** Returns a finding if the only server is still loading its data, and so answers nothing else. @internal */
  async loading(): Promise<Finding | undefined> {
    const [node, ...others] = await this.#stores.redis.nodes();
    if (!node || others.length > 0) return undefined;
    const info = parseInfo(String(await node.call('INFO').catch(refusedOr(''))));
    if (info.loading !== '1') return undefined;
    const left = info.loading_eta_seconds ? `, about ${info.loading_eta_seconds} s left` : '';
    const why = 'it answers nothing else until this is done';
    return bad('fail', 'loading', `Redis is loading its data${left}`, why, 'wait, then try again');
  }

  /**
   * Sets the maxmemory-policy of every primary to noeviction: when it is full, it refuses writes instead of deleting
   * keys. This affects everything that uses it. Returns whether the setting lasts after a restart. Throws `config` or
   * `refused` if CONFIG is not allowed.
   */
  async setNoeviction(): Promise<{ lasting: boolean }> {
    let lasting = true;
    for (const node of await this.#stores.redis.nodes()) {
      await node.call('CONFIG', 'SET', 'maxmemory-policy', 'noeviction').catch((error: unknown) => {
        if (!isDelayqError(error, 'config', 'refused')) throw error;
        const next = 'set it in the configuration file of Redis, or in the settings of your provider';
        throw new DelayqError(error.code, 'cannot set maxmemory-policy', { why: error.why, next, cause: error });
      });
      // Fails if Redis runs without a configuration file, or cannot write it.
      await node.call('CONFIG', 'REWRITE').catch(() => {
        lasting = false;
      });
    }
    return { lasting };
  }

  /**
   * Checks the servers, and the permissions for the first of `queues`. Writes nothing. A queue that no server serves
   * has a finding `unserved`. Throws what Connection.call throws if no server answers.
   */
  async examine(queues: readonly string[]): Promise<Finding[]> {
    const callers = await this.#stores.redis.nodes();
    const asked = await Promise.all(callers.map((caller) => this.#ask(caller, callers.length === 1)));
    const nodes = asked.filter((one) => one instanceof Node);
    const [first] = nodes;
    const silent = asked.flatMap((one) => (one instanceof Node ? [] : [one]));
    if (!first) return silent;
    const isCluster = first.info.cluster_enabled === '1';
    const members = isCluster ? parseMembers(String((await first.ask('CLUSTER', 'NODES')) ?? '')) : undefined;
    const isUp = !members || !/^cluster_state:fail/m.test(String(await first.ask('CLUSTER', 'INFO')));
    const owners = members?.length ? ownersOf(members) : undefined;
    const silentPlaces = silent.flatMap(({ nodes = [] }) => nodes.map(placeOf));
    const isServed = (queue: string) => {
      if (!isUp || !owners) return isUp;
      const owner = owners[slotOf(this.#stores.of(queue))];
      return owner !== undefined && !silentPlaces.includes(owner.place);
    };
    const lost = queues.filter((queue) => !isServed(queue));
    const { sentinels } = this.#stores.redis;
    const kind: 'cluster' | 'sentinel' | undefined = members ? 'cluster' : sentinels ? 'sentinel' : undefined;
    const place = placeOf(first.address);
    const store = this.#stores.of(queues.find(isServed) ?? 'queue');
    // So that the permissions for its partitions are checked, too. What it throws, other checks report.
    await store.look().catch(() => {});
    const keepsEvents = await hasEvents(store).catch((error) => isDelayqError(error, 'refused'));
    const reports: Report[] = [];
    for (const node of nodes) {
      try {
        const findings = [
          ...(await node.findings()),
          await checkPermissions(node, store, kind, keepsEvents),
          ...(members ? [coverage(await node.setting('cluster-require-full-coverage'), place)] : []),
          ...(sentinels ? [failoverLoss(node.info, node.address)] : []),
        ];
        reports.push({ address: node.address, findings });
      } catch (error) {
        // It has answered before: it went away in between.
        silent.push(this.#silent(node, error, nodes.length === 1));
      }
    }
    const found: Finding[] = [];
    if (sentinels) found.push(...sentinelFindings(sentinels.name, await askSentinels(sentinels.name, sentinels.nodes)));
    if (members?.length === 0) found.push(unknown('slots', 'CLUSTER NODES is not allowed'));
    else if (members) {
      const timeout = await first.setting('cluster-node-timeout');
      const timeoutMs = timeout === undefined ? undefined : Number(timeout);
      found.push(...clusterFindings(members, { place, timeoutMs, lost, isUp }));
    }
    const failed = members?.filter(({ flags }) => flags.includes('fail')).map((member) => member.place);
    found.push(...silent.filter(({ nodes = [] }) => !nodes.some((node) => failed?.includes(placeOf(node)))));
    found.push(...together(reports));
    const unserved = bad(
      'fail',
      'unserved',
      'cannot be checked: no node serves its slot',
      'nobody can enqueue or drain',
    );
    return [...found, ...lost.map((queue) => ({ ...unserved, queue }))];
  }

  /** A server that answers; or, unless it is the `only` one, that it does not. */
  async #ask(caller: Caller, only: boolean): Promise<Node | Finding> {
    try {
      return await Node.of(caller, this.#stores.prefix);
    } catch (error) {
      return this.#silent(caller, error, only);
    }
  }

  #silent({ address }: { address: string }, error: unknown, only: boolean): Finding {
    if (only || !isPassing(error)) throw error;
    const what = `cannot be asked: ${error.why ?? error.what}`;
    const next = 'see whether it runs, and what its log says';
    return { ...bad('fail', 'unreachable', what, 'its queues cannot be used', next), nodes: [address] };
  }

  /**
   * Returns findings for invalid names in the list of queues or in keys, and for names that could not be read.
   *
   * @internal
   */
  async names({ odd, hidden }: Pick<Found, 'odd' | 'hidden'>): Promise<Finding[]> {
    const cli = odd.length > 0 ? await redisCliFor(this.#stores.redis) : String;
    const found = odd.map((name) => {
      const what = `${printable(name)} is not a valid queue name, but is in the list of queues or in a key`;
      const remove = cli(unlistCommand(this.#stores.prefix, name));
      const cure = `rename its keys, and remove it from the list: ${remove}`;
      return bad('warn', 'odd-name', what, 'delayq cannot use it', cure);
    });
    return hidden === undefined ? found : [...found, unknown('names', `whether there are other queues: ${hidden}`)];
  }
}
