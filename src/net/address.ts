import { DelayqError } from '../model/errors.js';
import { keysOf } from '../model/validate.js';
import type { SettingNames } from './errors.js';
import {
  type ConnectOptions,
  type HostPort,
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
const checkNode = keysOf<HostPort>('a node', { host: 'hostname address server url', port: '' });
const checkSentinel = keysOf<SentinelOptions>('sentinel', {
  name: 'masterName sentinelMasterId service',
  nodes: 'hosts servers sentinels',
  username: 'user',
  password: 'pass auth',
  passwordFile: 'file',
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
  readonly places: readonly HostPort[];
  /** `any`: one server or a cluster. */
  readonly kind: 'any' | 'cluster' | 'sentinel';
  /** Of Sentinels: the name of the primary, and their login. */
  readonly sentinel?: Omit<SentinelOptions, 'nodes'> | undefined;
}

/** The address of one server: with the login and the TLS settings of `address`. */
export function addressAt({ options, tls }: Address, { host, port }: HostPort): Address {
  const shown = `${tls ? 'rediss' : 'redis'}://${placeText({ host, port })}`;
  return { options: { ...options, host, port, path: undefined }, tls, shown };
}

/** `host:port`, as URLs have it. */
export const placeText = ({ host, port }: HostPort) => `${host.includes(':') ? `[${host}]` : host}:${port}`;

/** Reads a URL or options. Throws `usage` if they are invalid, without repeating a value that may be a secret. */
export function addressOf(given: string | ConnectOptions, names: SettingNames): Address {
  const {
    tls: wanted,
    nodes,
    cluster,
    sentinel,
    ...rest
  } = typeof given === 'string' ? parseUrl(given) : checked(given);
  const { path, db = 0 } = rest;
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
  if (cluster && db !== 0) {
    throw new DelayqError('usage', `cannot use database ${db} of a cluster`, {
      why: 'a Redis Cluster has only database 0',
      next: 'omit the number of the database; another prefix keeps queues apart as well',
    });
  }
  const places = (sentinel?.nodes ?? nodes ?? [rest]).map((node) => ({
    host: node.host ?? '127.0.0.1',
    port: node.port ?? (sentinel ? 26379 : 6379),
  }));
  const kind = sentinel ? 'sentinel' : cluster ? 'cluster' : 'any';
  const scheme = `redis${tls ? 's' : ''}${kind === 'any' ? '' : `+${kind}`}`;
  const shown = [
    `${scheme}://${places.map(placeText).join(',')}`,
    ...(sentinel ? [encodeURIComponent(sentinel.name)] : []),
    ...(db ? [db] : []),
  ].join('/');
  const isOne = kind === 'any' && places.length === 1;
  return {
    options: { ...rest, ...(places[0] as HostPort) },
    tls,
    shown,
    several: isOne ? undefined : { places, kind, sentinel },
  };
}

function checked(given: ConnectOptions): ConnectOptions {
  ensure(
    typeof (given as { sendCommand?: unknown } | null)?.sendCommand !== 'function',
    'it is a client of another library, whose settings may send a script twice when a reply is lost',
    'give a URL, or the host, port and login of that client: delayq opens a connection of its own',
  );
  const next = "write 'redis://host:6379' or { host, port }";
  ensure(isPlain(given), 'it is neither a URL as text nor an object with options', next);
  checkSettings(given);
  for (const [name, others] of EXCLUSIONS) {
    const found = others.filter((other) => isGiven(given[name]) && isGiven(given[other]));
    const excludes = `${name} excludes ${others.join(', ')}`;
    ensure(found.length === 0, excludes, `omit ${name}, or omit ${found.join(', ')}`);
  }
  const { db = 0, path = '/', tls, nodes, cluster = false, sentinel } = given;
  checkTexts(given, ['path', 'username', 'password']);
  checkPlace(given);
  const isNumber = Number.isInteger(db) && db >= 0 && db <= 99_999;
  ensure(isNumber, 'db is not the number of a database', 'give it as a number such as 0');
  ensure(
    path.startsWith('/'),
    'path is not absolute',
    'give the whole path of the Unix socket, such as /run/redis.sock',
  );
  const isFlag = typeof cluster === 'boolean';
  ensure(isFlag, 'cluster is neither true nor false', 'write cluster: true, and the nodes as nodes');
  if (nodes !== undefined) checkNodes(nodes, 'nodes');
  if (sentinel !== undefined) checkSentinels(sentinel);
  if (tls !== undefined && typeof tls !== 'boolean') checkTls(tls);
  // Of a user without a password, an empty one must be sent.
  return given.username === undefined ? given : { ...given, password: given.password ?? '' };
}

/** Settings that cannot be given with others. */
const EXCLUSIONS: readonly (readonly [keyof ConnectOptions, readonly (keyof ConnectOptions)[]])[] = [
  ['path', ['host', 'port', 'tls', 'nodes', 'cluster', 'sentinel']],
  ['sentinel', ['host', 'port', 'nodes', 'cluster']],
  ['nodes', ['host', 'port']],
];

const isGiven = (value: unknown) => value !== undefined && value !== false;

function ensure(isValid: boolean, why: string, next: string): void {
  if (!isValid) throw new DelayqError('usage', 'cannot connect with this', { why, next });
}

/** Checks that each of `names` is text if it is given. Only a password may be empty. */
function checkTexts<T extends object>(given: T, names: readonly (keyof T & string)[], within = ''): void {
  for (const name of names) {
    const value: unknown = given[name];
    const isText = typeof value === 'string' && (value !== '' || name === 'password');
    ensure(value === undefined || isText, `${within}${name} is not text, or empty`, `give ${name} as text, or omit it`);
  }
}

function checkPlace(given: Pick<ConnectOptions, 'host' | 'port'>): void {
  const { host = '', port = 1 } = given;
  checkTexts(given, ['host']);
  const isPort = Number.isInteger(port) && port >= 1 && port <= 65535;
  ensure(isPort, 'port is not a whole number from 1 to 65535', 'give it as a number such as 6379');
  const next = 'give the URL as text instead, or only the name';
  ensure(!/[/@?#,\s]/.test(host), 'host contains more than the name of a host', next);
}

function checkNodes(nodes: ConnectOptions['nodes'], name: string): void {
  const isList = Array.isArray(nodes) && nodes.length > 0;
  ensure(isList, `${name} is not an array, or empty`, "write it as [{ host: 'h1', port: 7000 }]");
  for (const node of nodes as HostPort[]) {
    checkNode(node);
    ensure(node.host !== undefined, `one of ${name} has no host`, "write it as { host: 'h1', port: 7000 }");
    checkPlace(node);
  }
}

function checkSentinels(sentinel: SentinelOptions): void {
  const { name, nodes, password, passwordFile } = checkSentinel(sentinel);
  checkTexts(sentinel, ['name', 'username', 'password', 'passwordFile'], 'sentinel.');
  const next = "give what the Sentinels call the primary, such as name: 'mymaster'";
  ensure(name !== undefined, 'sentinel has no name', next);
  const isOne = password === undefined || passwordFile === undefined;
  ensure(isOne, 'sentinel.password excludes passwordFile', 'omit one of them');
  checkNodes(nodes, 'sentinel.nodes');
}

/** Of an object of a class, such as a URL, no setting would be found, and the default address be used. */
function isPlain(given: unknown): boolean {
  if (typeof given !== 'object' || given === null) return false;
  const prototype = Object.getPrototypeOf(given);
  return prototype === null || Object.getPrototypeOf(prototype) === null;
}

function checkTls(tls: TlsOptions): void {
  ensure(typeof tls === 'object' && tls !== null, 'tls is neither true nor an object', 'write tls: true');
  checkTlsSettings(tls);
  for (const name of TLS_SETTINGS) {
    const value = tls[name];
    const isBytes = Buffer.isBuffer(value) && name !== 'servername';
    const isValid = value === undefined || isBytes || (typeof value === 'string' && value !== '');
    const next = `give ${name === 'servername' ? 'a host name' : 'a path'}, or omit it`;
    ensure(isValid, `tls.${name} is not text, or empty`, next);
  }
}
