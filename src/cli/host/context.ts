import { once } from 'node:events';
import {
  type Checked,
  Connection,
  DEFAULT_PREFIX,
  DEFAULT_URL,
  DelayqError,
  isDelayqError,
  loginHider,
  systemZone,
  type worst,
} from '../../internal.js';
import { cannotWrite, openStdout, readerGone } from './stdout.js';

/** Options that every command has. */
export interface Globals {
  readonly redis?: string;
  readonly prefix?: string;
  readonly json?: boolean;
}

/**
 * How a command that threw nothing has ended, if not with success; exit.ts has the exit status of each.
 *
 * - `incomplete`: a part of what was asked could not be done · `empty`: nothing was there
 * - `interrupted`: stopped by a signal before it was done
 * - the states of doctor and check
 */
export type Outcome = 'incomplete' | 'empty' | 'interrupted' | ReturnType<typeof worst> | Checked['state'];

/** How long a stopped process waits for the reader of its stderr, ms. */
const FLUSH_MS = 1_000;

/** The variables that may hold the URL of Redis; the first that is set counts. */
const URL_VARIABLES = ['DELAYQ_REDIS_URL', 'REDIS_URL'];

/** Variables that describe a job to its handler. A drain that is itself run by a handler must not pass those on. */
const JOB_VARIABLES = ['ID', 'QUEUE', 'ATTEMPT', 'TRIES', 'DUE', 'RECEIPT'].map((name) => `DELAYQ_${name}`);

/** The outside world of a command: environment, streams, signals. The only reader of `process.env`. */
export class Context {
  readonly stdout = openStdout();
  readonly stderr = process.stderr;
  readonly env = process.env;
  /** How the command has ended, if it throws nothing; of several outcomes the one with the highest status counts. */
  readonly outcomes = new Set<Outcome>();
  /** The reader of stdout has gone. */
  outputClosed = false;
  readonly #abort: () => never;
  readonly #atExit: (() => void)[] = [];
  #stop: AbortSignal | undefined;
  readonly #connections: Connection[] = [];
  #outputError: Error | undefined;
  #hide: ((text: string) => string) | undefined;

