import { Command } from 'commander';
import {
  type Answer,
  type Connection,
  checkName,
  DelayqError,
  type Held,
  isDelayqError,
  isPassing,
  MAX_CALL,
  type NackAnswer,
  type NackOptions,
  Queue,
  type RetryLimits,
  settleWithRetries,
  withRetries,
} from '../../internal.js';
import { addGlobals, details, duration, examples, longerThanNone } from '../args/options.js';
import type { Context, Globals } from '../host/context.js';
import { type Line, lines } from '../lines/reader.js';
import { document, say, shownId } from '../terminal/output.js';
import { troubleReporter } from '../terminal/trouble.js';

/*
 * ack, nack and renew: the three answers to a job that a drain has handed out.
 */

interface Options extends Globals {
  readonly in?: number;
  readonly dead?: boolean;
  readonly release?: boolean;
  readonly error?: string;
  readonly lease?: number;
}

/** How one of the three tells Redis of jobs of one queue. */
type Settle = (queue: Queue, jobs: readonly Held[], limits: RetryLimits) => Promise<(Answer | NackAnswer)[]>;

/** How long Redis may be in trouble before what was read is given up, ms: the work behind it is done already. */
const RETRY_FOR_MS = 30_000;

/** After a first signal: how long the lines still to come are waited for, ms. Who writes them is being stopped, too. */
const GRACE_MS = 30_000;

/** How many calls may be under way while more lines are read. */
const IN_FLIGHT = 4;

export function ackCommand(context: Context): Command {
  const command = answer('ack', 'Say that jobs are done: remove them').action(
    (queue: string | undefined, id: string | undefined, receipt: string | undefined, options: Options) =>
      settle(context, [queue, id, receipt], options, (of, jobs, limits) =>
        settleWithRetries(() => of.ack(jobs), limits),
      ),
  );
  examples(command, [
    'delayq drain --lease 5m order-close | ./close-orders | delayq ack   # passes on the lines of what it has done',
    `delayq drain --lease 5m mail | jq -c 'select(.payload.ok)' | delayq ack`,
    'delayq ack mail VbayYBj0B1VUn 2mXq0ZsL8Qe1        # queue, id and receipt of such a line',
  ]);
  return addGlobals(command);
}

export function nackCommand(context: Context): Command {
  const command = answer('nack', 'Give jobs back, to be tried again')
    .option('--in <duration>', "try again after so long, instead of the queue's backoff", duration)
    .option('--dead', 'no more tries: dead at once')
    .option('--release', 'count nothing: due as before, or with --in after that')
    .option('--error <text>', 'keep this as the last error')
    .action((queue: string | undefined, id: string | undefined, receipt: string | undefined, options: Options) =>
      settle(context, [queue, id, receipt], options, async (of, jobs, limits) => {
        const mode = options.dead ? 'dead' : options.release ? 'release' : 'retry';
        const how: NackOptions = options.error === undefined ? { mode } : { mode, error: options.error };
        const given = jobs.map(({ id, receipt }) => ({ id, receipt, delayMs: options.in }));
        return (await settleWithRetries(() => of.nack(given, how), limits)).map((nacked) => nacked.answer);
      }),
    );
  examples(command, [
    `delayq drain --lease 5m mail | jq -c 'select(.payload.to | not)' | delayq nack --dead --error "no address"`,
    'delayq nack --in 5m --error "rate limited" mail VbayYBj0B1VUn 2mXq0ZsL8Qe1',
  ]);
  return addGlobals(command);
}

export function renewCommand(context: Context): Command {
  const command = answer('renew', 'Hold jobs for longer')
    .option('--lease <duration>', "for so long from now, instead of the queue's lease", longerThanNone)
    .action((queue: string | undefined, id: string | undefined, receipt: string | undefined, options: Options) =>
      settle(context, [queue, id, receipt], options, (of, jobs, limits) =>
        withRetries(() => of.renew(jobs, options.lease), limits),
      ),
    );
  examples(command, [
    'delayq renew --lease 10m mail VbayYBj0B1VUn 2mXq0ZsL8Qe1',
    'delayq renew --lease 10m < lines-in-hand.jsonl',
  ]);
  return addGlobals(command);
}

