import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';

export const DEFAULT_URL = 'redis://127.0.0.1:6379';

/** How to verify a server and to identify oneself to it. */
export interface TlsOptions {
  /**
   * Certificates of the CAs to trust instead of those that Node trusts. As `cert` and `key` this is the path of a PEM
   * file, read at each connection so that renewed files are used, or PEM itself: a Buffer, or text with -----BEGIN.
   */
  ca?: string | Buffer | undefined;
  /** The client's certificate, for servers that ask for one. Needs `key`. */
  cert?: string | Buffer | undefined;
  /** The private key of `cert`, without a passphrase. */
  key?: string | Buffer | undefined;
  /** The name that the certificate of the server must have. Default: `host`. */
  servername?: string | undefined;
}

/** The place of one server. */
export interface HostPort {
  readonly host: string;
  readonly port: number;
}

/** Where Redis is, and how to log in: what a URL says, in parts. */
export interface ConnectOptions {
  /** Default: 127.0.0.1. */
  host?: string | undefined;
  /** Default: 6379. */
  port?: number | undefined;
  /** The absolute path of a Unix socket, instead of `host`, `port` and `tls`. */
  path?: string | undefined;
  username?: string | undefined;
  password?: string | undefined;
  /** The number of the database. Default: 0. */
  db?: number | undefined;
  /** Connects with TLS. `true` trusts the CAs that Node trusts. */
  tls?: boolean | TlsOptions | undefined;
  /** Some nodes of a cluster, or several addresses of one server, instead of `host` and `port`. Default port: 6379. */
  nodes?: readonly { host: string; port?: number | undefined }[] | undefined;
  /** The servers must be a Redis Cluster. By default that is found out. */
  cluster?: boolean | undefined;
  /** Sentinels that know where the primary is, instead of `host` and `port`. */
  sentinel?: SentinelOptions | undefined;
}

/** How to ask Sentinels. They are reached with TLS if the primary is. */
export interface SentinelOptions {
  /** What the Sentinels call the primary. */
  name: string;
  /** Default port: 26379. */
  nodes: readonly { host: string; port?: number | undefined }[];
  /** The login of the Sentinels, which is not that of Redis. Default: none. */
  username?: string | undefined;
  password?: string | undefined;
  /** A file that holds the password, instead of `password`. It is read when the Sentinels are first asked. */
  passwordFile?: string | undefined;
}

/** Parameters of a URL that are settings of TLS. */
export const TLS_SETTINGS = ['ca', 'cert', 'key', 'servername'] as const;

/** Parameters of a URL of Sentinels, and what they set. */
const SENTINEL_SETTINGS = { 'sentinel-user': 'username', 'sentinel-password-file': 'passwordFile' } as const;

/**
 * Parses a Redis URL: `redis://`, `rediss://` (TLS) or `unix://`, with optional user, password and database (a number as
 * the path, or `?db=` for a socket). Several hosts are separated by commas; `redis+cluster://` needs a cluster, and
 * `redis+sentinel://` names Sentinels, with the name of the primary before the database, as `?sentinelMasterId=` or as a
 * fragment. With TLS it may have the parameters ca, cert, key (paths) and servername, with Sentinels sentinel-user and
 * sentinel-password-file. A password may contain any character unescaped, except %, which begins an escape; in
 * parameters % and @ must be escaped. Throws `usage` without repeating the URL, because it may contain a password.
 */
