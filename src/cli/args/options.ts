import { type Command, Option } from 'commander';
import {
  type Attributes,
  type Connection,
  formatDuration,
  formatTime,
  packAttributes,
  parseAt,
  parseDuration,
  parseRate,
  printable,
} from '../../internal.js';
import type { Context, URL_OPTIONS } from '../host/context.js';
import { say } from '../terminal/output.js';
import { usageError } from './command.js';

export const duration = (text: string) => parseDuration(text);

/** Parses a duration greater than zero, ms. */
export function positiveDuration(text: string): number {
  const ms = parseDuration(text);
  if (ms > 0) return ms;
  throw usageError(`"${text}" is not a duration`, 'write it as 30s or 5m', 'it must be greater than zero');
}

/** Parses a whole number from 1. */
export const count = (text: string): number => wholeNumber(text, 1);

/** Parses a whole number from 0. */
export const limit = (text: string): number => wholeNumber(text, 0);

function wholeNumber(text: string, least: number): number {
  const n = Number(text);
  if (/^\d+$/.test(text) && n >= least && n <= Number.MAX_SAFE_INTEGER) return n;
  const what = `${printable(text)} is not a ${least === 0 ? 'limit' : 'count'}`;
  throw usageError(what, 'write it in digits, such as 100', `it must be a whole number from ${least}`);
}

/** Parses a size such as `256M` or `1G`, in powers of 1,024; without a letter it is in bytes. */
export function size(text: string): number {
  const [, digits, unit = ''] = /^(\d+)([KMG]?)$/i.exec(text) ?? [];
  const bytes = Number(digits) * 1024 ** ' KMG'.indexOf(unit.toUpperCase() || ' ');
  if (bytes > 0 && bytes <= Number.MAX_SAFE_INTEGER) return bytes;
  throw usageError(
    `${printable(text)} is not a size`,
    'write it as 256M or 1G',
    'it must be a whole number, and K, M or G',
  );
}

/** Parses an attribute, `name=value`, and adds it to those that were given before. */
function attribute(text: string, before: Attributes = {}): Attributes {
  const at = text.indexOf('=');
  if (at < 0)
    throw usageError(
      `${printable(text)} is not an attribute`,
      'write it as name=value, such as tenant=7',
      'it has no =',
    );
  const all = { ...before, [text.slice(0, at)]: text.slice(at + 1) };
  packAttributes(all);
  return all;
}

/** Parses a rate such as `10/s`, `100/m` or `1/30s`. Returns a number per second. */
export function ratePerSecond(text: string): number {
  const { jobs, perMs } = parseRate(text);
  return (1_000 * jobs) / perMs;
}

export function statuses(text: string): ReadonlySet<number> {
  const list = text.split(',').map((part) => (/^ *\d+ *$/.test(part) ? Number(part) : Number.NaN));
  if (list.every((status) => status >= 1 && status <= 255)) return new Set(list);
  const why = 'each must be a number from 1 to 255: 0 is success';
  throw usageError(`${printable(text)} is not a list of exit statuses`, 'write them as 65,100', why);
}

/** An option that takes one of a few words. */
export const choice = (flags: string, description: string, words: readonly string[]): Option =>
  new Option(flags, description).choices(words);

/** What becomes of a job whose id exists. */
export const ifExists = () =>
  choice('--if-exists <choice>', 'what to do if the id exists (default: keep)', ['keep', 'replace']);

export function addDueTime(command: Command): Command {
  return command
    .option('--in <duration>', 'due after 500ms, 90s, 15m, 1h30m, 2d, 1w', duration)
    .option('--at <time>', 'due at 14:00, "tomorrow 9:00", "2026-11-21 14:00" …: see below');
}

/** What jobs may be given besides a payload. */
export interface JobOptions {
  readonly tries?: number;
  readonly ttl?: number;
  readonly onceFor?: number;
  readonly attr?: Attributes;
  readonly text?: boolean;
}

/** Their names on the command line, for options that exclude them. */
export const JOB_OPTIONS = ['tries', 'ttl', 'onceFor', 'attr', 'text'];