function answer(name: string, what: string): Command {
  const command = new Command(name)
    .description(`${what}. Jobs are named by arguments, or by lines on stdin.`)
    .usage('[options] [<queue> <id> <receipt>]')
    .argument('[queue]', 'name of the queue')
    .argument('[id]', "the job's id")
    .argument('[receipt]', 'what proves that it is yours')
    .option('--json', 'print how many had which answer as one JSON document');
  return details(command, [
    'Lines are those that "delayq drain --lease" writes, {"queue":…,"id":…,"receipt":…}; other keys are not looked at.',
    'A job whose lease was taken back meanwhile stays as it is, is reported, and makes the exit status 1. One that was',
    'replaced or cancelled meanwhile is only reported. The handlers of "delayq drain -- command" answer by their exit',
    'status, not by these.',
  ]);
}

async function settle(
  context: Context,
  named: readonly (string | undefined)[],
  options: Options,
  call: Settle,
): Promise<void> {
  const usage = (what: string, next: string) => new DelayqError('usage', what, { next });
  if (options.dead && (options.release || options.in !== undefined))
    throw usage('a dead job is not tried again', 'leave out --release and --in, or --dead');
  if (options.release && options.error !== undefined)
    throw usage('--release counts nothing, and keeps no error', 'leave out --error');
  const given = named.filter((part) => part !== undefined);
  if (given.length > 0 && given.length < 3)
    throw usage('queue, id and receipt belong together', 'give all three, or none and feed lines on stdin');
  if (given.length === 0 && context.stdin.isTTY)
    throw usage('there are no jobs', 'give queue, id and receipt, or pipe lines into it: see --help');

  const answers = new Answers(context, options, call);
  if (given.length === 3) {
    const [queue, id, receipt] = given as [string, string, string];
    await answers.take([{ queue, id, receipt, line: undefined }]);
  } else await answers.read();
  await answers.end();
}

/** A job to settle, and the line that named it. */
interface Item extends Held {
  readonly queue: string;
  readonly line: number | undefined;
}

/** Settles jobs as their lines arrive, many in a call and several calls at once, and says which could not be. */
class Answers {
  readonly #context: Context;
  readonly #options: Options;
  readonly #settle: Settle;
  readonly #onTrouble: (error?: DelayqError) => void;
  readonly #redis: Connection;
  readonly #queues = new Map<string, Queue>();
  readonly #flying = new Set<Promise<void>>();
  readonly #counts: Record<Answer | NackAnswer, number> = { held: 0, pending: 0, dead: 0, lost: 0, superseded: 0 };
  #refused = 0;
  /** By queue. */
  readonly #failures = new Map<Queue, unknown>();

  constructor(context: Context, options: Options, settle: Settle) {
    this.#context = context;
    this.#options = options;
    this.#settle = settle;
    this.#onTrouble = troubleReporter(context);
    this.#redis = context.redis(options);
  }

