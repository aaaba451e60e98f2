import { type ChildProcess, execFileSync, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';

/** A namespace of its own for users and the network, which is gone with its last process. */
const UNSHARE = ['unshare', '-rn'];

/** Whether this machine lets the user make network namespaces with links between them. */
export const canMakeNamespaces =
  spawnSync('unshare', ['-rn', 'sh', '-c', 'ip link add v0 type veth peer name v1 && ip link add b0 type bridge'])
    .status === 0;

/** A machine on a network of the test's own. Fits `places` of a cluster and of Sentinels. */
export interface Host {
  readonly host: string;
  /** What to put before a command, so that it runs on this host. */
  readonly within: readonly string[];
}

/**
 * Hosts on one switch, as network namespaces. Only processes on the hosts reach each other; files and Unix sockets are
 * shared with the test. The system removes it all when the test's process ends, however it ends.
 */
export class Network {
  readonly hosts: readonly Host[];
  readonly #switch: ChildProcess;
  readonly #processes: readonly ChildProcess[];

  private constructor(theSwitch: ChildProcess, processes: readonly ChildProcess[]) {
    this.#switch = theSwitch;
    this.#processes = processes;
    this.hosts = processes.map(({ pid }, n) => ({ host: `192.0.2.${n + 1}`, within: inside(pid) }));
  }

  static async start(count: number): Promise<Network> {
    const theSwitch = await hold(UNSHARE);
    const processes: ChildProcess[] = [];
    for (let n = 0; n < count; n++) processes.push(await hold([...inside(theSwitch.pid), 'unshare', '-n']));
    const network = new Network(theSwitch, processes);
    try {
      network.#plug();
      network.heal();
    } catch (error) {
      await network.stop();
      throw error;
    }
    return network;
  }

  /** Gives each host a link to the switch, and its address. */
  #plug(): void {
    for (const [n, { host, within }] of this.hosts.entries()) {
      const { pid } = this.#processes[n] as ChildProcess;
      this.#run(`ip link add port${n} type veth peer name eth0 netns ${pid}
        ip link set port${n} up
        ip link add bridge${n} type bridge
        ip link set bridge${n} up`);
      run(within, `ip link set lo up\nip address add ${host}/24 dev eth0\nip link set eth0 up`);
    }
  }

  #run(script: string): void {
    run(inside(this.#switch.pid), script);
  }

  /**
   * Cuts the network: from now on packets pass within a group only, and the others vanish. Hosts that are in no group are
   * a group together. A later call replaces this one.
   */
  partition(...groups: readonly (readonly Host[])[]): void {
    const lines = this.hosts.map((host, n) => {
      const group = groups.findIndex((some) => some.includes(host));
      return `ip link set port${n} master bridge${group + 1}`;
    });
    this.#run(lines.join('\n'));
  }

  /** Lets all packets pass again. */
  heal(): void {
    this.partition();
  }

  async stop(): Promise<void> {
    for (const process of [...this.#processes, this.#switch]) {
      const gone = once(process, 'exit');
      process.stdin?.end();
      await gone;
    }
  }
}

/** Starts a process that holds the namespaces of a command until its stdin ends. */
async function hold([program = '', ...args]: readonly string[]): Promise<ChildProcess> {
  const process = spawn(program, [...args, 'sh', '-c', 'echo ready && exec cat'], {
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const [line] = await Promise.race([once(createInterface(process.stdout), 'line'), once(process, 'exit')]);
  if (line !== 'ready') throw new Error(`${program} ${args.join(' ')} ended with ${line}`);
  return process;
}

/** What runs a command in the namespaces of a process. It does not fork. */
function inside(pid: number | undefined): string[] {
  return ['nsenter', '--target', String(pid), '--user', '--net', '--preserve-credentials'];
}

function run([program = '', ...args]: readonly string[], script: string): void {
  execFileSync(program, [...args, 'sh', '-ec', script], { stdio: ['ignore', 'ignore', 'inherit'] });
}
