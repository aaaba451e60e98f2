import { type JobResult, LONGEST_TIMER_MS, printable, Queue, queueWord, shellWord } from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { idsOf } from '../args/ids.js';
import { duration } from '../args/options.js';
import { access, requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { document, say, sayInParts, visible } from '../terminal/output.js';
import { reasonOf } from '../views/jobs.js';

interface Options extends Globals {
  readonly timeout?: number;
}

export function resultCommand(command: CliCommand, context: Context): void {
  command
    .description('Print what came out of a job that is done; with --timeout wait for its end.')
    .argument('<queue>', 'name of the queue')
    .argument('<id>', 'id of the job; base64:… gives the bytes of an id')
    .option('--timeout <duration>', 'wait for so long until the job is done or dead: 30s, 5m', duration)
    .option('--json', 'print one JSON document: when, by whom, how long')
    .action((queue: string, id: string, options: Options) => result(context, queue, id, options));
  command.details(`
    The queue must keep jobs that are done: delayq config Q keep-done=24h. The result is the last line that the handler
    printed on stdout, or what follows the ticket in its answer (ok TICKET RESULT), or what the function of a Worker
    returned: 4 KiB of it at most. A job of which nothing came out prints nothing. While it waits, Redis may be away for
    some time.

    Exit status: 0 done; 1 dead: the stderr says why; 3 no such job, or the queue keeps none that are done; 75 not done
    in time: ask again; 130 interrupted.
  `);
  command.examples([
    'delayq config thumbnail keep-done=24h',
    `url=$(delayq result thumbnail "$id" --timeout 30s) || exit`,
    'delayq result --json thumbnail order:42 | jq .tookMs',
  ]);
}

async function result(context: Context, name: string, id: string, options: Options): Promise<void> {
  const { redis, prefix, inspector } = access(context, options);
  await requireQueue(redis, prefix, name);
  const signal = context.stopSignal();
  const timeout = Math.min(options.timeout ?? 0, LONGEST_TIMER_MS);
  const [meant = id] = await idsOf(inspector, name, [id]);
  const found = await new Queue(redis, name, { prefix }).result(meant, { timeout, signal });
  if (found.state === 'dead') context.outcomes.add('incomplete');
  else if (found.state === 'missing') context.outcomes.add('empty');
  else if (found.state !== 'done') context.outcomes.add(signal.aborted ? 'interrupted' : 'late');
  if (options.json) await context.write(document({ queue: name, ...found }));
  else if (found.state === 'done' && found.result !== undefined)
    await context.write(`${context.stdout.isTTY ? visible(found.result) : found.result}\n`);
  tell(context, name, found, options);
}

/** Says on stderr why there is no result. */
function tell(context: Context, queue: string, found: JobResult, { timeout }: Options): void {
  const which = `job ${printable(found.id).slice(1, -1)} of ${queue}`;
  if (found.state === 'dead') {
    const show = `delayq show ${queueWord(queue)} ${shellWord(found.id)}`;
    sayInParts(context, `${which} is dead: ${reasonOf(found)}`, { why: found.error, next: show });
  } else if (found.state === 'missing')
    sayInParts(context, `there is no ${which}`, {
      why: 'it never was, was cancelled or expired, or is done for longer than keep-done',
      next: `delayq events ${queueWord(queue)} --id ${shellWord(found.id)}, if the queue keeps events`,
    });
  else if (found.state !== 'done') {
    const next = timeout === undefined ? 'wait for it with --timeout 30s' : undefined;
    if (next) sayInParts(context, `${which} is ${found.state}, not done`, { next });
    else say(context, `${which} is still ${found.state}`);
  }
}
