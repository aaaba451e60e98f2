import { DelayqError } from '../model/errors.js';
import { printable } from '../model/text.js';
import { checkName } from '../model/validate.js';
import { DEFAULT_PREFIX } from '../store/keys.js';
import { formsFor, patternsFor } from '../store/rights.js';

/** Commands that only make drains notice new jobs sooner. */
export const HINTS = ['publish', 'subscribe', 'spublish', 'ssubscribe'];

/** The first version of Redis that knows a command, if it is later than 6.2. Older ones refuse a rule that names it. */
const SINCE: Readonly<Record<string, number>> = { spublish: 700, ssubscribe: 700, 'acl|dryrun': 700, waitaof: 702 };

/**
 * Returns the ACL SETUSER line for a user who can do all that delayq does with `queues`, or with all queues of the
 * prefix. The place of the password holds what Redis refuses, so that the line does nothing before it is filled in.
 * `version` is that of Redis, such as 7.0; default: the newest. Throws `usage` for an invalid name or version.
 */
export function aclLine(queues: readonly string[], { prefix = DEFAULT_PREFIX, version = '99.0' } = {}): string {
  checkName(prefix, 'prefix');
  const [, major, minor] = /^(\d+)\.(\d{1,2})(?:\.\d+)?$/.exec(version) ?? [];
  const number = Number(major) * 100 + Number(minor);
  if (!(number >= 602)) {
    const why = 'it must be 6.2 or newer';
    const next = 'write it as 7.0; for Redis 7.2 or newer, and for Valkey, omit it';
    throw new DelayqError('usage', `no ACL for Redis ${printable(version)}`, { why, next });
  }
  const { keys, channels } = patternsFor(
    prefix,
    queues.map((name) => checkName(name)),
  );
  const named = Object.values(formsFor(prefix, 'queue')).flatMap((forms) => forms.map(([command]) => command));
  const commands = [...new Set(named)].filter((command) => number >= (SINCE[command] ?? 0));
  return [
    'ACL SETUSER app on #SHA256-OF-THE-PASSWORD',
    ...['resetkeys', ...keys, 'resetchannels', ...channels],
    ...['-@all', ...commands.sort().map((command) => `+${command}`)],
  ].join(' ');
}
