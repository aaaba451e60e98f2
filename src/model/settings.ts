import { type Backoff, formatBackoff, packBackoff, parseBackoff, unpackBackoff } from './backoff.js';
import { DelayqError } from './errors.js';
import { checkEventTypes, EVENT_TYPES, type EventType } from './event.js';
import { printable } from './text.js';
import { exactDuration, parseDuration } from './time.js';
import { checkCount, checkList, checkMs, keysOf } from './validate.js';

/** A number of jobs in a time. */
export interface Rate {
  readonly jobs: number;
  readonly perMs: number;
}

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
  /** How many jobs all drains together may take, on average. Undefined: no limit. */
  readonly rate: Rate | undefined;
  /** How many jobs they may take at once after a quiet time. Undefined: a tenth of the jobs of a second, at least one. */
  readonly burst: number | undefined;
  /** How many jobs may be active at once, over all consumers. Undefined: no limit. */
  readonly maxActive: number | undefined;
  /** How long the id of a job stays taken after the job has ended. Undefined: not at all. */
  readonly onceFor: number | undefined;
  /** Payloads are texts: `enqueue` takes any text, and handlers get it byte for byte. Only the command line reads it. */
  readonly text: boolean;
  /** How many of the last events to keep, about. Undefined: none. */
  readonly events: number | undefined;
  /** Which types of events to keep. Undefined: all. */
  readonly eventTypes: readonly EventType[] | undefined;
  /** How long to keep jobs that are done, and what came out of them. Undefined: not at all. */
  readonly keepDone: number | undefined;
  /** How many of them to keep at most. */
  readonly maxDone: number;
}

/** Settings to change. `null` removes one, so that delayq's own default applies again. */
export type SettingsChange = { readonly [K in keyof Settings]?: Settings[K] | null };

const checkSettings = keysOf<SettingsChange>('a queue', {
  tries: true,
  maxLost: true,
  backoff: true,
  lease: true,
  ttl: true,
  rate: true,
  burst: true,
  maxActive: true,
  onceFor: true,
  text: true,
  events: true,
  eventTypes: true,
  keepDone: true,
  maxDone: true,
});

/** The defaults of a queue without settings. The Lua scripts repeat these values. */
export const DEFAULT_SETTINGS: Settings = {
  tries: 5,
  maxLost: 20,
  backoff: 'exponential',
  lease: 60_000,
  ttl: undefined,
  rate: undefined,
  burst: undefined,
  maxActive: undefined,
  onceFor: undefined,
  text: false,
  events: undefined,
  eventTypes: undefined,
  keepDone: undefined,
  maxDone: 10_000,
};

/** How people write and read a setting (parse, format), and how Redis stores it (pack, unpack). */
interface Kind<T> {
  parse(text: string): T;
  format(value: T): string;
  pack(value: T): string;
  unpack(text: string): T | undefined;
}

const KINDS: { readonly [K in keyof Settings]-?: Kind<NonNullable<Settings[K]>> } = {
  tries: count('tries'),
  maxLost: count('maxLost'),
  backoff: { parse: parseBackoff, format: formatBackoff, pack: packBackoff, unpack: unpackBackoff },
  lease: span('lease', 1),
  ttl: lifetime(),
  rate: { parse: parseRate, format: formatRate, pack: packRate, unpack: unpackRate },
  burst: count('burst'),
  maxActive: count('max-active'),
  onceFor: span('once-for', 1),
  text: toggle('text'),
  events: count('events'),
  eventTypes: types(),
  keepDone: span('keep-done', 1),
  maxDone: count('max-done'),
};

/** Parses a rate such as `10/s`, `100/m`, `5/h` or `1/30s`. Throws `usage` if it is none. */
export function parseRate(text: string): Rate {
  const [, n, unit = ''] = /^(\d+(?:\.\d+)?)\/(.+)$/.exec(text) ?? [];
  try {
    const perMs = parseDuration(/^[a-z]/.test(unit) ? `1${unit}` : unit);
    if (Number(n) > 0) return checkRate({ jobs: Number(n), perMs });
  } catch {}
  throw new DelayqError('usage', `${printable(text)} is not a rate`, {
    why: 'it must be a number above zero and a time',
    next: 'write it as 10/s, 100/m or 1/30s; to take no jobs at all, pause the queue',
  });
}

