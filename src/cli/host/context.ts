import { once } from 'node:events';
import {
  type Checked,
  Connection,
  type ConnectOptions,
  DEFAULT_PREFIX,
  loginHider,
  parseUrl,
  systemZone,
  withoutLogin,
  type worst,
} from '../../internal.js';
import type { Host } from './host.js';
import { type Globals, NAMES, placeOf, URL_VARIABLES, urlOf } from './place.js';
import { cannotWrite, openStdout, readerGone } from './stdout.js';

export type { Globals };

/**
 * How a command that threw nothing has ended, if not with success; exit.ts has the exit status of each.
 *
 * - `incomplete`: a part of what was asked could not be done · `empty`: nothing was there
 * - `partial`: some partitions of a queue could not be read
 * - `interrupted`: stopped by a signal before it was done
 * - the states of doctor and check
 */
export type RunOutcome =
  | 'incomplete'
  | 'empty'
  | 'partial'
  | 'interrupted'
  | ReturnType<typeof worst>
  | Checked['state'];

/**
 * A signal that comes so soon after the first belongs to the same stop, ms. systemd sends SIGTERM to all processes of a
 * service, and again to those that are left as soon as the shell before them has ended; timeout passes on what its group
 * got already.
 */
const SAME_STOP_MS = 500;

/** How long a stopped process waits for the reader of its stderr, ms. */
const FLUSH_MS = 1_000;

/** Variables that describe a job to its handler. A drain that is itself run by a handler must not pass those on. */
const JOB_VARIABLES = ['ID', 'QUEUE', 'ATTEMPT', 'TRIES', 'DUE', 'RECEIPT'].map((name) => `DELAYQ_${name}`);

/** Begins the names of variables that hold attributes of a job. */
export const ATTRIBUTE_VARIABLE = 'DELAYQ_ATTR_';

/** The outside world of a command: environment, streams, signals. No command looks past it. */
export class Context {
  readonly stdout: NodeJS.WriteStream;
  readonly stderr: NodeJS.WriteStream;
  readonly env: NodeJS.ProcessEnv;
  /** How the command has ended, if it throws nothing; of several outcomes the one with the highest status counts. */
  readonly outcomes = new Set<RunOutcome>();
  /** The reader of stdout has gone. */
  outputClosed = false;
  readonly #host: Host;
  readonly #abort: () => never;
  readonly #atExit: (() => void)[] = [];
  #stop: AbortSignal | undefined;
  readonly #connections: Connection[] = [];
  #outputError: Error | undefined;
  #hide: ((text: string) => string) | undefined;

