import { Command } from 'commander';
import {
  Auditor,
  aclLine,
  DelayqError,
  Doctor,
  type Finding,
  type Found,
  hasLogin,
  isDelayqError,
  isPassing,
  shellWord,
  worst,
} from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import { isAgreed, requireTerminal } from '../bulk/confirm.js';
import { type Context, type Globals, URL_OPTIONS, urlOption } from '../host/context.js';
import {
  colours,
  document,
  fold,
  grouped,
  type Paint,
  type Room,
  say,
  shownId,
  sizeOf,
  visible,
  writeJson,
} from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';

interface Options extends Globals {
  readonly fix?: boolean;
  readonly yes?: boolean;
  readonly setNoeviction?: boolean;
  readonly quiet?: boolean;
  readonly acl?: boolean;
  readonly redisVersion?: string;
}

export function doctorCommand(context: Context): Command {
  const command = new Command('doctor')
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
  details(command, [
    'Each line begins with ok, warn, fail, or skip (this Redis does not allow the',
    'check). Queues stay in use: jobs are read in small steps. --fix never deletes a',
    'payload. With noeviction a full Redis refuses writes instead of deleting keys;',
    'that includes the writes of caches in the same Redis.',
    '',
    '--acl does not connect. It prints a line for redis-cli; in redis.conf write user',
    'instead of ACL SETUSER. Replace #SHA256-OF-THE-PASSWORD, for example by >secret.',
    'The user can do everything with the queues. It lacks CONFIG and SLOWLOG, which',
    'show passwords and data of others: doctor skips what needs them, and',
    '--set-noeviction is refused.',
    '',
    'Exit status: 0 no problems, 1 warnings, 2 failures.',
  ]);
  examples(command, [
    'delayq doctor',
    'delayq doctor --fix order-close',
    'delayq doctor --acl --redis-version 7.0 order-close',
    `delayq doctor --json | jq -r '.findings[] | select(.level == "fail") | .next'`,
  ]);
  return addGlobals(command);
}

const NEXT = 'see what is broken without --fix, then repeat with --fix --yes';

async function printAcl(context: Context, queues: readonly string[], options: Options): Promise<void> {
  const { fix, setNoeviction, quiet, json, redisVersion: version } = options;
  if (fix || setNoeviction || quiet || json) {
    const why = '--acl only prints a line, and does not connect';
    throw new DelayqError('usage', '--acl excludes other actions', { why, next: 'give it alone' });
  }
  await context.write(
    `${aclLine(queues, { prefix: context.prefix(options), ...(version !== undefined && { version }) })}\n`,
  );
}

async function run(context: Context, names: readonly string[], options: Options): Promise<void> {
  if (options.redisVersion !== undefined)
    throw new DelayqError('usage', '--redis-version needs --acl', { next: 'give both, or neither' });
  if (options.yes && !options.fix)
    throw new DelayqError('usage', '--yes needs --fix', { next: 'give both, or neither' });
  if (options.fix && !options.yes) requireTerminal(context, 'repair', NEXT);
  const stop = context.stopSignal();
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const doctor = new Doctor(redis, { prefix });
  const auditor = new Auditor(redis, { prefix });
  const report = new Report(context, options);
  const loading = await doctor.loading();
  if (loading) await report.tell([loading]);
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
    await report.tell(found);
    await report.tell(await doctor.names({ odd, hidden }));
    const unserved = found.map(({ queue }) => queue);
    for (const queue of queues) {
      if (stop.aborted) break;
      if (unserved.includes(queue)) continue;
      await report.examine(auditor, queue, stop);
    }
    if (options.fix && !stop.aborted) report.tellIfWhole();
  }
  await report.end(redis.address, prefix);
  if (stop.aborted) context.outcomes.add('interrupted');
}

/** Prints findings as they come, or all of them at the end as JSON. */
class Report {
  readonly #context: Context;
  readonly #options: Options;
  #findings: Finding[] = [];
  readonly #line: Progress;