function checkRate(rate: Rate): Rate {
  const { jobs, perMs } = Object(rate) as Partial<Rate>;
  if (typeof jobs === 'number' && typeof perMs === 'number' && jobs > 0 && jobs <= 1e9 && perMs >= 1 && perMs <= 1e12) {
    return { jobs, perMs };
  }
  throw new DelayqError('usage', 'rate is not valid', {
    next: 'give it as { jobs: 100, perMs: 1_000 }, both above zero',
  });
}

/** The text that {@link parseRate} reads. */
export function formatRate({ jobs, perMs }: Rate): string {
  return `${jobs}/${exactDuration(perMs).replace(/^1(?=[a-z]+$)/, '')}`;
}

function packRate(rate: Rate): string {
  const { jobs, perMs } = checkRate(rate);
  return `${jobs} ${perMs}`;
}

function unpackRate(text: string): Rate | undefined {
  const [jobs = 0, perMs = 0] = text.split(' ').map(Number);
  return jobs > 0 && perMs > 0 ? { jobs, perMs } : undefined;
}

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

/** A time to live; 0 removes it. */
function lifetime() {
  const kind = span('ttl', 0);
  return { ...kind, pack: (ms: number) => (ms === 0 ? '' : kind.pack(ms)) };
}

/** A list of types of events; stored with a space before and behind each. */
function types() {
  return {
    parse: (text: string) => checkEventTypes(text.split(/[\s,]+/).filter(Boolean)),
    format: (list: readonly EventType[]) => list.join(','),
    pack: (list: readonly EventType[]) => ` ${checkEventTypes(checkList(list, 'eventTypes')).join(' ')} `,
    unpack: (text: string) => {
      const list = text.split(' ').filter((one) => EVENT_TYPES.includes(one as EventType)) as EventType[];
      return list.length > 0 ? list : undefined;
    },
  };
}

/** What is on or off; off is stored as nothing. */
function toggle(name: string) {
  const wrong = (given: string) =>
    new DelayqError('usage', `${name} cannot be ${printable(given)}`, { next: `write ${name}=on or ${name}=off` });
  return {
    parse: (text: string) => {
      if (/^(on|yes|true|1)$/i.test(text)) return true;
      if (/^(off|no|false|0)$/i.test(text)) return false;
      throw wrong(text);
    },
    format: (on: boolean) => (on ? 'on' : 'off'),
    pack: (on: boolean) => {
      if (typeof on !== 'boolean') throw wrong(String(on));
      return on ? '1' : '';
    },
    unpack: (text: string) => text === '1' || undefined,
  };
}

function numberOf(text: string): number | undefined {
  return Number.isFinite(Number(text)) && text.trim() !== '' ? Number(text) : undefined;
}

export const SETTING_NAMES = Object.keys(DEFAULT_SETTINGS) as (keyof Settings)[];

/** Settings that a queue with several partitions cannot have. */
export const LIMITS: readonly (keyof Settings)[] = ['rate', 'burst', 'maxActive'];

/** The name of a setting as people write and read it: `max-active`. */
export const settingWord = (name: keyof Settings) => name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

/**
 * Parses `text` as a value of the setting `name`; empty text removes it, and so does `off`, or the word for none of it,
 * if it is off by default. Throws `usage` if either is invalid.
 */
export function parseSetting(name: string, text: string): SettingsChange {
  const known = SETTING_NAMES.find((one) => one === name || settingWord(one) === name);
  if (!known) {
    throw new DelayqError('usage', `unknown setting ${printable(name)}`, {
      next: `the settings are ${SETTING_NAMES.map(settingWord).join(', ')}`,
    });
  }
  const isNone = DEFAULT_SETTINGS[known] === undefined && [formatSetting(known, undefined), 'off'].includes(text);
  return { [known]: text === '' || isNone ? null : KINDS[known].parse(text) };
}

/** Formats the value of a setting so that {@link parseSetting} can read it; in words if there is none. */
export function formatSetting<K extends keyof Settings>(name: K, value: Settings[K]): string {
  if (value === undefined) return name === 'burst' ? 'auto' : name === 'eventTypes' ? 'all' : 'none';
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
  const set = SETTING_NAMES.map((name) => [name, readSetting(name, config[name] ?? '')] as const);
  return Object.fromEntries(set.filter(([, value]) => value !== undefined));
}

/** A stored value; undefined for one that nobody could have set: other software has written it. */
function readSetting(name: keyof Settings, text: string): Settings[keyof Settings] {
  const value = KINDS[name].unpack(text);
  try {
    if (value !== undefined) KINDS[name].pack(value as never);
    return value;
  } catch {
    return undefined;
  }
}
