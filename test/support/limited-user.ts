import { execFileSync } from 'node:child_process';
import { aclLine } from '../../src/server/rights.js';
import type { Server } from './server.js';

/** The version of the installed Redis, such as 7.0. */
export const [, VERSION = ''] =
  /v=(\d+\.\d+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' })) ?? [];

/**
 * Returns the URL for a user who has only what `doctor --acl` prints, and may use the prefixes and foreign keys that
 * tests make up (freshName).
 */
export async function limitedUrl(server: Server): Promise<string> {
  const line = aclLine([], { version: VERSION }).replace(/#\S+/, '>secret');
  const [, ...words] = line.split(' ') as [string, string, ...string[]];
  const own = ['q??????????*', 'other:*', 'third:*'];
  await server.admin.call('ACL', ...words, ...own.flatMap((pattern) => [`~${pattern}`, `&${pattern}`]));
  return server.url.replace('://', '://delayq:secret@');
}

/** What Redis has refused: the command, key or channel. */
export async function refusals(server: Server): Promise<string[]> {
  const log = (await server.admin.call('ACL', 'LOG')) as (string | number)[][];
  return log.map((entry) => String(entry[entry.indexOf('object') + 1]));
}
