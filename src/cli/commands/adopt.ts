import { type LeftReason, queueWord } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { choice, count, ifExists } from '../args/options.js';
import { access } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, grouped, many, say, shownId } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends Globals {
  readonly zset?: string;
  readonly hash?: string;
  readonly stringKeys?: string;
  readonly unit: 's' | 'ms';
  readonly wrap?: boolean;
  readonly ifExists?: 'keep' | 'replace';
  readonly expect?: number;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
}

/** Why jobs were left; `isPassing` if a second run may adopt them. */
const REASONS: Record<LeftReason, { text: string; isPassing?: boolean }> = {
  'no-value': { text: 'has no value: half-written, or long gone', isPassing: true },
  changed: { text: 'kept changing', isPassing: true },
  exists: { text: 'is in the queue already, with another time or payload' },
  id: { text: 'is not a valid id: printable ASCII without spaces, 1 to 256 characters' },
  time: { text: 'has an invalid time' },
  payload: { text: 'has a value that is not a valid payload' },
};

/** How many ids are reported for each reason. */
const REPORTED = 20;

export function adoptCommand(command: CliCommand, context: Context): void {
  command
    .description(
      'Move the jobs of other software from a sorted set (id, time) and a hash or string keys (payloads) to a queue.',
    )
    .argument('<queue>', 'name of the queue to move them to')
    .option('--zset <key>', 'the sorted set')
    .option('--hash <key>', 'the hash')
    .option('--string-keys <name>', 'in place of --hash: the names of string keys, such as job:{id}')
    .addOption(choice('--unit <unit>', 'unit of the times in the sorted set', ['s', 'ms']).default('s'))
    .option('--wrap', 'store values that are not JSON as JSON strings, instead of leaving them')
    .addOption(ifExists())
    .option('--expect <n>', 'change nothing unless the sorted set has exactly n members', count)
    .option('--dry-run', 'show what would be adopted, change nothing')
    .option('-q, --quiet', 'print no summary')
    .option('--json', 'print the counts as one JSON document')
    .action((queue: string, options: Options) => adopt(context, queue, options));
  command.details(`
    Producers may keep writing meanwhile; each job moves as a whole. Run adopt, switch the producers to delayq, and run
    adopt again. You can interrupt and repeat it at any time. Jobs whose time has passed are due at once, in their order.

    Exit status: 1 some jobs were left, and are reported; or the sorted set does not have as many members as --expect
    says, and nothing was changed.
  `);
  command.examples([
    'delayq adopt --zset orders:due --hash orders:data --dry-run order-close',
    'delayq adopt --zset orders:due --hash orders:data order-close',
    'delayq adopt --zset orders:due --hash orders:data --expect 1204 order-close',
    'delayq adopt --zset later --hash bodies --unit ms --wrap mails',
    "delayq adopt --zset later --string-keys 'job:{id}' order-close",
  ]);
}

async function adopt(context: Context, queue: string, options: Options): Promise<void> {
  const { zset, hash, stringKeys, unit, wrap, expect, dryRun } = options;
  if (!zset || !(hash || stringKeys)) {
    const next = `give both: delayq adopt --zset KEY --hash KEY ${queueWord(queue)}; or --string-keys in place of --hash`;
    throw usageError(`no ${zset ? 'hash' : 'sorted set'} is given`, next);
  }
  const foreign = { zset, hash, stringKeys, unit };
  const stop = context.stopSignal();
  const { transfer } = access(context, options);
  const before = await transfer.foreignRest(foreign);
  if (expect !== undefined && before.members !== expect) {
    say(context, `${zset} has ${many(before.members, 'member')}, not ${grouped(expect)}: nothing was changed`);
    context.outcomes.add('incomplete');
    return;
  }
  const meter = new Meter(context, dryRun ? 'seen' : 'adopted', !options.quiet);
  const counts = { adopted: 0, replaced: 0, kept: 0 };
  let left = new Map<LeftReason, { count: number; some: string[] }>();
  let pass = 0;
  for await (const slice of transfer.adopt(queue, { ...foreign, wrap, ifExists: options.ifExists, dryRun })) {
    // Each pass sees again what the one before has left.
    if (slice.pass > pass) left = new Map();
    pass = slice.pass;
    counts.adopted += slice.adopted;
    counts.replaced += slice.replaced;
    counts.kept += slice.kept;
    for (const { id, reason, why } of slice.left) {
      const found = left.get(reason) ?? { count: 0, some: [] };
      left.set(reason, found);
      found.count += 1;
      const text = `${shownId(id)} ${REASONS[reason].text}${why ? ` (${why})` : ''}`;
      if (found.some.length < REPORTED) found.some.push(text);
    }
    meter.add(slice.adopted + slice.replaced);
    if (stop.aborted) break;
  }
  meter.clear();
  if (before.members === 0 && counts.adopted + counts.replaced + counts.kept === 0 && !options.quiet)
    say(context, `there is no key ${zset} any more: its jobs were adopted before, or this is not its name`);
  for (const { count: found, some } of left.values()) {
    for (const text of some) say(context, text);
    if (found > some.length) say(context, `… and ${grouped(found - some.length)} more like it`);
  }
  if (left.size > 0) context.outcomes.add('incomplete');
  if (stop.aborted) context.outcomes.add('interrupted');
  const { members, fields, strays } = await transfer.foreignRest(foreign);
  const { adopted, replaced, kept } = counts;
  if (options.json) {
    const reasons = Object.keys(REASONS).map((reason) => [reason, left.get(reason as LeftReason)?.count ?? 0]);
    const rest = { members, ...(fields !== undefined && { fields, fieldsWithoutMember: strays }) };
    const dry = dryRun && { dryRun };
    const done = dryRun ? undefined : `${many(adopted, 'job')} adopted into ${queue}`;
    return context.write(document({ queue, ...dry, ...counts, left: Object.fromEntries(reasons), rest }), done);
  }
  if (options.quiet) return;
  const would = dryRun ? 'would be ' : '';
  say(context, `${many(adopted, 'job')} ${would}adopted into ${queue}`);
  if (replaced > 0) say(context, `${many(replaced, 'other job')} of ${queue} ${would}replaced by them`);
  if (kept > 0) say(context, `${many(kept, 'job')} already in ${queue}, ${would}removed from ${zset}`);
  const stayed = [...left.values()].reduce((sum, found) => sum + found.count, 0);
  if (stayed > 0) say(context, `${many(stayed, 'job')} ${dryRun ? 'would stay' : 'stayed'} in ${zset}`);
  if (strays.length > 0 && !dryRun) {
    const names = strays.slice(0, 3).map(shownId).join(', ');
    say(context, `${hash} has fields without a member in ${zset}: ${names}${strays.length > 3 ? ' …' : ''}`);
  }
  if (left.has('payload') && !wrap) say(context, '--wrap stores values that are not JSON as JSON strings');
  const mayPass = strays.length > 0 || [...left.keys()].some((reason) => REASONS[reason].isPassing);
  if (stop.aborted) say(context, 'stopped: repeat the command for the rest');
  else if (!dryRun && mayPass)
    say(context, 'run it again when the producers write to delayq: half-written jobs are complete by then');
}
