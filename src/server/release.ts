import { bad, type Finding, fine, unknown } from '../health/finding.js';
import type { Info } from './info.js';

/** Which server it is, such as Valkey 8.1.1: 801. Valkey calls itself Redis 7.2.4 as well. */
interface Release {
  readonly name: 'Redis' | 'Valkey';
  readonly version: string;
  readonly number: number;
}

/** The first release of Redis that has WAITAOF, for --durable. */
const WAITAOF = 702;

function releaseOf({ valkey_version, redis_version }: Info): Release | undefined {
  const version = valkey_version ?? redis_version;
  if (!version) return undefined;
  const [major = 0, minor = 0] = version.split('.').map(Number);
  return { name: valkey_version ? 'Valkey' : 'Redis', version, number: major * 100 + minor };
}

/**
 * Whether WAITAOF, with appendfsync everysec, confirms what is only written, and not synced yet: redis/redis#13793. Redis
 * mended this in 7.4.3 and 8.0; of Valkey no version is known that has.
 */
export function confirmsEarly(info: Info): boolean {
  const { name, version = '' } = releaseOf(info) ?? {};
  return name === 'Valkey' || /^7\.4\.[0-2]$/.test(version);
}

/** Checks that the server is new enough. */
export function version(info: Info): Finding {
  const release = releaseOf(info);
  if (!release) return unknown('version', 'INFO shows no version');
  const { name, version, number } = release;
  if (number < 602) {
    const why = 'delayq needs commands that Redis 6.2 introduced';
    return bad('fail', 'version', `${name} ${version}`, why, 'install Redis 7 or Valkey');
  }
  const limits = number < WAITAOF ? '; enqueue --durable needs Redis 7.2' : '';
  return fine('version', `${name} ${version}${limits}`);
}
