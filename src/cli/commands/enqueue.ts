import { createReadStream } from 'node:fs';
import { Command } from 'commander';
import {
  checkId,
  DelayqError,
  decodeUtf8,
  type Enqueued,
  formatDuration,
  formatTime,
  JsonText,
  MAX_PAYLOAD,
  Queue,
  tooLarge,
} from '../../internal.js';
import { readAt } from '../args/at.js';
import { addGlobals, count, duration, examples } from '../args/options.js';
import type { EnqueueOptions } from '../bulk/enqueue.js';
import type { Context } from '../host/context.js';
import { document, say } from '../terminal/output.js';

export function enqueueCommand(context: Context): Command {
  const command = new Command('enqueue')
    .description('Puts a job into a queue and prints its id. With neither --in nor --at it is due now.')
    .argument('<queue>', 'name of the queue')
    .argument('<payload>', 'JSON; - reads one payload a line from stdin; @file takes a whole file as one payload')
    .option('--in <duration>', 'due after 500ms, 90s, 15m, 1h30m, 2d, 1w', duration)
    .option('--at <time>', 'due at 14:00, "2026-11-21 14:00", 2026-11-21T14:00:00+01:00 or @1795266000')
    .option('--tz <zone>', 'time zone of --at (env DELAYQ_TZ, TZ)')
    .option('--id <id>', 'an id of your own; enqueuing it again makes no second job')
    .option(
      '--if-exists <keep|replace>',
      'what to do with a job of the same id (default: keep)',
      oneOf('keep', 'replace'),
    )
    .option('--tries <n>', 'failures until the job is dead', count)
    .option('--ttl <duration>', 'drop the job, counted as expired, when later than this after its due time', duration)
    .option('--text', 'take any text and store it as a JSON string')
    .option('--jobs', 'with -: lines are {"payload":…,"in":…|"at":…,"id":…,"tries":…,"ttl":…}')
    .option('--atomic', 'with -: check all lines first, enqueue none if one is bad')
    .option('--durable', "confirm only when the job is on Redis's disk (Redis 7.2 or newer, AOF on)")
    .option('--replicas <n>', 'confirm only when n replicas have it', count)
    .option('-q, --quiet', 'print no ids')
    .option('--json', 'print one JSON document instead')
    .action((queue: string, payload: string, options: EnqueueOptions) => enqueue(context, queue, payload, options));
  examples(command, [
    `delayq enqueue --in 15m order-close '{"orderId":42}'`,
    `delayq enqueue --at "2026-12-24 14:00" --tz Europe/Berlin --id greet:7 remind '{"user":7}'`,
    'delayq enqueue --text notify "any text at all"',
    'delayq enqueue --durable order-close - < payloads.jsonl',
    `echo '{"payload":{"orderId":42},"in":"15m","id":"order:42"}' | delayq enqueue --jobs order-close -`,
  ]);
  return addGlobals(command);
}

function oneOf(...words: string[]): (text: string) => string {
  return (text) => {
    if (words.includes(text)) return text;
    throw new DelayqError('usage', `${JSON.stringify(text)} is not known here`, {
      next: `write ${words.join(' or ')}`,
    });
  };
}

async function enqueue(context: Context, name: string, payload: string, options: EnqueueOptions): Promise<void> {
  const bad = (what: string, next: string) => new DelayqError('usage', what, { next });
  if (options.in !== undefined && options.at !== undefined)
    throw bad('a job has one due time', 'give --in or --at, not both');
  if (payload !== '-' && (options.jobs || options.atomic)) {
    throw bad(
      `${options.jobs ? '--jobs' : '--atomic'} is for lines on stdin`,
      'write - as the payload, and feed the lines: delayq enqueue q - < file',
    );
  }
  if (
    options.jobs &&
    (options.in ?? options.at ?? options.id ?? options.tries ?? options.ttl ?? options.text) !== undefined
  ) {
    throw bad('with --jobs each line says everything itself', 'put in, at, id, tries and ttl into the lines');
  }
  if (payload === '-' && options.id !== undefined)
    throw bad('one id cannot name many jobs', 'use --jobs, with an id in each line');
  if (options.id !== undefined) checkId(options.id);

  const redis = context.redis(options);
  const queue = new Queue(redis, name, { prefix: context.prefix(options) });
  const at = () => readAt(context, redis, options);

  if (payload === '-') {
    const { enqueueLines } = await import('../bulk/enqueue.js');
    return enqueueLines(context, queue, options, await at());
  }
  const text = payload.startsWith('@') ? await readPayload(payload.slice(1)) : payload;
  const job = { payload: options.text ? JsonText.from(text) : JsonText.parse(text) };
  const { id, in: delay, tries, ttl, ifExists, durable, replicas } = options;
  const done = await queue.enqueue(
    { ...job, id, in: delay, at: await at(), tries, ttl },
    { ifExists, durable, replicas },
  );
  await report(context, queue, done, options);
}

async function readPayload(file: string): Promise<string> {
  const pieces: Buffer[] = [];
  try {
    // A byte more than a payload may have: the rest need not be read to say that it is too large.
    for await (const piece of createReadStream(file, { end: MAX_PAYLOAD })) pieces.push(piece);
  } catch (cause) {
    throw new DelayqError('input', `cannot read ${JSON.stringify(file)}`, {
      why: (cause as Error).message,
      next: 'after @ comes the path of a file with one payload; a text that begins with @ goes through stdin: --text q -',
      cause,
    });
  }
  const bytes = Buffer.concat(pieces);
  if (bytes.length > MAX_PAYLOAD) throw tooLarge();
  return decodeUtf8(bytes);
}

async function report(context: Context, queue: Queue, done: Enqueued, options: EnqueueOptions): Promise<void> {
  const { id, outcome, due, confirmed } = done;
  if (options.json) await context.write(document({ queue: queue.name, id, outcome, due, confirmed }));
  else if (!options.quiet) await context.write(`${id}\n`);
  if (outcome === 'kept-dead') {
    context.outcomes.add('incomplete');
    say(context, `kept: job ${id} is dead in ${queue.name} and stays so; --if-exists replace makes it anew`);
  } else if (outcome === 'kept') {
    say(context, `kept: job ${id} is in ${queue.name} already and stays as it is; --if-exists replace changes it`);
  } else if (outcome === 'replaced') {
    say(context, `replaced: job ${id} was in ${queue.name} already`);
  }
  if (context.stderr.isTTY && outcome !== 'kept' && outcome !== 'kept-dead') {
    const left = options.at === undefined ? (options.in ?? 0) : due - (await queue.redis.now());
    say(
      context,
      `due ${formatTime(due, context.zone(options))}, ${left > 0 ? `in ${formatDuration(left)}` : 'which is now'}`,
    );
  }
}
