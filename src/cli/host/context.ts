import { once } from 'node:events';
import {
  type Checked,
  Connection,
  type ConnectOptions,
  DEFAULT_PREFIX,
  DEFAULT_URL,
  DelayqError,
  isDelayqError,
  loginHider,
  parseUrl,
  type SettingNames,
  systemZone,
  type worst,
} from '../../internal.js';
import type { Host } from './host.js';
import { cannotWrite, openStdout, readerGone } from './stdout.js';

/** The options of every command. */
export interface Globals {
  readonly redis?: string;
  readonly prefix?: string;
  readonly tlsCa?: string;
  readonly tlsCert?: string;
  readonly tlsKey?: string;
  readonly tlsServername?: string;
  readonly sentinelUser?: string;
  readonly sentinelPasswordFile?: string;
  readonly json?: boolean;
}

/** The variables that may hold the URL of Redis; the first that is set counts. */
export const URL_VARIABLES = ['DELAYQ_REDIS_URL', 'REDIS_URL'];

/** Variables that people take for {@link URL_VARIABLES}. */
const GUESSED = ['DELAYQ_URL', 'DELAYQ_REDIS', 'DELAYQ_HOST'];

/** Where each setting of a connection is given, for errors. */
export const NAMES: SettingNames = {
  url: '--redis or DELAYQ_REDIS_URL',
  password: 'put :PASSWORD@ before the host of the URL, in DELAYQ_REDIS_URL: ps would show it in --redis',
  ca: '--tls-ca or DELAYQ_TLS_CA',
  cert: '--tls-cert or DELAYQ_TLS_CERT',
  key: '--tls-key or DELAYQ_TLS_KEY',
  servername: '--tls-servername or DELAYQ_TLS_SERVERNAME',
  sentinelUser: '--sentinel-user or DELAYQ_SENTINEL_USER',
  sentinelPassword: '--sentinel-password-file or DELAYQ_SENTINEL_PASSWORD_FILE',
  conflict:
    'use one of both: remove the limits (delayq config QUEUE rate= max-active=), or use a queue without partitions',
  limited: 'use handlers, or drain --lease and ack, or remove the limit: delayq config QUEUE max-active=',
  prefix: 'another prefix (--prefix)',
};

/** The options that complete a URL, and which setting each is. Those of one part need a URL that has this part. */
export const URL_OPTIONS = {
  'tls-ca': ['tls', 'ca'],
  'tls-cert': ['tls', 'cert'],
  'tls-key': ['tls', 'key'],
  'tls-servername': ['tls', 'servername'],
  'sentinel-user': ['sentinel', 'username'],
  'sentinel-password-file': ['sentinel', 'passwordFile'],
} as const;

const NEEDED = {
  tls: ['rediss://', 'redis:// and unix:// connect without TLS'],
  sentinel: ['redis+sentinel://', 'any other URL names no Sentinels'],
} as const;

/** The value of an option that completes a URL, as it was given on the command line. */
export function urlOption(options: Globals, name: string): string | undefined {
  return options[name.replace(/-(.)/g, (_, letter: string) => letter.toUpperCase()) as keyof Omit<Globals, 'json'>];
}

/**
 * How a command that threw nothing has ended, if not with success; exit.ts has the exit status of each.
 *
 * - `incomplete`: a part of what was asked could not be done · `empty`: nothing was there
 * - `partial`: some partitions of a queue could not be read
 * - `late`: not done in time
 * - `interrupted`: stopped by a signal before it was done
 * - the states of doctor and check
 */
export type RunOutcome =
  | 'incomplete'
  | 'empty'
  | 'partial'
  | 'late'
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
  #isLent = false;
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
    return options.redis ?? URL_VARIABLES.map((name) => this.env[name]).find(Boolean);
  }

  /** `text` without the user and password of any URL, even of one that was typed in the wrong place. */
  withoutLogins(text: string): string {
    this.#hide ??= loginHider([...this.#host.words, ...Object.values(this.env).map(String)]);
    return this.#hide(text);
  }

  /**
   * The server to connect to: --redis, DELAYQ_REDIS_URL, REDIS_URL or the default, in this order. For TLS and Sentinels
   * the options come first, then the parameters of the URL, then the variables. Throws `usage` or `config` if something
   * is invalid.
   */
  server(options: Globals): ConnectOptions {
    const server = this.#parsed(options);
    for (const [name, [part, setting]] of Object.entries(URL_OPTIONS)) {
      const given = urlOption(options, name);
      const ofUrl = server[part] as Record<string, unknown> | undefined;
      if (ofUrl) {
        // The variables of a part that the URL does not have may be meant for another server.
        const fromEnv = this.env[`DELAYQ_${name.toUpperCase().replaceAll('-', '_')}`] || undefined;
        const value = given ?? ofUrl[setting] ?? fromEnv;
        if (value !== undefined) ofUrl[setting] = value;
      } else if (given !== undefined) {
        const [scheme, why] = NEEDED[part];
        const next = `set such a URL with ${NAMES.url}, or omit --${name}`;
        throw new DelayqError('usage', `--${name} needs a URL that begins with ${scheme}`, { why, next });
      }
    }
    return server;
  }

  #parsed(options: Globals): ConnectOptions {
    const url = this.url(options);
    const guessed = url === undefined ? GUESSED.find((name) => this.env[name]) : undefined;
    // It means another Redis than the default: jobs must not go there unnoticed.
    if (guessed) {
      throw new DelayqError('config', `${guessed} has no effect`, {
        why: `without DELAYQ_REDIS_URL it would use ${DEFAULT_URL}`,
        next: `set DELAYQ_REDIS_URL, or REDIS_URL, to the URL of Redis; or unset ${guessed}`,
      });
    }
    try {
      return parseUrl(url ?? DEFAULT_URL);
    } catch (error) {
      const source = options.redis === undefined && URL_VARIABLES.find((name) => this.env[name]);
      if (!source || !isDelayqError(error)) throw error;
      throw new DelayqError('config', `${source} cannot be read`, { why: error.why, next: error.next });
    }
  }

  /** A connection to the {@link server}. Not yet open. */
  redis(options: Globals): Connection {
    const connection = new Connection(this.server(options), NAMES);
    this.#connections.push(connection);
    return connection;
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

  /**
   * Writes to stdout. Resolves when it has accepted the text; does nothing once the reader has gone, see
   * {@link outputClosed}. Throws `output`, see {@link cannotWrite}: a command that is not to be repeated says what it has
   * `done`.
   */
  async write(text: string | Buffer, done?: string, next?: string): Promise<void> {
    if (this.#outputError) throw cannotWrite(this.#outputError, done, next);
    if (this.outputClosed) return;
    await new Promise<void>((resolve, reject) => {
      this.stdout.write(text, (error) => {
        if (error && !readerGone(error)) return reject(cannotWrite(error, done, next));
        if (error) this.outputClosed = true;
        resolve();
      });
    });
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

  /** Leaves Ctrl-C and Ctrl-\\ to a program that has the terminal. Returns a function that ends this. */
  lendTerminal(): () => void {
    const ignore = () => {};
    this.#host.events.on('SIGQUIT', ignore);
    this.#isLent = true;
    return () => {
      this.#host.events.off('SIGQUIT', ignore);
      this.#isLent = false;
    };
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
        if (name === 'SIGINT' && this.#isLent) return;
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
