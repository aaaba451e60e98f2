import { bad, type Finding, fine, redisCli } from '../health/finding.js';
import { isDelayqError } from '../model/errors.js';
import { shellWord } from '../model/text.js';
import type { Arg, Caller, Reply } from '../redis/connection.js';
import { type Form, formsOf, patternsFor } from '../store/rights.js';
import type { Store } from '../store/store.js';
import { HINTS } from './rights.js';

/** The user of a connection on one server, and what it may do: by ACL DRYRUN, if the server has it and allows it. */
export class User {
  readonly #node: Caller;
  /** Undefined: unknown. */
  readonly name: string | undefined;
  readonly hasDryRun: boolean;

  private constructor(node: Caller, name: string | undefined, hasDryRun: boolean) {
    this.#node = node;
    this.name = name;
    this.hasDryRun = hasDryRun;
  }

  static async of(node: Caller): Promise<User> {
    const name = await node.call('ACL', 'WHOAMI').then(String, refusedOr(undefined));
    const asked = node.call('ACL', 'DRYRUN', String(name), 'TIME');
    const hasDryRun = await asked.then(() => true, refusedOr(false));
    return new User(node, name, hasDryRun);
  }

  /** Why Redis refuses a call; undefined: it is allowed. Tries the call on servers without ACL DRYRUN. */
  async refusal(form: Form): Promise<string | undefined> {
    const call = [...form[0].split('|'), ...form.slice(1)] as [string, ...Arg[]];
    if (this.hasDryRun) {
      // An error says that this server does not know the command, so nobody sends it.
      const said = await this.#node.call('ACL', 'DRYRUN', String(this.name), ...call).then(String, refusedOr('OK'));
      return said === 'OK' ? undefined : said;
    }
    try {
      await this.#node.call(...call);
      return undefined;
    } catch (error) {
      if (!isDelayqError(error, 'refused', 'config', 'internal', 'temporary')) throw error;
      return error.code === 'refused' ? String(error.why) : undefined;
    }
  }

  /**
   * Returns the reply to a call; undefined if it is not allowed. Leaves no trace in ACL LOG, where that can be known.
   */
  async ask(command: string, ...args: Arg[]): Promise<Reply | undefined> {
    if (this.hasDryRun && (await this.refusal([command, ...args])) !== undefined) return undefined;
    return this.#node.call(command, ...args).catch(refusedOr(undefined));
  }
}

/**
 * Checks the permissions of `user` on the server at `address` for the keys of a queue, and of one of its partitions.
 */
export async function checkPermissions(
  user: User,
  { address, store, kind }: { address: string; store: Store; kind: 'cluster' | 'sentinel' | undefined },
): Promise<Finding> {
  const who = user.name === undefined ? 'the user of this connection' : `user ${user.name}`;
  const all = formsOf(store).flatMap(({ queues, changing, sentinel, durability, ...forms }, i) => {
    const kinds = kind === 'cluster' ? forms.cluster : kind ? sentinel : [];
    const waits: Form[] = i > 0 ? [...sentinel, ...durability.filter(([command]) => command === 'wait')] : [];
    return user.hasDryRun ? [...queues, ...changing, ...kinds, ...waits] : queues;
  });
  const patterns = patternsFor(store.prefix);
  const denied: string[] = [];
  const accesses = new Set<keyof typeof patterns>();
  for (const form of all) {
    const said = await user.refusal(form);
    const [command] = form;
    if (said === undefined) continue;
    if (/ access /.test(said)) accesses.add(HINTS.includes(command) ? 'channels' : 'keys');
    else if (!denied.includes(command)) denied.push(command);
  }
  if (denied.length + accesses.size === 0) {
    const which = user.hasDryRun || user.name === 'default' ? 'delayq needs' : 'could be tried';
    return fine('rights', `${who} has all permissions that ${which}`);
  }
  const beyond = [...accesses].flatMap((one) => patterns[one]);
  const lacking = [...denied, ...(beyond.length > 0 ? [`use ${beyond.join(' ')}`] : [])];
  const onlyHints = denied.every((command) => HINTS.includes(command)) && !accesses.has('keys');
  const why = onlyHints
    ? 'waiting drains notice new jobs up to a second later'
    : 'commands that need this fail, perhaps only during an incident';
  const rules = [...denied.map((command) => `+${command}`), ...beyond].map(shellWord).join(' ');
  const cure = redisCli(address, `acl setuser ${user.name ? shellWord(user.name) : 'USER'} ${rules}`);
  return bad(onlyHints ? 'warn' : 'fail', 'rights', `${who} may not ${lacking.join(', ')}`, why, cure);
}

/** For commands that this server may not know or not allow: returns `otherwise` instead. */
export function refusedOr<T>(otherwise: T): (error: unknown) => T {
  return (error) => {
    if (isDelayqError(error, 'refused', 'config', 'internal')) return otherwise;
    throw error;
  };
}
