import {
  aclLine,
  Doctor,
  type Finding,
  type Found,
  hasLogin,
  isDelayqError,
  isPassing,
  shellWord,
  worst,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access, requireQueue } from '../args/queues.js';
import { isAgreed, requireTerminal } from '../bulk/confirm.js';
import { type Context, type Globals, URL_OPTIONS, urlOption } from '../host/context.js';
import { colours, document, grouped, say, sizeOf, visible, writeJson } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';
import { findingLines } from '../views/finding.js';

interface Options extends Globals {
  readonly fix?: boolean;
  readonly yes?: boolean;
  readonly setNoeviction?: boolean;
  readonly quiet?: boolean;
  readonly acl?: boolean;
  readonly redisVersion?: string;
}

export function doctorCommand(command: CliCommand, context: Context): void {
  command
    .description('Check the settings of Redis and every job of the queues; repair what is broken.')
    .argument('[queue...]', 'names of queues (default: all)')
    .option('--fix', 'repair; move to the dead set what cannot be repaired')
    .option('-y, --yes', 'with --fix: do not ask for confirmation')
    .option('--set-noeviction', 'first set maxmemory-policy of Redis to noeviction')
    .option('-q, --quiet', 'print only problems')
    .option('--json', 'print one JSON document')
    .option('--acl', 'print the permissions that delayq needs, as an ACL SETUSER line, and do nothing else')
    .option('--redis-version <version>', 'with --acl: the version, if it is older than 7.2')
    .action((queues: string[], options: Options) =>
      options.acl ? printAcl(context, queues, options) : run(context, queues, options),
    );
  command.exclude({ acl: ['fix', 'yes', 'setNoeviction', 'quiet', 'json'] });
  command.details(`
    Each line begins with ok, warn, fail, or skip (this Redis does not allow the check). Queues stay in use: jobs are
    read in small steps. --fix never deletes a payload. With noeviction a full Redis refuses writes instead of deleting
    keys; that includes the writes of caches in the same Redis.

    --acl does not connect. It prints a line for redis-cli; in redis.conf write user instead of ACL SETUSER. Replace
    #SHA256-OF-THE-PASSWORD, for example by >secret. The user can do everything with the queues. It lacks CONFIG and
    SLOWLOG, which show passwords and data of others: doctor skips what needs them, and --set-noeviction is refused.

    Exit status: 0 no problems, 1 warnings, 2 failures.
  `);
  command.examples([
    'delayq doctor',
    'delayq doctor --fix order-close',
    'delayq doctor --acl --redis-version 7.0 order-close',
    `delayq doctor --json | jq -r '.findings[] | select(.level == "fail") | .next'`,
  ]);
}

const NEXT = 'see what is broken without --fix, then repeat with --fix --yes';

async function printAcl(context: Context, queues: readonly string[], options: Options): Promise<void> {
  const { redisVersion: version } = options;
  const line = aclLine(queues, { prefix: context.prefix(options), ...(version !== undefined && { version }) });
  await context.write(`${line}\n`);
}

async function run(context: Context, names: readonly string[], options: Options): Promise<void> {
  const { fix, yes = false, quiet, json } = options;
  if (options.redisVersion !== undefined) throw usageError('--redis-version needs --acl', 'give both, or neither');
  if (yes && !fix) throw usageError('--yes needs --fix', 'give both, or neither');
  if (fix && !yes) requireTerminal(context, 'repair', NEXT);
  const stop = context.stopSignal();
  const { redis, prefix, auditor } = access(context, options);
  const doctor = new Doctor(redis, { prefix });
  let findings: Finding[] = [];
  const line = new Progress(context);
  /** Prints findings as they come, unless all of them are printed at the end as JSON. */
  const tell = async (some: readonly Finding[]) => {
    findings.push(...some);
    line.clear();
    if (json) return;
    const paint = await colours(context, context.stdout);
    const how = { delayq: commandWith(options), paint, room: sizeOf(context, context.stdout) };
    for (const finding of some) {
      const isGood = finding.level === 'skip' || (finding.level === 'ok' && !finding.mended);
      if (!(quiet && isGood)) await context.write(`${findingLines(finding, how).join('\n')}\n`);
    }
  };
  /** Checks one queue, reports its problems, and repairs them if the user agrees. */
  const examine = async (queue: string) => {
    const progress = (looked: number, total: number) =>
      line.tell(() => `${queue}: checked ${grouped(looked)} of ${grouped(total)} entries`);
    const look = (mend: boolean) => auditor.examine(queue, { mend, signal: stop, progress });
    const found = await look(yes);
    await tell(found);
    const mendable = found.filter((finding) => finding.mendable);
    if (!fix || yes || stop.aborted || mendable.length === 0) return;
    const question = `repair ${mendable.map(({ what }) => visible(what)).join('; ')}`;
    if (!(await isAgreed(context, question, stop))) return say(context, `nothing repaired in ${queue}`);
    // What was found before is out of date.
    findings = findings.filter((finding) => finding.queue !== queue);
    await tell(await look(true));
  };

  const loading = await doctor.loading();
  if (loading) await tell([loading]);
  else {
    if (options.setNoeviction) {
      const { lasting } = await doctor.setNoeviction();
      const until = lasting ? '' : ' until Redis restarts: set it in redis.conf as well';
      say(context, `maxmemory-policy is now noeviction${until}`);
    }
    const required = names.map((name) =>
      requireQueue(redis, prefix, name).catch((error: unknown) => {
        // A queue that cannot be read is one of the problems to report.
        if (!isDelayqError(error, 'config', 'refused') && !(redis.sharded && isPassing(error))) throw error;
      }),
    );
    await Promise.all(required);
    const named: Found = { queues: [...new Set(names)], odd: [], hidden: undefined };
    const { queues, odd, hidden } = names.length > 0 ? named : await auditor.queues(stop);
    const found = await doctor.examine(queues);
    await tell(found);
    await tell(await doctor.names({ odd, hidden }));
    const unserved = found.map(({ queue }) => queue);
    for (const queue of queues) if (!stop.aborted && !unserved.includes(queue)) await examine(queue);
    const isWhole = !findings.some(({ mendable, mended }) => mendable || mended);
    if (fix && !stop.aborted && isWhole && !quiet && !json) say(context, 'nothing to repair');
  }
  const status = worst(findings);
  context.outcomes.add(status);
  if (json) await writeJson(context, document({ redis: redis.address, prefix, status, findings }));
  if (stop.aborted) context.outcomes.add('interrupted');
}

/** delayq with the options of this command line that lead to the queues, for the commands it suggests. */
function commandWith(options: Options): string {
  // A key may be given as text, not as a path.
  const shown = (value: string) => (hasLogin(value) || value.includes('\n') ? '…' : value);
  const words = ['redis', 'prefix', ...Object.keys(URL_OPTIONS)].flatMap((name) => {
    const value = urlOption(options, name);
    return value === undefined ? [] : [`--${name} ${shellWord(shown(value))}`];
  });
  return ['delayq', ...words].join(' ');
}