export function addJobOptions(command: Command): Command {
  return command
    .option('--tries <n>', 'failures after which the job is dead', count)
    .option(
      '--ttl <duration>',
      'drop the job rather than deliver it later than this after its due time; 0s: no limit',
      duration,
    )
    .option('--once-for <duration>', 'reserve the id for this long after the job has ended', positiveDuration)
    .option('--attr <name=value>', 'a text for the handler beside the payload, such as tenant=7; repeatable', attribute)
    .option('--text', 'store any text as a JSON string; not needed with delayq config QUEUE text=on');
}

/**
 * Reads `--at`, ms, by the clock of Redis: "14:00" is the next 14:00 there. Warns of a time in the past. Throws `usage`
 * if it is no time.
 */
export async function readAt(
  context: Context,
  redis: Connection,
  options: { at?: string; tz?: string },
): Promise<number | undefined> {
  const { at: text } = options;
  if (text === undefined) return undefined;
  // Looked up only here: the system's zone takes a third of the time of a whole enqueue.
  const zone = context.zone(options);
  // Parsed once before Redis is asked for its clock, so that a mistake is reported even without Redis.
  parseAt(text, { zone, now: Date.now() });
  const now = await redis.now();
  const { ms, past } = parseAt(text, { zone, now });
  if (past) say(context, `${text} was ${formatDuration(now - ms)} ago: due now`);
  return ms;
}

/** The words of --at, for the {@link details} of a command. */
export const AT_WORDS =
  '--at takes 14:00, "tomorrow 9:00", "2026-11-21 14:00", "now + 5 minutes", 2026-11-21T14:00:00+01:00, and seconds ' +
  'since 1970: @1795266000. If a time of day has passed today, tomorrow is meant. --tz sets the time zone.';

/** Says when a job is due: "tomorrow, 2026-11-22 09:00:00 +01:00, in 20h". The day is named if --at was given. */
export function dueText(due: number, now: number, zone: string, { at }: { at?: unknown }): string {
  const time = formatTime(due, zone);
  if (due <= now) return `${time}, now`;
  return `${at === undefined ? '' : `${nameOfDay(due, now, zone)}, `}${time}, in ${formatDuration(due - now)}`;
}

function nameOfDay(ms: number, now: number, zone: string): string {
  const [day, today] = [ms, now].map((one) => Date.parse(formatTime(one, zone).slice(0, 10))) as [number, number];
  const ahead = ['today', 'tomorrow'][(day - today) / 86_400_000];
  return ahead ?? new Intl.DateTimeFormat('en', { weekday: 'long', timeZone: 'UTC' }).format(day);
}

/** The options that complete a URL: the help of the program shows them, that of each command does not. */
const OF_URL: Readonly<Record<keyof typeof URL_OPTIONS, readonly [value: string, meaning: string]>> = {
  'tls-ca': ['file', 'CA to trust, for a rediss:// URL (env DELAYQ_TLS_CA)'],
  'tls-cert': ['file', 'client certificate (env DELAYQ_TLS_CERT)'],
  'tls-key': ['file', 'its private key (env DELAYQ_TLS_KEY)'],
  'tls-servername': ['name', 'host name to verify (env DELAYQ_TLS_SERVERNAME)'],
  'sentinel-user': ['name', 'user of the Sentinels (env DELAYQ_SENTINEL_USER)'],
  'sentinel-password-file': ['file', 'file with their password (env DELAYQ_SENTINEL_PASSWORD_FILE)'],
};

export function addGlobals<C extends Command>(command: C): C {
  command
    .option('--redis <url>', 'URL of Redis (env DELAYQ_REDIS_URL, REDIS_URL)')
    .option('--prefix <name>', 'prefix of all keys (env DELAYQ_PREFIX)');
  for (const [name, [value, meaning]] of Object.entries(OF_URL)) {
    command.addOption(new Option(`--${name} <${value}>`, meaning).hideHelp(command.name() !== 'delayq'));
  }
  return command;
}
