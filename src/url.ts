import { DelayqError } from './errors.js';

/** Where Redis is looked for when nothing says otherwise. */
export const DEFAULT_URL = 'redis://127.0.0.1:6379';

/** What a client needs to know of a server. The database is left out when it is the first. */
interface Address {
  readonly options: {
    host?: string;
    port?: number;
    path?: string;
    username?: string;
    password?: string;
    db?: number;
    tls?: { servername: string };
  };
  /** For people: without user or password. */
  readonly shown: string;
}

/**
 * Reads a Redis URL: `redis://`, `rediss://` or `unix://`, with optional user, password and database (a number as the
 * path, or `?db=` on a socket). Throws a `usage` error that never repeats the URL, as it may hold a password.
 */
export function parseUrl(text: string): Address {
  const bad = (why: string) =>
    new DelayqError('usage', 'the Redis URL cannot be read', {
      why,
      next: 'write it as redis://[user:password@]host[:port][/db], rediss://… or unix:///path/to/redis.sock',
    });
  const match = /^(rediss?|unix):\/\/(?:([^@/]*)@)?([^/?]*)(\/[^?]*)?(?:\?(.*))?$/i.exec(text);
  if (!match) throw bad('it does not begin with redis://, rediss:// or unix://');
  const [, scheme = '', login, host = '', path = '', query = ''] = match;
  const options: Address['options'] = {};
  try {
    if (login) {
      const [user = '', ...password] = login.split(':');
      if (user !== '') options.username = decodeURIComponent(user);
      options.password = decodeURIComponent(password.join(':'));
    }
  } catch {
    throw bad('its user or password has a % that begins no escape; write % as %25');
  }
  const params = new URLSearchParams(query);
  for (const name of params.keys())
    if (name !== 'db') throw bad(`it has the unknown parameter ${JSON.stringify(name)}`);
  let db = params.get('db') ?? '';
  if (scheme.toLowerCase() === 'unix') {
    if (host !== '' || path === '') throw bad('a socket has an absolute path: unix:///path');
    options.path = decodeURIComponent(path);
  } else {
    const at = /^(?:\[([0-9a-f:.]+)\]|([^:@[\]]*))(?::(\d+))?$/i.exec(host);
    const port = Number(at?.[3] ?? 6379);
    if (!at || port < 1 || port > 65535) throw bad('its host or port makes no sense');
    options.host = at[1] ?? (at[2] || '127.0.0.1');
    options.port = port;
    if (scheme.toLowerCase() === 'rediss') options.tls = { servername: options.host };
    if (path.length > 1) db = path.slice(1);
  }
  if (db !== '') {
    if (!/^\d{1,5}$/.test(db)) throw bad('its database is not a number');
    options.db = Number(db);
  }
  const place = options.path ? `unix://${options.path}` : `${scheme.toLowerCase()}://${host || '127.0.0.1'}`;
  return { options, shown: options.db ? `${place}${options.path ? '?db=' : '/'}${options.db}` : place };
}
