import { SETTING_NAMES } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { addFilters, type FilterOptions, filterOf } from '../args/filters.js';
import { access, requireQueue } from '../args/queues.js';
import { warnerOfGrowth } from '../bulk/growth.js';
import type { Context } from '../host/context.js';
import { everyLine, exportLine, headOf } from '../lines/export-line.js';
import { many, say, shownId, writeJson } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends FilterOptions {
  readonly config?: boolean;
  readonly quiet?: boolean;
}

/** In the order of a job's life: a job whose state changes during the export is exported twice rather than never. */
const STATES = ['pending', 'active', 'dead'] as const;

/** Text is written in chunks of this size, characters. */
const CHUNK = 64 * 1024;

export function exportCommand(command: CliCommand, context: Context): void {
  command
    .description('Print jobs as JSON Lines for delayq import. Payloads stay the same byte for byte.')
    .argument('<queue>', 'name of the queue');
  addFilters(command, STATES)
    .option('--config', 'begin with the settings of the queue, and its recurring jobs')
    .option('-q, --quiet', 'print no progress and no summary')
    .action((queue: string, options: Options) => exportJobs(context, queue, options));
  command.details(`
    Active jobs are exported as pending, as they were before delivery, although their handlers may still finish them.
    For a consistent copy stop the consumers first. Counters and leases are not exported. Lines of most pending jobs are
    also valid for enqueue --jobs.
  `);
  command.examples([
    'delayq export order-close > order-close.jsonl',
    'delayq export order-close --config | gzip > order-close.jsonl.gz',
    'delayq export --dead order-close | jq -c .payload',
    'delayq export order-close | delayq import order-close --prefix rehearsal',
  ]);
}

async function exportJobs(context: Context, queue: string, options: Options): Promise<void> {
  const { redis, prefix, transfer, inspector, recurring } = access(context, options);
  await requireQueue(redis, prefix, queue);
  const filter = filterOf(context, options, { states: STATES, now: await redis.now() });
  const meter = new Meter(context, 'exported', !options.quiet && !context.stdout.isTTY);
  let orphans = 0;
  let held = 0;
  let text = '';
  if (options.config) {
    const { config } = await inspector.inspect(queue);
    const set = SETTING_NAMES.flatMap((name) => (config[name] === undefined ? [] : [[name, config[name]]]));
    text = `${headOf(queue, Object.fromEntries(set))}\n`;
    for (const job of await recurring.list(queue)) text += `${everyLine(queue, job)}\n`;
  }
  const warn = await warnerOfGrowth(context, inspector, queue);
  for await (const slice of transfer.export(queue, filter)) {
    for (const job of slice.jobs) {
      if (job.held === 'consumer') held += 1;
      text += `${exportLine(job)}\n`;
      if (text.length < CHUNK) continue;
      await writeJson(context, text);
      text = '';
    }
    for (const id of slice.orphans) {
      orphans += 1;
      meter.say(`${shownId(id)} has no payload and was left out`);
    }
    meter.add(slice.jobs.length);
    if (context.outputClosed) return;
  }
  await writeJson(context, text);
  meter.end();
  if (held > 0) say(context, `${many(held, 'active job')} exported as pending`);
  if (orphans > 0) context.outcomes.add('incomplete');
  await warn();
}
