import { DelayqError, isDelayqError } from '../model/errors.js';

/** The time limit of a connection attempt and of each call, ms. A reply that arrives later is ignored. */
export const DEADLINE_MS = 5_000;

/** What the caller calls the settings of a connection: `set another URL with …`. */
export interface SettingNames {
  readonly url: string;
  /** How to give a password so that no other user can see it. */
  readonly password: string;
  readonly ca: string;
  readonly cert: string;
  readonly key: string;
  readonly servername: string;
  /** The login of the Sentinels. */
  readonly sentinelUser: string;
  readonly sentinelPassword: string;
  /** What the server is, and what to do about a refused login and missing permissions. Default: as of Redis. */
  readonly server?: string;
  readonly login?: string;
  readonly permissions?: string;
  /**
   * What to do about limits of QUEUE that exclude its partitions, or a drain without a lease. Default: in a program.
   */
  readonly conflict?: string;
  readonly limited?: string;
  /** How to choose a prefix. */
  readonly prefix?: string;
}

/** The names of the library; the command line has its own. */
export const LIBRARY_NAMES: SettingNames = {
  url: 'connect()',
  password: 'give connect() a password',
  ca: 'tls.ca',
  cert: 'tls.cert',
  key: 'tls.key',
  servername: 'tls.servername',
  sentinelUser: 'sentinel.username',
  sentinelPassword: 'sentinel.password or passwordFile',
};

/** `names` for connections to Sentinels, which have a login of their own. */
export const namesOfSentinels = (names: SettingNames): SettingNames => ({
  ...names,
  server: 'the Sentinel',
  password: `give the password of the Sentinels, which is not that of Redis, with ${names.sentinelPassword}`,
  login: `check the login of the Sentinels: ${names.sentinelUser}, and ${names.sentinelPassword}`,
  permissions:
    'grant the user of the Sentinels sentinel|get-master-addr-by-name, sentinel|master and subscribe (ACL SETUSER)',
});

const MOVING = 'the cluster is moving slots: try again';

/** What to do about an error of Redis, by its first word. An unknown word means a bug in delayq. */
const TEMPORARY: Record<string, string> = {
  LOADING: 'wait until Redis has loaded its data, then try again',
  BUSY: 'another script blocks Redis: wait, or stop it with SCRIPT KILL',
  READONLY:
    'this is a replica: connect to the primary, or let it be found, with redis+sentinel://host:26379/NAME or, if it is a cluster, redis+cluster://host:6379',
  MASTERDOWN: 'this replica has lost its primary: connect to the primary',
  OOM: 'Redis is out of memory: drain or cancel jobs, or raise maxmemory',
  CLUSTERDOWN: 'wait until the cluster serves all its slots again',
  TRYAGAIN: MOVING,
  GROWING: 'wait until its growth is done, then try again',
  MOVED: MOVING,
  ASK: MOVING,
  NOREPLICAS: 'Redis requires more replicas than are connected (min-replicas-to-write)',
  MISCONF: 'Redis cannot save its data to disk: check its log',
  UNBLOCKED: 'the role of this server has changed: try again',
};
const REFUSED: Record<string, (names: SettingNames) => string> = {
  // Not as a URL, in which it would be taken for a password, and hidden.
  WRONGPASS: ({ login }) => login ?? 'check the user and password; before the host, a password alone is :PASSWORD@',
  NOPERM: ({ permissions }) =>
    permissions ??
    "grant this user the missing permissions (ACL SETUSER) on the prefix's keys: delayq doctor names them",
  DENIED: () => "Redis runs in protected mode: set a password, or bind it to this client's network",
};
const CONFIG: Record<string, (names: SettingNames) => string> = {
  LAYOUT: () => 'install a newer delayq on this machine',
  CONFLICT: ({ conflict }) =>
    conflict ??
    'use one of both: configure QUEUE with rate: null, burst: null, maxActive: null, or use a queue without partitions',
  LIMITED: ({ limited }) => limited ?? 'drain with a lease, or remove the limit: configure QUEUE with maxActive: null',
  WRONGTYPE: () => 'other software uses this key: rename it, or choose another prefix',
  STREAM: () => 'other software uses this key: choose another one for the stream',
  CROSSSLOT: () =>
    'on a cluster all keys of a call must share a {tag}, as those of a queue do: check the command, if it is your own, or the proxy before Redis',
  NOPROTO: () => 'use Redis 6.2 or newer, or Valkey',
};

