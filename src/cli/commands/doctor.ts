import { Command } from 'commander';
import {
  Auditor,
  DelayqError,
  Doctor,
  type Finding,
  type Found,
  hasLogin,
  isDelayqError,
  shellWord,
  worst,
} from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { colours, document, grouped, type Paint, say, shownId, visible, visibleJson } from '../terminal/output.js';
import { Progress } from '../terminal/progress.js';

interface Options extends Globals {
  readonly fix?: boolean;
  readonly yes?: boolean;
  readonly setNoeviction?: boolean;
  readonly quiet?: boolean;
}

export function doctorCommand(context: Context): Command {
  const command = new Command('doctor')
    .description(
      'Looks whether Redis can keep queues, and whether every job of all queues (or of those named) is whole, in small steps while they are used.',
    )
    .argument('[queue...]', 'names of queues')
    .option('--fix', 'mend what can be mended; what cannot goes to dead. No payload is ever deleted')
    .option('-y, --yes', 'with --fix: do not ask')
    .option('--set-noeviction', 'first have Redis refuse what would grow it when it is full, rather than delete keys')
    .option('-q, --quiet', 'only what is not in order')
    .option('--json', 'write one JSON document')
    .action((queues: string[], options: Options) => run(context, queues, options));
  details(command, [
    'Each line begins with ok, warn, fail, or skip: this Redis does not let it be looked at.',
    '--set-noeviction concerns all that is kept in this Redis: a cache there will fill it, and be refused then.',
    'Exit status: 0 all in order, 1 warnings, 2 failures.',
  ]);
  examples(command, [
    'delayq doctor',
    'delayq doctor --fix order-close',
    `delayq doctor --json | jq -r '.findings[] | select(.level == "fail") | .next'`,
  ]);
  return addGlobals(command);
}

async function run(context: Context, names: readonly string[], options: Options): Promise<void> {
  if (options.yes && !options.fix) throw new DelayqError('usage', '--yes needs --fix', { next: 'give both, or none' });
  if (options.fix && !options.yes && !context.canAsk) {
    throw new DelayqError('usage', 'nobody is here to be asked whether to mend', {
      why: 'stdin and stderr are no terminal',
      next: 'see what would be mended without --fix, then repeat with --fix --yes',
    });
  }
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
      const until = lasting ? '' : ' until it is restarted: write it into its configuration as well';
      say(context, `maxmemory-policy is noeviction now${until}`);
    }
    for (const name of names) {
      await requireQueue(redis, prefix, name).catch((error: unknown) => {
        // One that cannot be read is what we are here for.
        if (!isDelayqError(error, 'config', 'refused')) throw error;
      });
    }
    const { queues, odd, hidden } = names.length > 0 ? named(names) : await auditor.queues(stop);
    await report.tell(await doctor.examine(queues));
    await report.tell(doctor.names({ odd, hidden }));
    for (const queue of queues) {
      if (stop.aborted) break;
      await examine(context, auditor, report, { queue, options, stop });
    }
  }
  await report.end(redis.address, prefix);
  if (stop.aborted) context.outcomes.add('interrupted');
}

/** As if these were all there are. */
function named(names: readonly string[]): Found {
  return { queues: [...new Set(names)], odd: [], hidden: undefined };
}

/** Looks at one queue, tells what it has found, and mends it once somebody has agreed. */
async function examine(
  context: Context,
  auditor: Auditor,
  report: Report,
  { queue, options, stop }: { queue: string; options: Options; stop: AbortSignal },
): Promise<void> {
  const look = (mend: boolean) =>
    auditor.examine(queue, {
      mend,
      signal: stop,
      progress: (looked, total) => report.progress(queue, looked, total),
    });
  const found = await look(options.yes === true);
  await report.tell(found);
  if (!options.fix || options.yes || stop.aborted) return;
  const mendable = found.filter((finding) => finding.mendable);
  if (mendable.length === 0) return;
  const answer = await context.ask(`mend ${mendable.map(({ what }) => visible(what)).join('; ')}? [y/N] `, stop);
  if (!/^y(es)?$/i.test(answer.trim())) return say(context, `nothing mended in ${queue}`);
  report.forget(queue);
  await report.tell(await look(true));
}

/** Collects what was found, and tells of it as it comes, or at the end as JSON. */
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
    for (const finding of findings) {
      const quiet = this.#options.quiet && (finding.level === 'skip' || (finding.level === 'ok' && !finding.mended));
      if (!quiet) await this.#context.write(linesOf(finding, commandWith(this.#options), paint));
    }
  }

  /** What was found in `queue` holds no longer. */
  forget(queue: string): void {
    this.#findings = this.#findings.filter((finding) => finding.queue !== queue);
  }

  /** Tells on a terminal how far it has got. */
  progress(queue: string, looked: number, total: number): void {
    this.#line.tell(() => `${queue}: looked at ${grouped(looked)} of ${grouped(total)} entries`);
  }

  async end(redis: string, prefix: string): Promise<void> {
    const status = worst(this.#findings);
    this.#context.outcomes.add(status);
    if (!this.#options.json) return;
    const json = document({ redis, prefix, status, findings: this.#findings });
    await this.#context.write(this.#context.stdout.isTTY ? visibleJson(json) : json);
  }
}

/** How delayq is called to meet the same Redis and namespace again, as far as the command line said so. */
function commandWith({ redis, prefix }: Options): string {
  const shown = redis === undefined ? '' : ` --redis ${hasLogin(redis) ? "'…'" : shellWord(redis)}`;
  return `delayq${shown}${prefix === undefined ? '' : ` --prefix ${prefix}`}`;
}

const WIDTH = 'order-close'.length;

function linesOf({ level, queue, what, samples = [], why, next }: Finding, delayq: string, paint: Paint): string {
  const colour = { ok: paint.green, skip: paint.dim, warn: paint.yellow.bold, fail: paint.red.bold }[level];
  const more: [string, string | undefined][] = [
    ['ids', samples.length > 0 ? samples.map(shownId).join(', ') : undefined],
    ['why', why],
    ['next', next?.replace(/\bdelayq(?= [a-z])/g, () => delayq)],
  ];
  return [
    `${colour(level.padEnd(4))}  ${(queue ?? 'redis').padEnd(WIDTH)}  ${visible(what)}\n`,
    ...more
      .filter(([, text]) => text !== undefined)
      .map(([name, text]) => `${' '.repeat(6)}${paint.dim(`${name}:`.padEnd(5))} ${visible(text as string)}\n`),
  ].join('');
}