  /** Reads lines to their end. After a signal their end is near, as whoever writes them was told to stop as well. */
  async read(): Promise<void> {
    const stop = this.#context.stopSignal();
    const { stdin } = this.#context;
    stop.addEventListener('abort', () => {
      if (stdin.isTTY) stdin.destroy();
      else setTimeout(() => stdin.destroy(), GRACE_MS).unref();
    });
    try {
      for await (const some of lines(stdin)) {
        await this.take(some.flatMap((line) => this.#item(line)));
        await this.#context.heard();
        // Redis is gone. A queue that cannot be used is no reason to leave others' lines unread.
        if ([...this.#failures.values()].some(isPassing)) break;
      }
    } catch (error) {
      if (!stop.aborted) throw error;
    }
  }

  #item(line: Line): Item[] {
    try {
      return [itemOf(line)];
    } catch (error) {
      if (!isDelayqError(error, 'usage', 'data')) throw error;
      this.#refused += 1;
      say(this.#context, `line ${line.number}: ${error.message}${error.why ? `: ${error.why}` : ''}`);
      return [];
    }
  }

  /** Settles some jobs; resolves when there is room for more. */
  async take(items: readonly Item[]): Promise<void> {
    for (const name of new Set(items.map(({ queue }) => queue))) {
      const ofQueue = items.filter(({ queue }) => queue === name);
      for (let i = 0; i < ofQueue.length; i += MAX_CALL) {
        while (this.#flying.size >= IN_FLIGHT) await Promise.race(this.#flying);
        const flight: Promise<void> = this.#send(this.#queue(name), ofQueue.slice(i, i + MAX_CALL)).finally(() =>
          this.#flying.delete(flight),
        );
        this.#flying.add(flight);
      }
    }
  }

  #queue(name: string): Queue {
    let queue = this.#queues.get(name);
    if (!queue) {
      queue = new Queue(this.#redis, name, { prefix: this.#context.prefix(this.#options) });
      this.#queues.set(name, queue);
    }
    return queue;
  }

  async #send(queue: Queue, items: readonly Item[]): Promise<void> {
    const end = performance.now() + RETRY_FOR_MS;
    const limits = { until: () => end, onTrouble: this.#onTrouble };
    try {
      const answers = await this.#settle(queue, items, limits);
      for (const [i, item] of items.entries()) this.#answered(item, answers[i] as Answer | NackAnswer);
    } catch (error) {
      if (!this.#failures.has(queue)) this.#failures.set(queue, error);
      const at = items.map(({ line }) => line).filter((line) => line !== undefined);
      const which = at.length === 1 ? `line ${at[0]}` : `lines ${at[0]} to ${at.at(-1)}`;
      if (at.length > 0) say(this.#context, `${which}: not answered for ${queue.name}`);
    }
  }

  #answered({ queue, id, line }: Item, answer: Answer | NackAnswer): void {
    this.#counts[answer] += 1;
    const where = `${line === undefined ? '' : `line ${line}: `}${queue} ${shownId(id)}`;
    if (answer === 'lost')
      say(
        this.#context,
        `${where}: lost: its lease was taken back, or it was answered for before; nothing was changed`,
      );
    if (answer === 'superseded')
      say(this.#context, `${where}: superseded: it was replaced or cancelled meanwhile; nothing was changed`);
    if (answer === 'dead' && !this.#options.dead) say(this.#context, `${where}: dead: its tries are spent`);
  }

  /** Waits for the last answers and sets the exit status. Throws what kept jobs from being settled. */
  async end(): Promise<void> {
    await Promise.all(this.#flying);
    const { held, pending, dead, lost, superseded } = this.#counts;
    const refused = this.#refused;
    if (this.#options.json) {
      await this.#context.write(document({ settled: held + pending + dead, dead, lost, superseded, refused }));
    }
    for (const error of this.#failures.values()) throw error;
    if (lost > 0 || refused > 0 || (dead > 0 && !this.#options.dead)) this.#context.outcomes.add('incomplete');
  }
}

/** Reads a line of an envelope. Throws `data` when it names no job. */
function itemOf({ number, text, error }: Line): Item {
  const bad = (why: string) => new DelayqError('data', 'the line names no job', { why });
  if (error) throw bad('it is not valid UTF-8, or longer than any line of a job');
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw bad('it is not JSON');
  }
  const { queue, id, receipt } = Object(value) as Record<string, unknown>;
  for (const [key, part] of Object.entries({ queue, id, receipt })) {
    if (typeof part !== 'string' || part === '') throw bad(`it has no ${key}`);
  }
  return { queue: checkName(queue as string), id: id as string, receipt: receipt as string, line: number };
}