/** `error` without the login, which servers without AUTH quote. A short login may be a part of other words. */
export function withoutLogin(error: Error, login: { username?: string | undefined; password?: string | undefined }) {
  const isQuoting = /unknown .*command/i.test(error.message);
  // A user may be called like the prefix, which is in the names of all keys.
  for (const secret of [login.password, isQuoting ? login.username : undefined]) {
    const isQuoted = secret && (secret.length > 5 || isQuoting);
    if (!isQuoted || !error.message.includes(secret)) continue;
    // Not in the words before what it quotes, by which the error is known.
    const [known = ''] = /^.*?unknown .*?command/i.exec(error.message) ?? [];
    error.message = known + error.message.slice(known.length).replaceAll(secret, '…');
    error.stack = error.message;
  }
  return error;
}

/** Converts an error reply of Redis. `address` is what people may see: without user and password. */
export function errorFromReply(error: Error, address: string, names: SettingNames): DelayqError {
  // For AUTH it contains the password, and a log of an error usually includes its cause.
  if ('command' in error) delete error.command;
  // Errors inside scripts are wrapped: "… script: <sha>, on @user_script:3." or, in Redis 6, "ERR Error running script
  // (call to f_<sha>): @user_script:3: @user_script: 3: -OOM …".
  const text = error.message
    .replace(/ script: [0-9a-f]{40}.*$/s, '')
    .replace(/^ERR Error running script .*@user_script: ?\d+: -?/s, '')
    .replace(/^ERR (?=[A-Z]{3,} )/, '');
  const word = /^[A-Z]+/.exec(text)?.[0] ?? '';
  const make = (code: 'temporary' | 'refused' | 'config', next: string | undefined, why = text) =>
    new DelayqError(code, `${names.server ?? 'Redis'} at ${address} refused the call`, { why, next, cause: error });
  if (/^ERR max number of clients/.test(text))
    return make('temporary', 'raise maxclients of Redis, or close connections');
  if (TEMPORARY[word]) return make('temporary', TEMPORARY[word]);
  if (REFUSED[word]) return make('refused', REFUSED[word](names));
  // Before authentication Redis accepts only short commands, and reports longer ones as a protocol error.
  if (word === 'NOAUTH' || /unauthenticated/.test(text)) {
    return make('refused', names.password, `it requires a password: ${text}`);
  }
  // NOPERM of a command inside a script: in Redis 7.0, and since 7.2.
  if (/user executing the script|^ACL failure in script/.test(text)) return make('refused', REFUSED.NOPERM?.(names));
  if (/^ERR (invalid password|.*AUTH|operation not permitted)/i.test(text))
    return make('refused', REFUSED.WRONGPASS?.(names));
  if (CONFIG[word]) return make('config', CONFIG[word](names));
  if (/DB index/.test(text)) return make('config', 'check the number of the database');
  if (/SELECT is not allowed in cluster mode/.test(text)) {
    const prefix = names.prefix ?? 'another prefix';
    const next = `omit the number of the database, such as /1; ${prefix} keeps queues apart as well`;
    return make('config', next, `a Redis Cluster has only database 0: ${text}`);
  }
  if (/unknown command|unknown Redis command/i.test(text)) {
    const next =
      'check that this is Redis 6.2 or newer, and no Sentinel: those are named as redis+sentinel://host:26379/NAME';
    return make('config', next);
  }
  return new DelayqError('internal', `Redis at ${address} did not understand a call`, {
    why: text,
    next: 'check the command, if it is your own; otherwise please report this as a bug, with the version of Redis',
    cause: error,
  });
}

/** The first word of the error reply to a call that was not executed; empty for any other error. */
export function wordOf(error: unknown): string {
  const isReply = isDelayqError(error, 'temporary', 'config') && error.cause !== undefined;
  return isReply ? (/^[A-Z]+\b/.exec(error.why ?? '')?.[0] ?? '') : '';
}

/** The first words of replies of a server that may have been replaced as the primary. */
export const REPLACED: ReadonlySet<string> = new Set(['READONLY', 'NOREPLICAS']);

/** The first words of replies that say that another server may execute the call. */
export const ELSEWHERE: ReadonlySet<string> = new Set([...REPLACED, 'MOVED', 'ASK', 'TRYAGAIN', 'CLUSTERDOWN']);

/** How long a call waits for replicas: after a failover they need a moment to follow the new primary, ms. */
export const REPLICAS_MS = 2_000;
