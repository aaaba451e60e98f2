import { createReadStream, fstatSync } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { Command } from 'commander';
import {
  DelayqError,
  idOf,
  isDelayqError,
  Operator,
  type Parcel,
  Recurring,
  type Restored,
  readSettings,
  Transfer,
} from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { LineInput } from '../bulk/input.js';
import { Window } from '../bulk/window.js';
import type { Context, Globals } from '../host/context.js';
import { type Imported, type ImportedEvery, importedOf } from '../lines/export-line.js';
import { document, many, say, shownId } from '../terminal/output.js';
import { Meter } from '../terminal/progress.js';

interface Options extends Globals {
  readonly config?: boolean;
  readonly dryRun?: boolean;
  readonly quiet?: boolean;
  readonly tz?: string;
}

/** The longest line, bytes. Payloads of other software may be larger than those of delayq. */
const LONGEST = 64 * 1024 * 1024;

/** A batch is sent when it has this many jobs, or this many bytes of payload. */
const BATCH = 100;
const BATCH_BYTES = 1024 * 1024;

/** Batches in flight; of their payloads this many bytes, because a batch of one job may be large. */
const IN_FLIGHT = 8;
const BYTES_IN_FLIGHT = IN_FLIGHT * BATCH_BYTES;

export function importCommand(context: Context): Command {
  const command = new Command('import')
    .description('Add the jobs of an export to a queue: same ids, times, states, counts and payloads.')
    .argument('<queue>', 'name of the queue')
    .argument('[file]', 'output of delayq export (default: -, stdin)')
    .option('--config', 'also set settings and put recurring jobs, if the export has them')
    .option('--dry-run', 'only read the lines, and report bad ones')
    .option('--tz <zone>', 'time zone of times without one (env DELAYQ_TZ, TZ)')
    .option('-q, --quiet', 'print no summary')
    .option('--json', 'print the counts as one JSON document')
    .action((queue: string, file: string | undefined, options: Options) => importJobs(context, queue, file, options));
  details(command, [
    'Jobs whose id exists are left as they are, so an import can be repeated. But',
    'jobs that were completed since an interrupted import are added again: pause the',
    'queue if that must not happen, or give the jobs windows (--once-for): an id that',
    'is remembered makes no job. Lines need "id", "payload", and "at" (or "score",',
    'ms). Exit status 1: some lines were bad, or the queue has another job under',
    'their id; the other jobs were imported.',
  ]);
  examples(command, [
    'delayq import order-close order-close.jsonl',
    'gunzip -c order-close.jsonl.gz | delayq import order-close --config',
    'delayq import --dry-run order-close order-close.jsonl',
  ]);
  return addGlobals(command);
}

type Numbered = Parcel & { readonly line: number };