export function parseUrl(text: string): ConnectOptions {
  const [begin = '', secure, kind] = /^(?:redis(s?)(?:[+-](cluster|sentinel))?|unix):\/\//i.exec(text) ?? [];
  const isSocket = secure === undefined;
  const ofSentinels = kind?.toLowerCase() === 'sentinel';
  const bad = (why: string) =>
    new DelayqError('usage', 'the Redis URL cannot be read', {
      why,
      next: ofSentinels
        ? 'write it as redis+sentinel://host:26379,host2:26379/NAME/0 (user:password@ of Redis goes before the first host)'
        : 'write it as redis://host:6379/0 (user:password@ goes before the host), rediss://…, redis://host1:7000,host2:7001, redis+sentinel://host:26379/NAME or unix:///path/to/redis.sock',
    });
  if (begin === '')
    throw bad('it does not begin with redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://');
  const login = loginOf(text, begin.length);
  // Such as me:pw@h1,me:pw@h2: with any other second login, the first one and its host could be a password.
  if (/^(.*:.+)@.*,(?:[a-z+-]+:\/\/)?\1$/s.test(login))
    throw bad('its login is repeated; write it once, before the first host');
  const after = text.slice(begin.length + login.length).replace(/^@/, '');
  const [, rest = '', fragment = ''] = (ofSentinels ? /^([^#]*)(?:#(.*))?$/s : /^(.*)$/s).exec(after) as string[];
  const [, hosts = '', path = '', query = ''] = /^([^/?]*)(\/[^?]*)?(?:\?(.*))?$/s.exec(rest) as string[];
  const options: ConnectOptions = {};
  // In a query, + would mean a space.
  const params = new URLSearchParams(query.replaceAll('+', '%2B'));
  const steps = path.split('/').slice(1);
  let name = '';
  try {
    if (login) {
      const [user = '', ...password] = login.split(':');
      if (user !== '') options.username = decodeURIComponent(user);
      options.password = decodeURIComponent(password.join(':'));
    }
    if (isSocket) options.path = decodeURIComponent(path);
    decodeURIComponent(query);
    if (ofSentinels) name = params.get('sentinelMasterId') || decodeURIComponent(fragment || (steps.shift() ?? ''));
  } catch {
    throw bad('it contains a % that does not begin an escape; write % as %25');
  }
  const db = (!isSocket && steps.join('/')) || (params.get('db') ?? '');
  if (isSocket) {
    if (hosts !== '' || path === '') throw bad('a socket needs an absolute path: unix:///path');
  } else {
    const nodes = placesOf(hosts, ofSentinels ? 26379 : 6379);
    if (!nodes) throw bad('its host or port is invalid');
    if (ofSentinels) options.sentinel = { name, nodes };
    else if (nodes.length === 1) Object.assign(options, nodes[0]);
    else options.nodes = nodes;
    if (kind && !ofSentinels) options.cluster = true;
    if (ofSentinels && name === '') throw bad('it does not say what the Sentinels call the primary');
  }
  const tls: TlsOptions = {};
  for (const [name, value] of params) {
    const setting = TLS_SETTINGS.find((known) => known === name);
    const ofSentinel =
      Object.hasOwn(SENTINEL_SETTINGS, name) && SENTINEL_SETTINGS[name as keyof typeof SENTINEL_SETTINGS];
    if (setting && !secure) throw bad('only rediss:// has the parameters ca, cert, key and servername');
    if (ofSentinel && !ofSentinels) throw bad(`only redis+sentinel:// has the parameter ${name}`);
    if ((setting || ofSentinel) && value === '') throw bad(`its parameter ${name} is empty`);
    if (setting) tls[setting] = value;
    else if (ofSentinel) Object.assign(options.sentinel as SentinelOptions, { [ofSentinel]: value });
    // Does not repeat the name: it may be a misplaced password.
    else if (name !== 'db' && !(ofSentinels && name === 'sentinelMasterId')) {
      const others = ofSentinels ? `, ${Object.keys(SENTINEL_SETTINGS).join(', ')}` : '';
      throw bad(`it has a parameter other than db, ca, cert, key, servername${others}`);
    }
  }
  if (secure) options.tls = tls;
  if (db !== '') {
    if (!/^\d{1,5}$/.test(db)) throw bad('its database is not a number');
    options.db = Number(db);
  }
  return options;
}

/** Reads hosts that are separated by commas, each with an optional port. Returns undefined if one is invalid. */
function placesOf(hosts: string, defaultPort: number): HostPort[] | undefined {
  const list = hosts.split(',');
  const places = list.map((text) => {
    const at = /^(?:\[([0-9a-f:.]+)\]|([^:@[\]\s]*))(?::(\d+))?$/i.exec(text);
    const port = Number(at?.[3] ?? defaultPort);
    if (!at || port < 1 || port > 65535 || (text === '' && list.length > 1)) return undefined;
    return { host: at[1] ?? (at[2] || '127.0.0.1'), port };
  });
  return places.includes(undefined) ? undefined : (places as HostPort[]);
}

/** The URL `text` without its user and password. */
export function withoutLogin(text: string): string {
  const at = text.indexOf('://') + 3;
  return text.slice(0, at) + text.slice(at + loginOf(text, at).length).replace(/^@/, '');
}

/**
 * Returns user and password of the URL whose :// ends at `at`: everything up to the last @ of `text`, because neither
 * hosts nor database contain one. The path of a socket may, so there the login ends at an @ before a path.
 */
function loginOf(text: string, at: number): string {
  const socket = /unix:..$/i.test(text.slice(Math.max(0, at - 7), at));
  if (socket && text[at] === '/') return '';
  return text.slice(at, Math.max(at, text.lastIndexOf(socket && text.includes('@/', at) ? '@/' : '@')));
}

/** Whether `text` contains a Redis URL with a user or a password. */
export function hasLogin(text: string): boolean {
  return [...text.matchAll(/(?:rediss?(?:[+-](?:cluster|sentinel))?|unix):\/\//gi)].some((begin) =>
    loginOf(text, begin.index + begin[0].length),
  );
}

/** Precedes a login, also in a mistyped URL. */
const BEGIN = /:\/\/|(?<=\b(?:rediss?(?:[+-](?:cluster|sentinel))?|unix)):?\/{1,2}/gi;

/** A port, not the beginning of a password. */
const PORT = /^\d{1,5}(?![^\s/?#"',;:.)\]}\\\u2026])/;

/**
 * Returns what looks like user and password after a :// where no @ ends the word: the host was forgotten, or the
 * password has a blank.
 */
function unfinished(text: string): string {
  const [word = '', before = '', after = ''] = /^([^\s:/?#@[\]"']+:)([^\s@"']+)(?!\S*@)/.exec(text) ?? [];
  if (word === '' || PORT.test(after)) return '';
  const [, rest = ''] = /^(.*)@/.exec(text.slice(word.length)) ?? [];
  return before + after + rest;
}

/** Longer words must be payloads, not URLs. */
const LONGEST_URL = 4_096;

/** How errors quote text: unchanged, as JSON, as ASCII, or as a word for a shell. */
const QUOTED: readonly ((text: string) => string)[] = [
  (text) => text,
  (text) => JSON.stringify(text).slice(1, -1),
  (text) => printable(text, text.length).slice(1, -1),
  (text) => text.replaceAll("'", "'\\''"),
];

/**
 * Returns a function that replaces user and password of every URL in a text by …. The text may be cut anywhere, and a
 * password may contain white space: so logins that occur in `words` are compared letter by letter.
 */
export function loginHider(words: readonly string[]): (text: string) => string {
  const known = words
    .filter((word) => word.length <= LONGEST_URL)
    .flatMap((word) => [...word.matchAll(BEGIN)].map((begin) => loginOf(word, begin.index + begin[0].length)))
    .flatMap((login) => QUOTED.map((quote) => ({ login: quote(login), user: quote(login.replace(/:.*/s, ':')) })));
  const endOf = (text: string, at: number) => {
    const [word = ''] = /^\S*/.exec(text.slice(at)) ?? [];
    const ends = known.map(({ login, user }) => {
      let end = 0;
      while (end < login.length && text[at + end] === login[end]) end += 1;
      // A part of only the user could also be a host name, which is not a secret.
      return end > user.length || end === login.length ? at + end : at;
    });
    return Math.max(...ends, at + (loginOf(text.slice(0, at + word.length), at) || unfinished(text.slice(at))).length);
  };
  return (text) => {
    let hidden = '';
    let from = 0;
    for (const begin of text.matchAll(BEGIN)) {
      const at = begin.index + begin[0].length;
      const end = endOf(text, at);
      if (begin.index < from || end === at) continue;
      hidden += `${text.slice(from, at)}…`;
      from = end;
    }
    return hidden + text.slice(from);
  };
}
