import { type ChildProcess, spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, openSync, readFileSync, readlinkSync } from 'node:fs';
import type { Readable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import { cronEnv } from '../support/cli.js';
import { clockOff } from '../support/clock.js';
import { within } from '../support/until.js';

const path = (name: string) => fileURLToPath(new URL(name, import.meta.url));
const HANDLER = path('handler');
const READER = `node '${path('reader.js')}'`;
const WORKER = `node '${path('worker.js')}'`;
const STAYER = path('stayer.js');

/** Makes a command die with its parent: if the suite is killed, no consumer is left. */
const WITH_PARENT = 'setpriv --pdeathsig KILL';

/** Programs that read the lines of a drain, at most 64 KiB ahead: the interpreter, and the command. */
export const ALL_READERS = {
  node: ['node', READER],
  python: ['python3', `python3 '${path('reader.py')}'`],
  awk: ['mawk', `mawk -W interactive -f '${path('reader.awk')}'`],
  xargs: ['xargs', `xargs -r -d '\\n' -n 1 '${path('reader.sh')}'`],
} as const;
export type ReaderName = keyof typeof ALL_READERS;

/** Those that can run on this machine. */
export const READERS = (Object.keys(ALL_READERS) as ReaderName[]).filter(
  (name) => spawnSync('sh', ['-c', `command -v ${ALL_READERS[name][0]}`]).status === 0,
);

/** The ways to consume jobs. `once` (--at-most-once) may lose jobs. */
export const FORMS = ['stdout', 'pipe', 'exec', 'stay', 'lease', 'worker'] as const;
export type Form = (typeof FORMS)[number] | 'once';

/** The names and commands of the processes of a form. */
function membersOf(form: Form, { queue, flags, lease, reader }: Named): [string, string][] {
  switch (form) {
    case 'stdout':
      return [
        ['drain', `delayq drain -q --envelope ${flags} ${queue}`],
        ['reader', ALL_READERS[reader][1]],
      ];
    case 'once':
      return [
        ['drain', `delayq drain -q --at-most-once --envelope ${flags} ${queue}`],
        ['reader', READER],
      ];
    case 'pipe':
      return [['drain', `delayq drain -q --envelope --batch 50 --grace 2s ${flags} --pipe "exec ${READER}" ${queue}`]];
    case 'exec':
      return [['drain', `delayq drain -q -P 4 --grace 2s ${flags} ${queue} -- '${HANDLER}'`]];
    case 'stay':
      return [['drain', `delayq drain -q --stay -P 2 --grace 2s ${flags} ${queue} -- node '${STAYER}'`]];
    case 'lease':
      return [
        ['drain', `delayq drain -q --lease ${lease} ${flags} ${queue}`],
        ['reader', `${READER} pass`],
        ['ack', 'delayq ack'],
      ];
    case 'worker':
      return [['drain', `${WORKER} ${queue} 4 ${flags}`]];
  }
}

type Named = Required<Pick<Options, 'queue' | 'flags' | 'lease' | 'reader'>>;

/** How to start a consumer. */
export interface Options {
  readonly queue: string;
  readonly url: string;
  /** The file to which handlers append what they did. */
  readonly log: string;
  /** The name of this run in the log. */
  readonly label: string;
  readonly flags?: string;
  /** The program that reads from a drain to stdout; by default Node. */
  readonly reader?: ReaderName;
  /** How long it takes for a job, seconds. */
  readonly pause?: string;
  /** Handlers of jobs with "do": "wait" wait until this file exists. */
  readonly gate?: string;
  /** The lease, for the form that needs one; others use that of the queue. */
  readonly lease?: string;
  /** How often handlers that stay misbehave, each in its own way: a probability. */
  readonly wild?: number;
  /** Sets the drain's clock off, such as by +300s. Not for forms whose drain starts the handlers. */
  readonly clock?: string | undefined;
  /** Where the processes' stderr goes. */
  readonly errors: string;
}

/** A consumer: a process, or a pipeline of processes, each of which can be killed alone. */
export class Consumer {
  readonly form: Form;
  readonly label: string;
  readonly #shell: ChildProcess;
  readonly #members = new Map<string, number>();
  readonly #names: readonly string[];
  /** Members that got more than one signal to stop, or SIGINT while they started: they exit with 130 at once. */
  readonly hurried = new Set<string>();
  readonly #told = new Set<string>();
  /** The exit statuses by member; 128 + n after signal n. */
  readonly ended: Promise<Map<string, number>>;
  over = false;

  constructor(
    form: Form,
    { queue, url, log, label, gate = '', pause = '', wild = 0, clock, errors, ...options }: Options,
  ) {
    const { flags = '', lease = '2s', reader = 'node' } = options;
    this.form = form;
    this.label = label;
    const members = membersOf(form, { queue, flags, lease, reader });
    const commands = members.map(([name, command]) => {
      // Only for the drain: the others log times, which must be right.
      const off = clock && name === 'drain' ? `env ${assignments(clockOff(clock))} ` : '';
      return `(echo ${name} $BASHPID >&3; exec ${WITH_PARENT} ${off}${command} 3>&-)`;
    });
    const stderr = openSync(errors, 'a');
    // The shell must survive signals to the group: its death would kill the members.
    const script = `trap : INT TERM\n${commands.join(' | ')}\necho "ended \${PIPESTATUS[*]}" >&3`;
    this.#shell = spawn('setpriv', [...WITH_PARENT.split(' ').slice(1), 'bash', '-c', script], {
      // Its own session, so that Ctrl-C in the terminal of the suite is not one more fault.
      detached: true,
      stdio: ['ignore', 'ignore', stderr, 'pipe'],
      env: {
        ...cronEnv(),
        DELAYQ_REDIS_URL: url,
        CHAOS_LOG: log,
        CHAOS_GATE: gate,
        ...(pause ? { CHAOS_PAUSE: pause } : {}),
        CHAOS_WILD: String(wild),
        CHAOS_RUN: label,
      },
    });
    closeSync(stderr);
    this.#names = members.map(([name]) => name);
    this.ended = this.#watch();
  }

  async #watch(): Promise<Map<string, number>> {
    const told = this.#shell.stdio[3] as Readable;
    let text = '';
    told.on('data', (data: Buffer) => {
      text += data;
      for (const [, name, pid] of text.matchAll(/^(drain|reader|ack) (\d+)$/gm)) {
        if (!this.#members.has(name as string)) this.#members.set(name as string, Number(pid));
      }
    });
    await once(this.#shell, 'close');
    this.over = true;
    const statuses = /^ended (.*)$/m.exec(text)?.[1]?.split(' ').map(Number) ?? [];
    return new Map(this.#names.map((name, i) => [name, statuses[i] ?? 137]));
  }

  /** The process ids of the members that have started: drain, reader, ack. */
  get members(): ReadonlyMap<string, number> {
    return this.#members;
  }

  /** The process ids of the handlers that are running. */
  get handlers(): number[] {
    const drain = this.#members.get('drain');
    try {
      return readFileSync(`/proc/${drain}/task/${drain}/children`, 'utf8').split(' ').filter(Boolean).map(Number);
    } catch {
      return [];
    }
  }

  /**
   * Whether the drain still writes to its reader. After that the reader must not be killed: a drain cannot tell a
   * reader that was killed after the end of its input from one that was done.
   */
  get feeds(): boolean {
    try {
      return readlinkSync(`/proc/${this.#members.get('drain')}/fd/1`).startsWith('pipe:');
    } catch {
      return true;
    }
  }

  /** Signals all members at once, as a terminal does. */
  signalAll(signal: NodeJS.Signals): boolean {
    for (const member of this.#names) this.hurried.add(member);
    return !this.over && send(-(this.#shell.pid as number), signal);
  }

  /** Signals one member; false when it is not there (any more). */
  signal(member: string, signal: NodeJS.Signals): boolean {
    const pid = this.#members.get(member);
    if (signal === 'SIGTERM') (this.#told.has(member) ? this.hurried : this.#told).add(member);
    return !this.over && pid !== undefined && send(pid, signal);
  }

  /** Its exit statuses, once it has ended; that must be soon. */
  end(): Promise<Map<string, number>> {
    return within(120_000, this.label, this.ended);
  }

  /** Ends all of it at once. */
  async kill(): Promise<void> {
    for (const pid of this.handlers) send(pid, 'SIGKILL');
    if (!this.over) send(-(this.#shell.pid as number), 'SIGKILL');
    await within(20_000, `${this.label}, after SIGKILL,`, this.ended);
  }
}

const assignments = (env: Record<string, string>) =>
  Object.entries(env)
    .map(([name, value]) => `${name}='${value}'`)
    .join(' ');

/** Sends a signal. Returns false if there is no such process. */
export function send(pid: number, signal: NodeJS.Signals): boolean {
  try {
    return process.kill(pid, signal);
  } catch {
    return false;
  }
}
