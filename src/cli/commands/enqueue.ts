import {
  type Connection,
  checkId,
  type Enqueued,
  GIVEN,
  isDelayqError,
  isOfTexts,
  JsonText,
  Queue,
  shellWord,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { AT_WORDS, addDueTime, addJobOptions, count, dueText, ifExists, JOB_OPTIONS, readAt } from '../args/options.js';
import { jsonArgument, readPayload } from '../args/payload.js';
import type { EnqueueOptions } from '../bulk/enqueue.js';
import type { Context } from '../host/context.js';
import { document, say, sayInParts } from '../terminal/output.js';

export function enqueueCommand(command: CliCommand, context: Context): void {
  command
    .description('Add a job to a queue and print its id. Without --in and --at it is due now.')
    .argument('<queue>', 'name of the queue')
    .argument('<payload>', 'JSON; - reads payloads from stdin, one a line; @file reads one from a file');
  addDueTime(command)
    .option('--tz <zone>', 'time zone of --at (env DELAYQ_TZ, TZ)')
    .option('--id <id>', 'your own id: enqueuing it again adds no second job')
    .addOption(ifExists());
  addJobOptions(command)
    .option('--deliveries <n>', 'failures and losses after which the job is dead', count)
    .option('--jobs', 'with -: lines are jobs: {"payload":…,"in":…,"id":…}')
    .option('--atomic', 'with -: check all lines first; enqueue none if one is bad')
    .option('--fail-if-empty', 'with -: exit 3 if stdin has no line')
    .option('--durable', 'wait until the job is on the disk of Redis')
    .option('--replicas <n>', 'wait until n replicas have the job', count)
    .option('-q, --quiet', 'print no ids')
    .option('--json', 'print one JSON document')
    .action((queue: string, payload: string, options: EnqueueOptions) => enqueue(context, queue, payload, options));
  // Lines have their own.
  command.exclude({ in: ['at'], jobs: ['in', 'at', 'id', 'deliveries', ...JOB_OPTIONS] });
  command.details(`
    ${AT_WORDS}

    Lines of --jobs have "payload" and may have "in" or "at", "id", "tries", "deliveries", "ttl", "onceFor",
    "attributes"; lines of show --json and list --json are taken as they are. With --deliveries, the tries and maxLost of the queue do not count. With --once-for, enqueuing the id
    again within that time after its job was done or has expired makes no job; the exit status is 0. --durable needs
    Redis 7.2 or newer with the AOF on.
  `);
  command.examples([
    `delayq enqueue --in 15m order-close '{"orderId":42}'`,
    `delayq enqueue --at "tomorrow 9:00" --tz Europe/Berlin remind '{"user":7}'`,
    `delayq enqueue --id order:42 --in 15m order-close '{"orderId":42}'`,
    `delayq enqueue --id "report:$(date +%F)" --once-for 2d report '{}'`,
    'delayq enqueue --text notify "any text at all"',
    'delayq enqueue --durable order-close - < payloads.jsonl',
    'delayq enqueue --jobs order-close - < jobs.jsonl',
  ]);
}

async function enqueue(context: Context, name: string, payload: string, options: EnqueueOptions): Promise<void> {
  const forLines = (['jobs', 'atomic', 'failIfEmpty'] as const).find((name) => options[name]);
  if (payload !== '-' && forLines) {
    const flag = forLines === 'failIfEmpty' ? '--fail-if-empty' : `--${forLines}`;
    const next = `write - as the payload: delayq enqueue ${flag} ${shellWord(name)} - < file`;
    throw usageError(`${flag} needs lines on stdin`, next);
  }
  if (payload === '-' && options.id !== undefined)
    throw usageError('--id is for a single job', 'use --jobs, with an id in each line');
  if (options.id !== undefined) checkId(options.id);
  if (/^(\{"|\[|")/.test(name))
    throw usageError('the name of the queue comes before the payload', `write delayq enqueue QUEUE ${shellWord(name)}`);

  const redis = context.redis(options);
  const queue = new Queue(redis, name, { prefix: context.prefix(options) });
  const at = () => readAt(context, redis, options);

  if (payload === '-') {
    const { enqueueLines } = await import('../bulk/enqueue.js');
    return enqueueLines(context, queue, options, await at());
  }
  const isFile = payload.startsWith('@');
  const text = isFile ? await readPayload(payload.slice(1)) : payload;
  const { id, in: delay, tries, deliveries, ttl, onceFor, attr: attributes } = options;
  let stored: JsonText;
  try {
    stored = options.text ? JsonText.from(text) : isFile ? JsonText.parse(text) : jsonArgument(text);
  } catch (error) {
    // Redis is asked only about what is no JSON: of JSON, the call that enqueues it learns whether it is a text there.
    if (!isDelayqError(error, 'data') || !(await isOfTexts(redis, context.prefix(options), name))) throw error;
    stored = JsonText.from(text);
  }
  const job = { payload: stored, id, in: delay, at: await at(), tries, deliveries, ttl, onceFor, attributes };
  const { ifExists, durable, replicas } = options;
  const given = { ...job, [GIVEN]: text };
  const done = await unlessStopped(context, redis, queue.enqueue(given, { ifExists, durable, replicas }));
  if (done) await report(context, queue, done, options);
}

/** The result of a call; undefined if a signal stopped it, after reporting what may have become of its job. */
async function unlessStopped(context: Context, redis: Connection, call: Promise<Enqueued>) {
  const stop = context.stopSignal();
  const close = () => redis.close();
  stop.addEventListener('abort', close);
  try {
    return await call;
  } catch (error) {
    if (!stop.aborted || !isDelayqError(error)) throw error;
    // The call was sent, or it was not.
    if (error.code === 'unknown')
      sayInParts(context, error.what, { why: 'stopped before Redis replied', next: error.next });
    else say(context, 'nothing was enqueued');
    context.outcomes.add('interrupted');
    return undefined;
  } finally {
    stop.removeEventListener('abort', close);
  }
}

async function report(context: Context, queue: Queue, done: Enqueued, options: EnqueueOptions): Promise<void> {
  const { id, outcome, due, confirmed } = done;
  const what = `job ${id} ${outcome.startsWith('kept') ? 'was kept' : 'is enqueued'}`;
  if (options.json) await context.write(document({ queue: queue.name, id, outcome, due, confirmed }), what);
  else if (!options.quiet) await context.write(`${id}\n`, what);
  if (outcome === 'kept-dead') context.outcomes.add('incomplete');
  const remark = {
    created: undefined,
    replaced: `replaced: job ${id} was in ${queue.name} already`,
    kept: `kept: job ${id} is in ${queue.name} already; to change it use --if-exists replace`,
    'kept-dead': `kept: job ${id} is dead in ${queue.name}; to enqueue it anew use --if-exists replace`,
    'kept-done': `kept: job ${id} is done in ${queue.name}; to enqueue it anew, free its id: delayq cancel`,
  }[outcome];
  if (remark !== undefined) say(context, remark);
  if (context.stderr.isTTY && !outcome.startsWith('kept')) {
    const now = options.at === undefined ? due - (options.in ?? 0) : await queue.redis.now();
    say(context, `due ${dueText(due, now, context.zone(options), options)}`);
  }
}
