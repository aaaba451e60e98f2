import { type Backoff, formatBackoff, packBackoff, parseBackoff, unpackBackoff } from './backoff.js';
import { DelayqError } from './errors.js';
import { printable } from './text.js';
import { exactDuration, parseDuration } from './time.js';
import { checkCount, checkMs, keysOf } from './validate.js';

/** Defaults of a queue. Jobs and callers can override them. Durations are ms. */
export interface Settings {
  /** Failures after which a job is dead. */
  readonly tries: number;
  /** Expired leases after which a job is dead. */
  readonly maxLost: number;
  /** How long a failed job waits before its next attempt. */
  readonly backoff: Backoff;
  /** How long a delivered job is hidden from other drains. */
  readonly lease: number;
  /** How long after its first due time a job expires and is dropped. Undefined: never. */
  readonly ttl: number | undefined;
}

/** Settings to change. `null` removes one, so that delayq's own default applies again. */
export type SettingsChange = { readonly [K in keyof Settings]?: Settings[K] | null };

const checkSettings = keysOf<SettingsChange>('a queue', {
  tries: 'attempts retries maxRetries maxAttempts',
  maxLost: 'maxStalledCount',
  backoff: 'delay',
  lease: 'timeout visibilityTimeout',
  ttl: 'expires expiresIn',
});

/** The defaults of a queue without settings. The Lua scripts repeat these values. */
export const DEFAULT_SETTINGS: Settings = {
  tries: 5,
  maxLost: 20,
  backoff: 'exponential',
  lease: 60_000,
  ttl: undefined,
};

/** Each setting: how people write and read it (parse, format), and how Redis stores it (pack, unpack). */
const KINDS: {
  readonly [K in keyof Settings]-?: {
    parse(text: string): Settings[K];
    format(value: Settings[K]): string;
    pack(value: NonNullable<Settings[K]>): string;
    unpack(text: string): Settings[K] | undefined;
  };
} = {
  tries: count('tries'),
  maxLost: count('maxLost'),
  backoff: { parse: parseBackoff, format: formatBackoff, pack: packBackoff, unpack: unpackBackoff },
  lease: span('lease', 1),
  ttl: {
    ...span('ttl', 0),
    format: (ms: number | undefined) => (ms === undefined ? 'none' : exactDuration(ms)),
  },
};

function count(name: string) {
  return {
    parse: (text: string) => checkCount(/^\d+$/.test(text) ? Number(text) : Number.NaN, name, text),
    format: String,
    pack: (n: number) => String(checkCount(n, name)),
    unpack: numberOf,
  };
}

function span(name: string, least: number) {
  const check = (ms: number) => Math.round(checkMs(ms, name, least));
  const parse = (text: string) => {
    const ms = parseDuration(text);
    if (ms >= least) return check(ms);
    throw new DelayqError('usage', `${name} cannot be ${text}`, {
      why: 'it must be greater than zero',
      next: `write a duration such as ${name}=90s`,
    });
  };
  return {
    parse,
    format: exactDuration,
    pack: (ms: number) => String(check(ms)),
    unpack: numberOf,
  };
}

function numberOf(text: string): number | undefined {
  return Number.isFinite(Number(text)) && text.trim() !== '' ? Number(text) : undefined;
}

export const SETTING_NAMES = Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[];

/** Parses `text` as a value of the setting `name`; empty text removes it. Throws `usage` if either is invalid. */
export function parseSetting(name: string, text: string): SettingsChange {
  if (!SETTING_NAMES.includes(name as keyof Settings)) {
    throw new DelayqError('usage', `unknown setting ${printable(name)}`, {
      next: `the settings are ${SETTING_NAMES.join(', ')}`,
    });
  }
  return { [name]: text === '' ? null : KINDS[name as keyof Settings].parse(text) };
}

/** Formats the value of a setting so that {@link parseSetting} can read it. */
export function formatSetting<K extends keyof Settings>(name: K, value: Settings[K]): string {
  return KINDS[name].format(value as never);
}

/** Returns a change as names and texts in turn (empty: remove), for the script. Throws `usage` for an invalid value. */
export function packSettings(change: SettingsChange): string[] {
  checkSettings(change);
  return SETTING_NAMES.flatMap((name) => {
    const value = change[name];
    if (value === undefined) return [];
    return [name, value === null ? '' : KINDS[name].pack(value as never)];
  });
}

/** Returns the settings that are stored in a queue's config. Unreadable ones count as not set, as in the scripts. */
export function readSettings(config: Readonly<Record<string, string>>): Partial<Settings> {
  const set = SETTING_NAMES.map((name) => [name, KINDS[name].unpack(config[name] ?? '')] as const);
  return Object.fromEntries(set.filter(([, value]) => value !== undefined));
}
