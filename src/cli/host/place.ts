import {
  type ConnectOptions,
  DEFAULT_URL,
  DelayqError,
  isDelayqError,
  parseUrl,
  type SettingNames,
} from '../../internal.js';

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

/** Where Redis is by these options alone: for another process with the same environment. */
export function globalsOf({ redis, prefix, tlsCa, tlsCert, tlsKey, tlsServername, ...more }: Globals): Globals {
  const { sentinelUser, sentinelPasswordFile } = more;
  return { redis, prefix, tlsCa, tlsCert, tlsKey, tlsServername, sentinelUser, sentinelPasswordFile } as Globals;
}

/** The URL of Redis from --redis or the environment. */
export function urlOf({ redis }: Globals, env: NodeJS.ProcessEnv): string | undefined {
  return redis ?? URL_VARIABLES.map((name) => env[name]).find(Boolean);
}

/**
 * Where Redis is: --redis, DELAYQ_REDIS_URL, REDIS_URL or the default, in this order. For TLS and Sentinels the options
 * come first, then the parameters of the URL, then the variables. Throws `usage` or `config` if something is invalid.
 */
export function placeOf(options: Globals, env: NodeJS.ProcessEnv): ConnectOptions {
  const place = parsed(options, env);
  for (const [name, [part, setting]] of Object.entries(URL_OPTIONS)) {
    const given = urlOption(options, name);
    const ofUrl = place[part] as Record<string, unknown> | undefined;
    if (ofUrl) {
      // The variables of a part that the URL does not have may be meant for another server.
      const fromEnv = env[`DELAYQ_${name.toUpperCase().replaceAll('-', '_')}`] || undefined;
      const value = given ?? ofUrl[setting] ?? fromEnv;
      if (value !== undefined) ofUrl[setting] = value;
    } else if (given !== undefined) {
      const [scheme, why] = NEEDED[part];
      const next = `set such a URL with ${NAMES.url}, or omit --${name}`;
      throw new DelayqError('usage', `--${name} needs a URL that begins with ${scheme}`, { why, next });
    }
  }
  return place;
}

function parsed(options: Globals, env: NodeJS.ProcessEnv): ConnectOptions {
  const url = urlOf(options, env);
  const guessed = url === undefined ? GUESSED.find((name) => env[name]) : undefined;
  // Whoever sets it means another Redis than the default: jobs must not go there unnoticed.
  if (guessed) {
    throw new DelayqError('config', `${guessed} is no variable of delayq`, {
      why: `without DELAYQ_REDIS_URL it would use ${DEFAULT_URL}`,
      next: `set DELAYQ_REDIS_URL, or REDIS_URL, to the URL of Redis; or unset ${guessed}`,
    });
  }
  try {
    return parseUrl(url ?? DEFAULT_URL);
  } catch (error) {
    const source = options.redis === undefined && URL_VARIABLES.find((name) => env[name]);
    if (!source || !isDelayqError(error)) throw error;
    throw new DelayqError('config', `${source} cannot be read`, { why: error.why, next: error.next });
  }
}
