import {
  DEFAULT_PREFIX,
  type DelayqError,
  eachQueue,
  exists,
  isDelayqError,
  type Measured,
  metricsText,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { access, unknownQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { writeWhole } from '../host/out-file.js';
import { say, visible } from '../terminal/output.js';
import { reasonOf } from '../views/snapshot.js';

declare const DELAYQ_VERSION: string;

interface Options extends Globals {
  readonly out?: string;
}

export function metricsCommand(command: CliCommand, context: Context): void {
  command
    .description('Print the state of queues in the text format of Prometheus.')
    .argument('[queue...]', 'names of queues (default: all)')
    .option('--out <file>', 'write to this file instead, atomically')
    .action((queues: string[], options: Options) => metrics(context, queues, options));
  command.details(`
    Made for the textfile collector of node_exporter. If Redis cannot be reached the old file stays;
    node_textfile_mtime_seconds shows its age. If a queue cannot be read its delayq_queue_up is 0, and the exit status
    1. If --prefix is not ${DEFAULT_PREFIX}, each line has the label "prefix".
  `);
  command.examples([
    'delayq metrics',
    'delayq metrics order-close | grep ^delayq_lag_seconds',
    '* * * * *  delayq metrics --out /var/lib/prometheus/node-exporter/delayq.prom',
  ]);
}

async function metrics(context: Context, names: readonly string[], options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await redis.connect();
  const asked = [...new Set(names.length > 0 ? names : await inspector.queues())];
  const measured: Measured[] = [];
  const broken: string[] = [];
  const missing: DelayqError[] = [];
  for (const seen of await eachQueue(asked, (queue) => inspector.inspect(queue))) {
    const { queue } = seen;
    if ('error' in seen) {
      // Other software may have put invalid names into the list of queues.
      if (names.length > 0 && isDelayqError(seen.error, 'usage')) throw seen.error;
      measured.push({ queue, snapshot: undefined });
      broken.push(`${queue} cannot be read: ${reasonOf(seen.error)}`);
    } else if (exists(seen.found) || names.length === 0) measured.push({ queue, snapshot: seen.found });
    else missing.push(await unknownQueue(redis, prefix, queue));
  }
  const [first] = missing;
  if (first && measured.length === 0) throw first;
  broken.push(...missing.map(({ what, next }) => `${what}; ${next}`));
  for (const line of broken.sort()) say(context, line);
  if (broken.length > 0) context.outcomes.add('incomplete');
  measured.sort((a, b) => (a.queue < b.queue ? -1 : 1));
  const text = metricsText(measured, { version: DELAYQ_VERSION, labels: prefix === DEFAULT_PREFIX ? {} : { prefix } });
  if (options.out === undefined) {
    return context.write(context.stdout.isTTY ? text.split('\n').map(visible).join('\n') : text);
  }
  // From here on a signal takes effect after the file is written.
  context.stopSignal();
  writeWhole(options.out, text);
}