  /** `abort` ends the process at the second signal. */
  constructor(host: Host, abort: () => never) {
    this.#host = host;
    this.#abort = abort;
    this.stdout = openStdout(host.stdoutFd, () => host.stdout);
    this.stderr = host.stderr;
    this.env = host.env;
    this.stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (readerGone(error)) this.outputClosed = true;
      else this.#outputError = error;
    });
    // A log that cannot be written must not stop the work.
    this.stderr.on('error', () => {});
    host.events.on('exit', () => {
      for (const last of this.#atExit) last();
    });
  }

  /** Created on first use: that takes Node a while, and most commands never read it. */
  get stdin(): Host['stdin'] {
    return this.#host.stdin;
  }

  /** The descriptor of stdout. */
  get stdoutFd(): number {
    return this.#host.stdoutFd;
  }

  /** How to start this delayq once more: the paths of Node and of the file that it runs. */
  get program(): readonly [string, string] {
    return this.#host.program;
  }

  /** Calls `last` when the process ends, except by SIGKILL. It must not be asynchronous. */
  atExit(last: () => void): void {
    this.#atExit.push(last);
  }

  /** The URL of Redis from --redis or the environment. */
  url(options: Globals): string | undefined {
    return urlOf(options, this.env);
  }

  /** `text` without the user and password of any URL, even of one that was typed in the wrong place. */
  withoutLogins(text: string): string {
    this.#hide ??= loginHider([...this.#host.words, ...Object.values(this.env).map(String)]);
    return this.#hide(text);
  }

  /** Where Redis is, see {@link placeOf}. Throws `usage` or `config` if something is invalid. */
  place(options: Globals): ConnectOptions {
    return placeOf(options, this.env);
  }

  /** A connection to Redis at {@link place}. Not yet open. */
  redis(options: Globals): Connection {
    const connection = new Connection(this.place(options), NAMES);
    this.#connections.push(connection);
    return connection;
  }

  /** The environment for a handler: ours, without the credentials of Redis, and without what is meant for us alone. */
  handlerEnv(): NodeJS.ProcessEnv {
    const env = { ...this.env };
    const ofAttributes = Object.keys(env).filter((name) => name.startsWith(ATTRIBUTE_VARIABLE));
    for (const name of ['REDISCLI_AUTH', 'NOTIFY_SOCKET', ...JOB_VARIABLES, ...ofAttributes]) delete env[name];
    for (const name of URL_VARIABLES) {
      const url = env[name];
      if (!url) continue;
      // The address is not secret, and lets a handler that runs delayq report that it lacks a password.
      try {
        parseUrl(url);
        env[name] = withoutLogin(url);
      } catch {
        delete env[name];
      }
    }
    return env;
  }

  /** The namespace of all keys. */
  prefix({ prefix }: Globals): string {
    return prefix ?? (this.env.DELAYQ_PREFIX || DEFAULT_PREFIX);
  }

  /** The time zone of times without an offset, and of all times printed: `--tz`, DELAYQ_TZ, TZ or the system's. */
  zone({ tz }: { tz?: string }): string {
    if (tz ?? this.env.DELAYQ_TZ) return tz ?? (this.env.DELAYQ_TZ as string);
    // By POSIX, TZ may begin with a colon, or be the path of a zone file: Node then takes that as the system's zone.
    const name = this.env.TZ?.replace(/^:/, '');
    return name && !name.startsWith('/') ? name : systemZone();
  }

  /** Writes to stdout. Resolves when the text was accepted; does nothing once the reader has gone. Throws `output`. */
  async write(text: string | Buffer): Promise<void> {
    if (this.#outputError) throw cannotWrite(this.#outputError);
    if (this.outputClosed) return;
    await new Promise<void>((resolve, reject) => {
      this.stdout.write(text, (error) => {
        if (!error || readerGone(error)) resolve();
        else reject(cannotWrite(error));
      });
    });
  }

  get canAsk(): boolean {
    return this.stdin.isTTY === true && this.stderr.isTTY;
  }

  /** Asks on the terminal. Resolves with the answer; with '' when `stop` aborts, or at the end of stdin. */
  async ask(question: string, stop: AbortSignal): Promise<string> {
    const { createInterface } = await import('node:readline');
    // Not as a terminal: it then edits the line itself, and Ctrl-C stays a signal.
    const reader = createInterface({ input: this.stdin, terminal: false });
    this.stderr.write(question);
    try {
      const [answer] = await Promise.race([
        once(reader, 'line', { signal: stop }),
        once(reader, 'close', { signal: stop }),
      ]);
      return String(answer ?? '');
    } catch {
      return '';
    } finally {
      reader.close();
    }
  }

  /** Calls `pressed` with each key, Ctrl-C included. Returns a function that ends this. */
  keys(pressed: (key: string) => void): () => void {
    const { stdin } = this;
    if (!stdin.isTTY) return () => {};
    const hear = (typed: Buffer) => {
      for (const key of typed.toString('latin1')) pressed(key);
    };
    stdin.on('error', () => {}).on('data', hear);
    stdin.setRawMode?.(true);
    stdin.resume();
    return () => {
      stdin.off('data', hear).pause();
      stdin.setRawMode?.(false);
    };
  }

  /** Calls `suspended` when the process is to be suspended (Ctrl-Z). Returns a function that ends this. */
  suspended(suspended: () => void): () => void {
    this.#host.events.on('SIGTSTP', suspended);
    return () => this.#host.events.off('SIGTSTP', suspended);
  }

  /** Suspends the process and its group, as Ctrl-Z does. Resolves when it is resumed. */
  async suspend(): Promise<void> {
    process.kill(0, 'SIGTSTP');
    // It is suspended here; but not if no shell controls it, as then nothing could resume it.
    await new Promise((resolve) => setTimeout(resolve, 50));
  }

  /** Waits until stderr accepts more: without this, many messages would fill the memory. */
  async heard(): Promise<void> {
    await this.room(this.stderr);
  }

  /** If `stream` is full: resolves when it accepts more, or is closed. */
  room(stream: NodeJS.WriteStream): Promise<void> | undefined {
    if (!stream.writableNeedDrain || stream.destroyed) return undefined;
    const over = new AbortController();
    const { signal } = over;
    return Promise.race([once(stream, 'drain', { signal }), once(stream, 'close', { signal })])
      .catch(() => {})
      .then(() => over.abort());
  }

  /** A signal that aborts at the first SIGINT, SIGTERM or SIGHUP; the second, after {@link SAME_STOP_MS}, ends the process. */
  stopSignal(): AbortSignal {
    const controller = new AbortController();
    let since = 0;
    this.#stop = controller.signal;
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      this.#host.events.on(name, () => {
        if (!controller.signal.aborted) since = performance.now();
        else if (performance.now() - since >= SAME_STOP_MS) this.#abort();
        controller.abort(name);
      });
    }
    return controller.signal;
  }

  /**
   * Closes the connections, and waits until stderr is flushed: a pipe may be full. After a stop it does not wait long,
   * as the reader may be stopped as well.
   */
  async close(): Promise<void> {
    await new Promise<void>((resolve) => {
      const stopped = () => setTimeout(resolve, FLUSH_MS);
      if (this.#stop?.aborted) stopped();
      this.#stop?.addEventListener('abort', stopped);
      this.stderr.write('', () => resolve());
    });
    for (const connection of this.#connections) connection.close();
  }
}
