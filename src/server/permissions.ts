import { bad, type Finding, fine, redisCli } from '../health/finding.js';
import { shellWord } from '../model/text.js';
import { type Form, formsOf, patternsFor } from '../store/rights.js';
import type { Store } from '../store/store.js';
import type { Node } from './node.js';
import { HINTS } from './rights.js';

/** Checks the permissions of the user on a server for the keys of a queue, and of one of its partitions. */
export async function checkPermissions(
  node: Node,
  store: Store,
  kind: 'cluster' | 'sentinel' | undefined,
  keepsEvents: boolean,
): Promise<Finding> {
  const { address, user, hasDryRun } = node;
  const who = user === undefined ? 'the user of this connection' : `user ${user}`;
  const all = formsOf(store).flatMap(({ queues, changing, events, sentinel, durability, ...forms }, i) => {
    const kinds = kind === 'cluster' ? forms.cluster : kind ? sentinel : [];
    const waits: Form[] = i > 0 ? [...sentinel, ...durability.filter(([command]) => command === 'wait')] : [];
    // Without them events are lost, and nothing fails.
    const ofEvents = keepsEvents ? events : [];
    return hasDryRun ? [...queues, ...changing, ...ofEvents, ...kinds, ...waits] : queues;
  });
  const patterns = patternsFor(store.prefix);
  const denied: string[] = [];
  const accesses = new Set<keyof typeof patterns>();
  for (const form of all) {
    const said = await node.refusal(form);
    const [command] = form;
    if (said === undefined) continue;
    if (/ access /.test(said)) accesses.add(HINTS.includes(command) ? 'channels' : 'keys');
    else if (!denied.includes(command)) denied.push(command);
  }
  if (denied.length + accesses.size === 0) {
    const which = hasDryRun || user === 'default' ? 'delayq needs' : 'could be tried';
    return fine('rights', `${who} has all permissions that ${which}`);
  }
  const beyond = [...accesses].flatMap((one) => patterns[one]);
  const lacking = [...denied, ...(beyond.length > 0 ? [`use ${beyond.join(' ')}`] : [])];
  const onlyHints = denied.every((command) => HINTS.includes(command)) && !accesses.has('keys');
  const why = onlyHints
    ? 'waiting drains notice new jobs up to a second later'
    : 'commands that need this fail, perhaps only during an incident';
  const rules = [...denied.map((command) => `+${command}`), ...beyond].map(shellWord).join(' ');
  const cure = redisCli(address, `acl setuser ${user ? shellWord(user) : 'USER'} ${rules}`);
  return bad(onlyHints ? 'warn' : 'fail', 'rights', `${who} may not ${lacking.join(', ')}`, why, cure);
}
