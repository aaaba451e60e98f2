import { Command } from 'commander';
import { Inspector, SETTING_NAMES, Transfer } from '../../internal.js';
import { addFilters, type FilterOptions, filterOf } from '../args/filters.js';
import { addGlobals, details, examples } from '../args/options.js';
import { requireQueue } from '../args/queues.js';
import type { Context } from '../host/context.js';
import { headOf, lineOf } from '../lines/export-line.js';
import { many, say, shownId, visibleJson } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends FilterOptions {
  readonly config?: boolean;
  readonly quiet?: boolean;
}

/** In the order of a job's life, so that one which goes on meanwhile comes twice rather than not at all. */
const STATES = ['pending', 'active', 'dead'] as const;

/** Text is written when there is so much of it, characters. */
const CHUNK = 64 * 1024;

export function exportCommand(context: Context): Command {
  const command = new Command('export')
    .description(
      'Writes jobs as JSON Lines, byte for byte, for delayq import. A pending job of which there is no more to say is a line as enqueue --jobs takes it.',
    )
    .argument('<queue>', 'name of the queue');
  addFilters(command, STATES)
    .option('--config', "begin with a line that holds the queue's settings")
    .option('-q, --quiet', 'no progress and no count')
    .action((queue: string, options: Options) => exportJobs(context, queue, options));
  details(command, [
    'A job that a consumer holds is written as pending, as it was before it was taken: its handler may finish it all the',
    'same. For a copy that is of one moment, stop the consumers first. Counters and leases are not exported.',
  ]);
  examples(command, [
    'delayq export order-close > order-close.jsonl',
    'delayq export order-close --config | gzip > order-close.jsonl.gz',
    'delayq export --dead order-close | jq -c .payload',
    'delayq export order-close | delayq import order-close --prefix rehearsal',
  ]);
  return addGlobals(command);
}

async function exportJobs(context: Context, queue: string, options: Options): Promise<void> {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const transfer = new Transfer(redis, { prefix });
  await requireQueue(redis, prefix, queue);
  const filter = filterOf(context, options, { states: STATES, now: await redis.now() });
  const write = (text: string) => context.write(context.stdout.isTTY ? visibleJson(text) : text);
  const meter = new Meter(context, 'exported', !options.quiet && !context.stdout.isTTY);
  let orphans = 0;
  let held = 0;
  let pile = '';
  if (options.config) {
    const { config } = await new Inspector(redis, { prefix }).inspect(queue);
    const set = SETTING_NAMES.flatMap((name) => (config[name] === undefined ? [] : [[name, config[name]]]));
    pile = `${headOf(queue, Object.fromEntries(set))}\n`;
  }
  for await (const slice of transfer.export(queue, filter)) {
    for (const job of slice.jobs) {
      if (job.held === 'consumer') held += 1;
      pile += `${lineOf(job)}\n`;
      if (pile.length < CHUNK) continue;
      await write(pile);
      pile = '';
    }
    for (const id of slice.orphans) {
      orphans += 1;
      meter.clear();
      say(context, `${shownId(id)} has no payload and was left out`);
    }
    meter.add(slice.jobs.length);
    if (context.outputClosed) return;
  }
  await write(pile);
  meter.end();
  if (held > 0) say(context, `${many(held, 'job')} that consumers hold written as pending, as before they were taken`);
  if (orphans > 0) context.outcomes.add('incomplete');
}