  constructor(context: Context, options: Options) {
    this.#context = context;
    this.#options = options;
    this.#line = new Progress(context);
  }

  async tell(findings: readonly Finding[]): Promise<void> {
    this.#findings.push(...findings);
    this.#line.clear();
    if (this.#options.json) return;
    const paint = await colours(this.#context, this.#context.stdout);
    const room = sizeOf(this.#context, this.#context.stdout);
    for (const finding of findings) {
      const quiet = this.#options.quiet && (finding.level === 'skip' || (finding.level === 'ok' && !finding.mended));
      if (!quiet) await this.#context.write(linesOf(finding, commandWith(this.#options), paint, room));
    }
  }

  /** Checks one queue, reports its problems, and repairs them if the user agrees. */
  async examine(auditor: Auditor, queue: string, signal: AbortSignal): Promise<void> {
    const { fix, yes = false } = this.#options;
    const progress = (looked: number, total: number) =>
      this.#line.tell(() => `${queue}: checked ${grouped(looked)} of ${grouped(total)} entries`);
    const look = (mend: boolean) => auditor.examine(queue, { mend, signal, progress });
    const found = await look(yes);
    await this.tell(found);
    const mendable = found.filter((finding) => finding.mendable);
    if (!fix || yes || signal.aborted || mendable.length === 0) return;
    const question = `repair ${mendable.map(({ what }) => visible(what)).join('; ')}`;
    if (!(await isAgreed(this.#context, question, signal))) return say(this.#context, `nothing repaired in ${queue}`);
    // What was found before is out of date.
    this.#findings = this.#findings.filter((finding) => finding.queue !== queue);
    await this.tell(await look(true));
  }

  /** Says that a repair found nothing to do. */
  tellIfWhole(): void {
    const { quiet, json } = this.#options;
    const isWhole = !this.#findings.some(({ mendable, mended }) => mendable || mended);
    if (isWhole && !quiet && !json) say(this.#context, 'nothing to repair');
  }

  async end(redis: string, prefix: string): Promise<void> {
    const status = worst(this.#findings);
    this.#context.outcomes.add(status);
    if (!this.#options.json) return;
    await writeJson(this.#context, document({ redis, prefix, status, findings: this.#findings }));
  }
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

const WIDTH = 'order-close'.length;

/** The most nodes that are named. */
const NAMED = 3;

/** The names of servers: host:port. */
function nodesOf(addresses: readonly string[]): string {
  const names = addresses.slice(0, NAMED).map((address) => address.replace(/^\w+:\/\//, ''));
  const more = addresses.length - NAMED;
  return names.join(', ') + (more > 0 ? ` and ${grouped(more)} more` : '');
}

function linesOf(finding: Finding, delayq: string, paint: Paint, room: Room): string {
  const { level, queue, nodes, samples = [], why, next } = finding;
  const what = nodes ? `${nodesOf(nodes)}: ${finding.what}` : finding.what;
  const colour = { ok: paint.green, skip: paint.dim, warn: paint.yellow.bold, fail: paint.red.bold }[level];
  const more = (name: string, text: string) => `${' '.repeat(6)}${paint.dim(`${name}:`.padEnd(5))} ${visible(text)}`;
  const lines = fold(
    `${colour(level.padEnd(4))}  ${(queue ?? 'redis').padEnd(WIDTH)}  ${visible(what)}`,
    room,
    8 + WIDTH,
  );
  if (samples.length > 0) lines.push(...fold(more('ids', samples.map(shownId).join(', ')), room, 12));
  if (why !== undefined) lines.push(...fold(more('why', why), room, 12));
  // Not broken: it is to be copied.
  if (next !== undefined)
    lines.push(
      more(
        'next',
        next.replace(/\bdelayq(?= [a-z])/g, () => delayq),
      ),
    );
  return `${lines.join('\n')}\n`;
}
