import { type Backoff, formatBackoff, packBackoff, parseBackoff, unpackBackoff } from './backoff.js';
import { DelayqError } from './errors.js';
import { exactDuration, parseDuration } from './time.js';
import { checkCount, checkMs } from './validate.js';

/** Defaults of a queue for jobs and callers that say nothing else. Durations are ms. */
export interface Settings {
  /** Failures until a job is dead. */
  readonly tries: number;
  /** Losses until a job is dead. */
  readonly maxLost: number;
  /** How long a job that failed waits. */
  readonly backoff: Backoff;
  /** How long a taken job is hidden from other drains. */
  readonly lease: number;
  /** Jobs later than this after their first due time are dropped; undefined: never. */
  readonly ttl: number | undefined;
}

/** Settings to change; `null` removes one, so that the default of delayq holds again. */
export type SettingsChange = { readonly [K in keyof Settings]?: Settings[K] | null };

/** What holds for a queue that says nothing. The scripts know the same values. */
export const DEFAULT_SETTINGS: Settings = {
  tries: 5,
  maxLost: 20,
  backoff: 'exponential',
  lease: 60_000,
  ttl: undefined,
};

/** Each setting: how a person writes and reads it, and how its text in the config of a queue is made and read. */
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
    parse: (text: string) => checkCount(/^\d+$/.test(text) ? Number(text) : Number.NaN, name),
    format: String,
    pack: (n: number) => String(checkCount(n, name)),
    unpack: numberOf,
  };
}

function span(name: string, least: number) {
  const check = (ms: number) => Math.round(checkMs(ms, name, least));
  return {
    parse: (text: string) => check(parseDuration(text)),
    format: exactDuration,
    pack: (ms: number) => String(check(ms)),
    unpack: numberOf,
  };
}

function numberOf(text: string): number | undefined {
  return Number.isFinite(Number(text)) && text.trim() !== '' ? Number(text) : undefined;
}

/** The names of the settings. */
export const SETTING_NAMES = Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[];

/** Reads `text` as a value of the setting `name`. Throws a `usage` error when there is no such setting or value. */
export function parseSetting(name: string, text: string): SettingsChange {
  if (!SETTING_NAMES.includes(name as keyof Settings)) {
    throw new DelayqError('usage', `there is no setting ${JSON.stringify(name)}`, {
      next: `the settings are ${SETTING_NAMES.join(', ')}`,
    });
  }
  return { [name]: text === '' ? null : KINDS[name as keyof Settings].parse(text) };
}

/** Writes the value of a setting for people, as {@link parseSetting} reads it. */
export function formatSetting<K extends keyof Settings>(name: K, value: Settings[K]): string {
  return KINDS[name].format(value as never);
}

/** A change as the scripts take it: name, text (empty: remove). Throws a `usage` error for a value that cannot be. */
export function packSettings(change: SettingsChange): string[] {
  return SETTING_NAMES.flatMap((name) => {
    const value = change[name];
    if (value === undefined) return [];
    return [name, value === null ? '' : KINDS[name].pack(value as never)];
  });
}

/** Those settings that a queue's config holds; what cannot be read counts as not set, as it does in the scripts. */
export function readSettings(config: Readonly<Record<string, string>>): Partial<Settings> {
  const set = SETTING_NAMES.map((name) => [name, KINDS[name].unpack(config[name] ?? '')] as const);
  return Object.fromEntries(set.filter(([, value]) => value !== undefined));
}
