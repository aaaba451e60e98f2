import { checkName, parseUrl, printable, type SettingNames } from '../../internal.js';
import type { ServerOptions } from '../../serve/server.js';
import { type CliCommand, usageError } from '../args/command.js';
import { choice, count, duration } from '../args/options.js';
import { type Context, type Globals, NAMES } from '../host/context.js';
import { tellReady } from '../host/service.js';

declare const DELAYQ_VERSION: string;

interface Options extends Globals {
  readonly listen?: HostPort;
  readonly adminListen?: HostPort;
  readonly pool?: ReadonlyMap<string, string | undefined>;
  readonly allowHost?: readonly string[];
  readonly trustProxy?: boolean;
  readonly tries?: number;
  readonly ttl?: number;
  readonly grace?: number;
  readonly maxConnections?: number;
  readonly log?: ServerOptions['logLevel'];
}

type HostPort = ServerOptions['listen'];
type PoolPlace = ServerOptions['pools'] extends ReadonlyMap<string, infer P> ? P : never;

export function serveCommand(command: CliCommand, context: Context): void {
  command
    .description('Serve the queues over HTTP, to programs that cannot run a command or speak Redis.')
    .option('--listen <host:port>', 'where the API listens (default: 127.0.0.1:7777)', place)
    .option('--admin-listen <host:port>', 'where metrics and tokens are served (default: 127.0.0.1:7778)', place)
    .option('--pool <name[=url]>', 'one more Redis; without URL: env DELAYQ_POOL_NAME; repeatable', pool)
    .option('--allow-host <name>', 'a Host that local clients may use without a token; repeatable', hostName)
    .option('--trust-proxy', 'take client addresses from X-Forwarded-For: its last one')
    .option('--tries <n>', 'deliveries of a job that is published without tries= (default: 1)', tries)
    .option(
      '--ttl <duration>',
      'lifetime of a job that is published without ttl=; 0s: for ever (default: 1d)',
      duration,
    )
    .option('--grace <duration>', 'time for running requests at a stop (default: 30s)', duration)
    .option('--max-connections <n>', 'most connections of a listener (default: 20000)', count)
    .addOption(choice('--log <which>', 'which requests to log on stderr (default: errors)', ['all', 'errors', 'none']))
    .action((options: Options) => serve(context, options));
  command.details(`
    lmstfy's clients work unmodified. Namespace NS and queue Q are the queue NS.Q of all other commands. As in lmstfy, a
    job that is published without tries= is delivered once: if nobody acks it within its ttr, it is dead.

    Without any token, only programs on this machine may use the API, as localhost, 127.0.0.1 or [::1]. Before you
    --listen where other machines can reach it, make one: delayq token add NS. Before you --admin-listen there, make one
    for operators: delayq token add '*' --rights operate.

    SIGTERM stops it: /healthz answers 503, and running requests have --grace to end. Exit code 1: some were cut off.
  `);
  command.examples([
    'delayq serve',
    'delayq serve --tries 5 --ttl 7d',
    `curl -X PUT '127.0.0.1:7777/api/shop/close?delay=15m&tries=5' -d '{"id":42}'`,
    `curl '127.0.0.1:7777/api/shop/close?timeout=30'`,
  ]);
}

/** Parses `host:port`, `[::1]:7777` or `:7777`. */
function place(text: string): HostPort {
  const [, host6, host = host6, port] = /^(?:\[([\da-fA-F:]+)\]|([^:[\]\s]*)):(\d{1,5})$/.exec(text) ?? [];
  if (port !== undefined && Number(port) <= 65_535) return { host: host || '0.0.0.0', port: Number(port) };
  throw usageError(`${printable(text)} is not an address`, 'write host:port, such as 127.0.0.1:7777 or [::1]:7777');
}

function pool(text: string, before: ReadonlyMap<string, string | undefined> = new Map()) {
  const [, name = '', url] = /^([^=]*)(?:=(.*))?$/s.exec(text) ?? [];
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(name) || name === 'default' || before.has(name)) {
    const why = 'a name has 1 to 64 of the characters A-Z a-z 0-9 _ -, and is given once; default is the first Redis';
    throw usageError(`${printable(name)} cannot name a pool`, 'write --pool reports=redis://127.0.0.1:6380', why);
  }
  return new Map([...before, [name, url]]);
}

/** A number of tries that clients can read: in 16 bits. */
function tries(text: string): number {
  const n = count(text);
  if (n <= 65_535) return n;
  throw usageError(`${n} tries are too many`, 'write a number from 1 to 65535');
}

function hostName(text: string, before: readonly string[] = []): readonly string[] {
  if (/^[A-Za-z0-9._-]+$/.test(text)) return [...before, text];
  const next = 'write the name alone, without a port, such as queues.internal';
  throw usageError(`${printable(text)} is not the name of a host`, next);
}

/** Where the settings of a further pool are given: all in its URL. */
const namesOf = (pool: string, variable: string): SettingNames => ({
  url: `--pool ${pool} or ${variable}`,
  password: `put :PASSWORD@ before the host of the URL, in ${variable}: ps would show it in --pool`,
  ca: `?ca= in ${variable}`,
  cert: `?cert= in ${variable}`,
  key: `?key= in ${variable}`,
  servername: `?servername= in ${variable}`,
  sentinelUser: `?sentinel-user= in ${variable}`,
  sentinelPassword: `?sentinel-password-file= in ${variable}`,
});

async function serve(context: Context, options: Options): Promise<void> {
  const pools = new Map<string, PoolPlace>([['default', { to: context.server(options), names: NAMES }]]);
  for (const [name, given] of options.pool ?? []) {
    const variable = `DELAYQ_POOL_${name.toUpperCase().replaceAll('-', '_')}`;
    const url = given ?? context.env[variable];
    if (!url) throw usageError(`the pool ${name} has no URL`, `set ${variable}, or write --pool ${name}=redis://…`);
    pools.set(name, { to: parseUrl(url), names: namesOf(name, variable) });
  }
  const server = await import('../../serve/server.js');
  const cut = await server.serve({
    pools,
    prefix: checkName(context.prefix(options), 'prefix'),
    listen: options.listen ?? place('127.0.0.1:7777'),
    adminListen: options.adminListen ?? place('127.0.0.1:7778'),
    allowHosts: options.allowHost ?? [],
    trustProxy: options.trustProxy === true,
    // As lmstfy has them.
    defaults: { tries: options.tries ?? 1, ttl: options.ttl ?? 86_400_000 },
    maxConnections: options.maxConnections ?? 20_000,
    graceMs: options.grace ?? 30_000,
    version: DELAYQ_VERSION,
    logLevel: options.log ?? 'errors',
    log: (line) => !context.stderr.writableNeedDrain && context.stderr.write(line),
    signal: context.stopSignal(),
    onReady: () => tellReady(context),
  });
  if (cut > 0) context.outcomes.add('incomplete');
}