async function importJobs(context: Context, queue: string, file: string | undefined, options: Options): Promise<void> {
  const stop = context.stopSignal();
  const redis = context.redis(options);
  const prefix = context.prefix(options);
  const transfer = new Transfer(redis, { prefix });
  const input = await opened(context, file);
  const zone = context.zone(options);
  const now = await redis.now();
  let recurringJobs = 0;
  const counts = { created: 0, kept: 0, 'kept-dead': 0, 'kept-done': 0, differs: 0, held: 0 };
  const meter = new Meter(context, options.dryRun ? 'read' : 'imported', !options.quiet);
  const report = (text: string) => {
    meter.clear();
    say(context, text);
  };
  const lines = new LineInput(context, report);
  const putEvery = async ({ job, paused }: ImportedEvery, line: number) => {
    if (!options.config) return report(`line ${line}: the recurring job ${shownId(job.id)} ignored: --config puts it`);
    if (!options.dryRun) {
      const recurring = new Recurring(redis, { prefix });
      await recurring.put(queue, job);
      if (paused) await recurring.pause(queue, job.id);
    }
    recurringJobs += 1;
  };
  const read = async (found: Imported, number: number): Promise<Numbered | undefined> => {
    try {
      if ('parcel' in found) return Object.assign(found.parcel, { line: number });
      if ('every' in found) {
        await putEvery(found.every, number);
        return undefined;
      }
      const settings = readSettings(found.settings);
      if (!options.config) {
        const names = Object.keys(settings).join(', ');
        if (names !== '') report(`line ${number}: settings ignored (${names}): --config sets them`);
      } else if (!options.dryRun) await new Operator(redis, { prefix }).configure(queue, settings);
    } catch (problem) {
      lines.refuse(number, problem);
    }
    return undefined;
  };

  let last = 0;
  const took = (batch: readonly Numbered[], restored: readonly Restored[]) => {
    for (const [i, outcome] of restored.entries()) {
      counts[outcome] += 1;
      const { line, id } = batch[i] as Numbered;
      if (outcome === 'differs')
        report(`line ${line}: ${shownId(idOf(id))} is in ${queue} as another job, and was left as it is`);
      if (outcome === 'held')
        report(`line ${line}: ${shownId(idOf(id))} is held by an interrupted move: finish that, then repeat`);
      if (outcome === 'kept-dead') report(`line ${line}: kept: job ${shownId(idOf(id))} is dead`);
    }
    last = Math.max(last, batch.at(-1)?.line ?? 0);
    meter.add(batch.length);
  };
  const inFlight = new Window({ calls: IN_FLIGHT, size: BYTES_IN_FLIGHT });
  let batch: Numbered[] = [];
  let size = 0;
  const send = async () => {
    if (batch.length === 0) return;
    const [jobs, bytes] = [batch, size];
    batch = [];
    size = 0;
    const restored: Promise<Restored[]> = options.dryRun
      ? Promise.resolve(jobs.map(() => 'created' as const))
      : transfer.restore(queue, jobs);
    await inFlight.add(restored, (outcomes) => took(jobs, outcomes), bytes);
  };
  try {
    const parse = (text: string, line: number) => [importedOf(text, zone, now), line] as const;
    for await (const some of lines.read(input, stop, parse, LONGEST)) {
      for (const [found, line] of some) {
        const job = await read(found, line);
        if (!job) continue;
        batch.push(job);
        size += job.payload.length;
        if (batch.length >= BATCH || size >= BATCH_BYTES) await send();
      }
    }
    if (!stop.aborted) await send();
    await inFlight.end();
  } catch (error) {
    meter.clear();
    if (!isDelayqError(error)) throw error;
    say(context, `${many(counts.created, 'job')} imported, up to line ${last} at least`);
    throw new DelayqError(error.code, error.what, {
      why: error.why,
      next: `${error.next ? `${error.next}; then ` : ''}repeat the import: jobs that were imported are kept`,
      cause: error,
    });
  }
  meter.clear();
  const { created, kept, 'kept-dead': keptDead, 'kept-done': keptDone, differs, held } = counts;
  const refused = lines.bad;
  if (options.json) {
    const dry = options.dryRun
      ? { dryRun: true, jobs: created, recurring: recurringJobs, refused }
      : { created, kept, keptDead, keptDone, differs, held, recurring: recurringJobs, refused };
    await context.write(document({ queue, ...dry }));
  } else if (!options.quiet) {
    const parts = [
      ...(kept > 0 ? [`${many(kept, 'job')} there already`] : []),
      ...(keptDone > 0 ? [`${many(keptDone, 'job')} done there, within the window`] : []),
      ...(keptDead > 0 ? [`${many(keptDead, 'job')} dead there`] : []),
      ...(differs > 0 ? [`${many(differs, 'job')} there as another job`] : []),
      ...(held > 0 ? [`${many(held, 'job')} held there by a move`] : []),
      ...(recurringJobs > 0
        ? [`${many(recurringJobs, 'recurring job')} ${options.dryRun ? 'would be put' : 'put'}`]
        : []),
      ...(refused > 0 ? [`${many(refused, 'bad line')}`] : []),
    ];
    const done = `${many(created, 'job')} ${options.dryRun ? 'would be imported' : 'imported'} into ${queue}`;
    say(context, [done, ...parts, ...(stop.aborted ? ['stopped: repeat the command for the rest'] : [])].join('; '));
  }
  if (differs + keptDead + held > 0) context.outcomes.add('incomplete');
  if (stop.aborted) context.outcomes.add('interrupted');
}

async function opened(context: Context, file: string | undefined): Promise<Readable> {
  const next = 'name the output of delayq export: delayq import q q.jsonl';
  if (file === undefined && context.stdin.isTTY)
    throw new DelayqError('usage', 'nothing to import', { why: 'no file is named, and stdin is a terminal', next });
  const isStdin = file === undefined || file === '-';
  const wrong = (why: string) =>
    new DelayqError('input', `cannot read ${isStdin ? 'stdin' : JSON.stringify(file)}`, { why, next });
  if (isStdin) {
    if (fstatSync(context.stdin.fd).isDirectory()) throw wrong('it is a directory');
    return context.stdin;
  }
  try {
    const handle = await open(file);
    if ((await handle.stat()).isDirectory()) {
      await handle.close();
      throw wrong('it is a directory');
    }
    return createReadStream('', { fd: handle, highWaterMark: 256 * 1024 });
  } catch (error) {
    throw isDelayqError(error) ? error : wrong((error as Error).message);
  }
}
