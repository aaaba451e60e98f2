import { execFileSync } from 'node:child_process';
import { aclLine } from '../../src/server/rights.js';
import type { Server } from './server.js';

/** The version of the installed Redis, such as 7.0. */
export const [, VERSION = ''] =
  /v=(\d+\.\d+)/.exec(execFileSync('redis-server', ['--version'], { encoding: 'utf8' })) ?? [];

/**
 * Returns the URL for a user who has only what `doctor --acl` prints, and may use the prefixes and foreign keys that
 * tests make up.
 */
export async function limitedUrl(url: string, nodes: readonly Server[]): Promise<string> {
  const [, ...words] = aclLine([], { version: VERSION }).replace(/#\S+/, '>secret').split(' ');
  const own = ['q??????????*', 'other:*', 'third:*', 'later:q*', 'data:q*'];
  const rules = own.flatMap((pattern) => [`~${pattern}`, `&${pattern}`]);
  for (const { admin } of nodes) await admin.call('ACL', ...words, ...rules);
  return url.replace('://', '://app:secret@');
}

/** What Redis has refused: commands, keys and channels. */
export async function refusals(nodes: readonly Server[]): Promise<string[]> {
  const logs = await Promise.all(nodes.map(({ admin }) => admin.call('ACL', 'LOG') as Promise<(string | number)[][]>));
  return logs.flat().map((entry) => String(entry[entry.indexOf('object') + 1]));
}
