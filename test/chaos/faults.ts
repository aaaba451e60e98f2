import { setTimeout as sleep } from 'node:timers/promises';
import type { FaultyProxy } from '../support/proxy.js';
import { type Consumer, send } from './consumers.js';
import type { Random } from './random.js';

/** What a fault can strike. */
export interface Victims {
  readonly proxies: readonly FaultyProxy[];
  readonly random: Random;
  /** The running consumers. */
  consumers(): readonly Consumer[];
  /** The processes that are enqueuing. */
  producers(): readonly number[];
  /** Whether the reader of this consumer's stdout may be killed. */
  mayKillReader(consumer: Consumer): boolean;
  /** Must be called before a consumer is killed or stopped: its jobs may be delivered again before a lease expires. */
  disturbed(consumer: Consumer): void;
  /** Begins to grow a queue. Returns false if none can grow. */
  grow(): boolean;
}

/** Strikes. Resolves when the fault is over; with false if there was nothing to strike. */
type Fault = (victims: Victims) => Promise<boolean>;

/** A random member of a random consumer that may be killed. */
function member(victims: Victims): [Consumer, string] | undefined {
  const list = victims
    .consumers()
    .flatMap((consumer) =>
      [...consumer.members.keys()]
        .filter((name) => name !== 'reader' || victims.mayKillReader(consumer))
        .map((name): [Consumer, string] => [consumer, name]),
    );
  return list.length > 0 ? victims.random.pick(list) : undefined;
}

function signalOne(signal: NodeJS.Signals): Fault {
  return async (victims) => {
    const [consumer, name] = member(victims) ?? [];
    if (!consumer || !name) return false;
    victims.disturbed(consumer);
    return consumer.signal(name, signal);
  };
}

async function frozen(pid: number, ms: number): Promise<boolean> {
  if (!send(pid, 'SIGSTOP')) return false;
  await sleep(ms);
  send(pid, 'SIGCONT');
  return true;
}

function strike(kind: Parameters<FaultyProxy['strike']>[0]): Fault {
  // Only some of the connections, as when a cable fails.
  return async ({ proxies, random }) =>
    sum(proxies.map((proxy) => proxy.strike(kind, (said) => isClient(said) && random.chance(0.5)))) > 0;
}

/** Not a replica or a Sentinel: what becomes of those is for the faults of Redis. */
const isClient = (said: string) => !/psync|replconf|sentinel/i.test(said);

const sum = (list: readonly number[]) => list.reduce((total, n) => total + n, 0);

export const FAULTS = {
  'kill consumer': signalOne('SIGKILL'),
  'stop consumer': signalOne('SIGTERM'),
  'interrupt group': async (victims: Victims) => {
    const consumers = victims.consumers();
    if (consumers.length === 0) return false;
    const consumer = victims.random.pick(consumers);
    victims.disturbed(consumer);
    return consumer.signalAll(victims.random.pick(['SIGINT', 'SIGTERM']));
  },
  'freeze consumer': async (victims: Victims) => {
    const [consumer, name] = member(victims) ?? [];
    const pid = name && consumer?.members.get(name);
    // A reader of a drain to stdout must handle a line within a lease of reading it.
    if (!consumer || !pid || (name === 'reader' && consumer.form === 'stdout')) return false;
    return frozen(pid, victims.random.whole(100, 5_000));
  },
  'kill handler': async (victims: Victims) => {
    const pids = victims.consumers().flatMap((consumer) => consumer.handlers);
    return pids.length > 0 && send(victims.random.pick(pids), 'SIGKILL');
  },
  'freeze handler': async (victims: Victims) => {
    const pids = victims.consumers().flatMap((consumer) => consumer.handlers);
    return pids.length > 0 && frozen(victims.random.pick(pids), victims.random.whole(100, 5_000));
  },
  'kill enqueue': async ({ producers, random }: Victims) => {
    const pids = producers();
    return pids.length > 0 && send(random.pick(pids), 'SIGKILL');
  },
  'freeze enqueue': async ({ producers, random }: Victims) => {
    const pids = producers();
    return pids.length > 0 && frozen(random.pick(pids), random.whole(100, 2_000));
  },
  'cut connections': strike('refuse'),
  'cut before replies': strike('cut'),
  'drop replies': strike('silent'),
  'drop requests': strike('deaf'),
  'half-open connections': strike('half-open'),
  'delay the network': async ({ proxies, random }: Victims) => {
    const ms = random.whole(100, 3_000);
    return sum(proxies.map((proxy) => proxy.delay(ms, isClient))) > 0;
  },
  'grow queue': async (victims: Victims) => victims.grow(),
} satisfies Record<string, Fault>;

export type FaultName = keyof typeof FAULTS;

/** How often each fault strikes in a storm, as weights. */
export const STORM: Record<FaultName, number> = {
  'kill consumer': 12,
  'stop consumer': 4,
  'interrupt group': 4,
  'freeze consumer': 6,
  'kill handler': 4,
  'freeze handler': 2,
  'kill enqueue': 6,
  'freeze enqueue': 2,
  'cut connections': 4,
  'cut before replies': 4,
  'drop replies': 2,
  'drop requests': 2,
  'half-open connections': 2,
  'delay the network': 3,
  'grow queue': 12,
};
