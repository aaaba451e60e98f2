import { DelayqError } from '../model/errors.js';
import { keysOf } from '../model/validate.js';
import type { SettingNames } from './errors.js';
import {
  type ConnectOptions,
  type Place,
  parseUrl,
  type SentinelOptions,
  TLS_SETTINGS,
  type TlsOptions,
} from './url.js';

/** The settings, with words that people try instead. */
const checkSettings = keysOf<ConnectOptions>('connect()', {
  host: 'hostname address server url',
  port: '',
  path: 'socket unix',
  username: 'user',
  password: 'pass auth',
  db: 'database',
  tls: 'ssl',
  nodes: 'hosts servers startupNodes rootNodes',
  cluster: '',
  sentinel: 'sentinels',
});
const checkTlsSettings = keysOf<TlsOptions>('tls', {
  ca: 'cacert',
  cert: 'certificate',
  key: 'privateKey',
  servername: 'sni',
});

/** Where and how to connect, checked. */
export interface Address {
  /** One server and the login; of several servers, the first. */
  readonly options: Omit<ConnectOptions, 'tls' | 'nodes' | 'cluster' | 'sentinel'>;
  readonly tls: TlsOptions | undefined;
  /** The address for people: without user and password. */
  readonly shown: string;
  /** All servers that may be asked; undefined: one server. */
  readonly several?: Several | undefined;
}

/** Several servers: some nodes of a cluster, addresses of one server, or Sentinels. */
export interface Several {
  readonly places: readonly Place[];
  /** `any`: one server or a cluster. */
  readonly kind: 'any' | 'cluster' | 'sentinel';
  /** Of Sentinels: the name of the primary, and their login. */
  readonly sentinel?: Pick<SentinelOptions, 'name' | 'username' | 'password'> | undefined;
}

/** The address of one server: with the login and the TLS settings of `address`. */
export function addressAt({ options, tls }: Address, { host, port }: Place): Address {
  return { options: { ...options, host, port, path: undefined }, tls, shown: shownAt(host, port, tls !== undefined) };
}

const shownAt = (host: string, port: number, tls: boolean) =>
  `${tls ? 'rediss' : 'redis'}://${host.includes(':') ? `[${host}]` : host}:${port}`;

/** Reads a URL or options. Throws `usage` if they are invalid, without repeating a value that may be a secret. */
export function addressOf(given: string | ConnectOptions, names: SettingNames): Address {
  const { tls: wanted, ...rest } = typeof given === 'string' ? parseUrl(given) : checked(given);
  const { path, host = '127.0.0.1', port = 6379, db = 0 } = rest;
  const tls = wanted === true ? {} : wanted || undefined;
  if (path !== undefined) return { options: rest, tls, shown: `unix://${path}${db ? `?db=${db}` : ''}` };
  for (const [name, other] of [
    ['cert', 'key'],
    ['key', 'cert'],
  ] as const) {
    if (tls?.[name] === undefined || tls[other] !== undefined) continue;
    throw new DelayqError('usage', `the ${name === 'key' ? 'key' : 'certificate'} for TLS is given alone`, {
      why: 'a client certificate and its key belong together',
      next: `give the other one as well, with ${names[other]}`,
    });
  }
  const place = shownAt(host, port, tls !== undefined);
  return { options: { ...rest, host, port }, tls, shown: `${place}${db ? `/${db}` : ''}` };
}

function checked(given: ConnectOptions): ConnectOptions {
  const bad = (why: string, next: string) => new DelayqError('usage', 'cannot connect with this', { why, next });
  const isClient = typeof (given as { sendCommand?: unknown } | null)?.sendCommand === 'function';
  if (isClient) {
    throw bad(
      'it is a client of another library, whose settings may send a script twice when a reply is lost',
      'give a URL, or the host, port and login of that client: delayq opens a connection of its own',
    );
  }
  if (!isPlain(given)) {
    throw bad('it is neither a URL as text nor an object with options', "write 'redis://host:6379' or { host, port }");
  }
  checkSettings(given);
  const { port, db, path, tls } = given;
  for (const name of ['host', 'path', 'username', 'password'] as const) {
    if (given[name] === undefined || (typeof given[name] === 'string' && (given[name] || name === 'password')))
      continue;
    throw bad(`${name} is not text, or empty`, `give ${name} as text, or omit it`);
  }
  if (port !== undefined && !(Number.isInteger(port) && port >= 1 && port <= 65535)) {
    throw bad('port is not a whole number from 1 to 65535', 'give it as a number such as 6379');
  }
  if (db !== undefined && !(Number.isInteger(db) && db >= 0 && db <= 99_999)) {
    throw bad('db is not the number of a database', 'give it as a number such as 0');
  }
  if (/[/@?#\s]/.test(given.host ?? '')) {
    throw bad('host contains more than the name of a host', 'give the URL as text instead, or only the name');
  }
  if (path !== undefined && !path.startsWith('/')) {
    throw bad('path is not absolute', 'give the whole path of the Unix socket, such as /run/redis.sock');
  }
  if (path !== undefined && (given.host ?? port ?? (tls || undefined)) !== undefined) {
    throw bad('path excludes host, port and tls', 'omit path to connect to a host');
  }
  if (tls !== undefined && typeof tls !== 'boolean') checkTls(tls, bad);
  // Of a user without a password, an empty one must be sent.
  return given.username === undefined ? given : { ...given, password: given.password ?? '' };
}

/** Of an object of a class, such as a URL, no setting would be found, and the default address be used. */
function isPlain(given: unknown): boolean {
  if (typeof given !== 'object' || given === null) return false;
  const prototype = Object.getPrototypeOf(given);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function checkTls(tls: TlsOptions, bad: (why: string, next: string) => DelayqError): void {
  if (typeof tls !== 'object' || tls === null) throw bad('tls is neither true nor an object', 'write tls: true');
  checkTlsSettings(tls);
  for (const name of TLS_SETTINGS) {
    const value = tls[name];
    const isBytes = Buffer.isBuffer(value) && name !== 'servername';
    if (value === undefined || isBytes || (typeof value === 'string' && value !== '')) continue;
    throw bad(
      `tls.${name} is not text, or empty`,
      `give ${name === 'servername' ? 'a host name' : 'a path'}, or omit it`,
    );
  }
}