  /** `abort` ends the process at the second signal. */
  constructor(abort: () => never) {
    this.#abort = abort;
    this.stdout.on('error', (error: NodeJS.ErrnoException) => {
      if (readerGone(error)) this.outputClosed = true;
      else this.#outputError = error;
    });
    // A log that cannot be written must not stop the work.
    this.stderr.on('error', () => {});
    process.on('exit', () => {
      for (const last of this.#atExit) last();
    });
  }

  /** Made when it is asked for: that takes Node a while, and most commands never read. */
  get stdin(): typeof process.stdin {
    return process.stdin;
  }

  /** Has `last` called when the process ends, however it does but by SIGKILL. It must not wait for anything. */
  atExit(last: () => void): void {
    this.#atExit.push(last);
  }

  /** The URL of Redis that was given, as text. */
  url({ redis }: Globals): string | undefined {
    return redis ?? URL_VARIABLES.map((name) => this.env[name]).find(Boolean);
  }

  /** `text` for people, without user and password of any URL: it may have been typed where something else belongs. */
  withoutLogins(text: string): string {
    this.#hide ??= loginHider([...process.argv.slice(2), ...Object.values(this.env).map(String)]);
    return this.#hide(text);
  }

  /** A connection to Redis at `--redis`, DELAYQ_REDIS_URL, REDIS_URL or the default, in this order. Not yet open. */
  redis({ redis }: Globals): Connection {
    const source = redis === undefined ? URL_VARIABLES.find((name) => this.env[name]) : undefined;
    try {
      const connection = new Connection(redis ?? (source && this.env[source]) ?? DEFAULT_URL);
      this.#connections.push(connection);
      return connection;
    } catch (error) {
      if (source === undefined || !isDelayqError(error)) throw error;
      throw new DelayqError('config', `${source} cannot be read`, { why: error.why, next: error.next });
    }
  }

  /** The environment for a handler: ours, without what opens Redis. */
  handlerEnv(): NodeJS.ProcessEnv {
    const env = { ...this.env };
    for (const name of ['REDISCLI_AUTH', ...JOB_VARIABLES]) delete env[name];
    for (const name of URL_VARIABLES) {
      const url = env[name];
      if (!url) continue;
      // The address alone is no secret; a handler that runs delayq itself is told what it lacks.
      try {
        env[name] = new Connection(url).address;
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

  /** The time zone in which times without offset are read and all are shown: `--tz`, DELAYQ_TZ, TZ or the system's. */
  zone({ tz }: { tz?: string }): string {
    if (tz ?? this.env.DELAYQ_TZ) return tz ?? (this.env.DELAYQ_TZ as string);
    // POSIX lets TZ begin with a colon, and be the path of a zone's file, which the system's zone then is.
    const name = this.env.TZ?.replace(/^:/, '');
    return name && !name.startsWith('/') ? name : systemZone();
  }

  /** Writes data to stdout; resolves when it was accepted. Nothing happens once the reader has gone. */
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

  /** Whether somebody sits at a terminal who can be asked. */
  get canAsk(): boolean {
    return this.stdin.isTTY && this.stderr.isTTY;
  }

  /** Asks on the terminal, and resolves with the answer; with nothing once `stop` aborts, or at the end of stdin. */
  async ask(question: string, stop: AbortSignal): Promise<string> {
    const { createInterface } = await import('node:readline');
    // Not as a terminal: the line is the terminal's to edit, and Ctrl-C stays a signal.
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

  /** Has `pressed` called with what is typed, a key at a time, Ctrl-C included, until what it returns is called. */
  keys(pressed: (key: string) => void): () => void {
    const { stdin } = this;
    if (!stdin.isTTY) return () => {};
    const hear = (typed: Buffer) => {
      for (const key of typed.toString('latin1')) pressed(key);
    };
    stdin.on('error', () => {}).on('data', hear);
    stdin.setRawMode(true).resume();
    return () => {
      stdin.off('data', hear).pause();
      stdin.setRawMode(false);
    };
  }

  /** Has `suspended` called, when the process is told to stop for a while (Ctrl-Z), until what it returns is called. */
  suspended(suspended: () => void): () => void {
    process.on('SIGTSTP', suspended);
    return () => process.off('SIGTSTP', suspended);
  }

  /** Stops the process, and whatever was started with it, as Ctrl-Z does. Resolves when it goes on. */
  async suspend(): Promise<void> {
    process.kill(0, 'SIGTSTP');
    // It stops in here. Nobody can continue a process that is no job of a shell: that one never stops.
    await new Promise((resolve) => setTimeout(resolve, 50));
  }

  /** Waits until stderr takes more: whoever writes much there waits, or memory fills. */
  async heard(): Promise<void> {
    await this.room(this.stderr);
  }

  /** When `stream` is full: resolves once it takes more, or will never again. */
  room(stream: NodeJS.WriteStream): Promise<void> | undefined {
    if (!stream.writableNeedDrain || stream.destroyed) return undefined;
    const over = new AbortController();
    const { signal } = over;
    return Promise.race([once(stream, 'drain', { signal }), once(stream, 'close', { signal })])
      .catch(() => {})
      .then(() => over.abort());
  }

  /** Aborts at the first SIGINT, SIGTERM or SIGHUP; the second ends the process with 130. */
  stopSignal(): AbortSignal {
    const controller = new AbortController();
    this.#stop = controller.signal;
    for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(name, () => {
        if (controller.signal.aborted) this.#abort();
        controller.abort(name);
      });
    }
    return controller.signal;
  }

  /**
   * Closes the connections and waits until all that was said on stderr is out: a pipe may be full. Not for long once we
   * were told to stop: its reader may be, too.
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
