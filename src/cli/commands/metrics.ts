import { Command } from 'commander';
import {
  DEFAULT_PREFIX,
  type DelayqError,
  exists,
  Inspector,
  isDelayqError,
  type Measured,
  metricsText,
} from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { writeWhole } from '../host/out-file.js';
import { say, visible } from '../terminal/output.js';

declare const DELAYQ_VERSION: string;

interface Options extends Globals {
  readonly out?: string;
}

const QUEUES_AT_ONCE = 50;

export function metricsCommand(context: Context): Command {
  const command = new Command('metrics')
    .description('Print the state of queues in the text format of Prometheus.')
    .argument('[queue...]', 'names of queues (default: all)')
    .option('--out <file>', 'write to this file instead, atomically')
    .action((queues: string[], options: Options) => metrics(context, queues, options));
  examples(command, [
    'delayq metrics',
    'delayq metrics order-close | grep ^delayq_lag_seconds',
    '* * * * *  delayq metrics --out /var/lib/prometheus/node-exporter/delayq.prom',
  ]);
  details(command, [
    'Made for the textfile collector of node_exporter. If Redis cannot be reached the',
    'old file stays; node_textfile_mtime_seconds shows its age. If a queue cannot be',
    'read its delayq_queue_up is 0, and the exit status 1. If --prefix is not',
    `${DEFAULT_PREFIX}, each line has the label "prefix".`,
  ]);
  return addGlobals(command);
}

async function metrics(context: Context, names: readonly string[], options: Options): Promise<void> {
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const inspector = new Inspector(redis, { prefix });
  await redis.connect();
  const measured: Measured[] = [];
  const broken: string[] = [];
  const missing: DelayqError[] = [];
  const measure = async (queue: string): Promise<void> => {
    try {
      const snapshot = await inspector.inspect(queue);
      if (exists(snapshot) || names.length === 0) measured.push({ queue, snapshot });
      else missing.push(await unknownQueue(redis, prefix, queue));
    } catch (error) {
      // Other software may have put invalid names into the list of queues.
      if (!isDelayqError(error, 'config', 'refused') && (names.length > 0 || !isDelayqError(error, 'usage')))
        throw error;
      measured.push({ queue, snapshot: undefined });
      broken.push(`${queue} cannot be read: ${error.why ?? error.message}`);
    }
  };
  const asked = [...new Set(names.length > 0 ? names : await inspector.queues())];
  for (let i = 0; i < asked.length; i += QUEUES_AT_ONCE)
    await Promise.all(asked.slice(i, i + QUEUES_AT_ONCE).map(measure));
  const [first] = missing;
  if (first && measured.length === 0) throw first;
  broken.push(...missing.map(({ message, next }) => `${message}; ${next}`));
  for (const line of broken.sort()) say(context, line);
  if (broken.length > 0) context.outcomes.add('incomplete');
  // Replies may come out of order, when Redis did not have a script yet.
  measured.sort((a, b) => (a.queue < b.queue ? -1 : 1));
  const text = metricsText(measured, { version: DELAYQ_VERSION, labels: prefix === DEFAULT_PREFIX ? {} : { prefix } });
  if (options.out === undefined) {
    return context.write(context.stdout.isTTY ? text.split('\n').map(visible).join('\n') : text);
  }
  // From here on a signal takes effect after the file is written.
  context.stopSignal();
  writeWhole(options.out, text);
}
