import { createReadStream, fstatSync } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import {
  DelayqError,
  idOf,
  isDelayqError,
  type Parcel,
  type Restored,
  readSettings,
  type Settings,
} from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access } from '../args/queues.js';
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

export function importCommand(command: CliCommand, context: Context): void {
  command
    .description('Add the jobs of an export to a queue: same ids, times, states, counts and payloads.')
    .argument('<queue>', 'name of the queue')
    .argument('[file]', 'output of delayq export (default: -, stdin)')
    .option('--config', 'also set settings and put recurring jobs, if the export has them')
    .option('--dry-run', 'only read the lines, and report bad ones')
    .option('--tz <zone>', 'time zone of times without one (env DELAYQ_TZ, TZ)')
    .option('-q, --quiet', 'print no summary')
    .option('--json', 'print the counts as one JSON document')
    .action((queue: string, file: string | undefined, options: Options) => importJobs(context, queue, file, options));
  command.details(`
    Jobs whose id exists are left as they are, so you can repeat an import. But jobs that were completed after an
    interrupted import are added again. If that must not happen, pause the queue, or give the jobs windows (enqueue
    --once-for). Lines need "id", "payload", and "at" (or "score", ms). Exit status 1: some lines were bad, or the queue
    has another job under their id; the other jobs were imported.
  `);
  command.examples([
    'delayq import order-close order-close.jsonl',
    'gunzip -c order-close.jsonl.gz | delayq import order-close --config',
    'delayq import --dry-run order-close order-close.jsonl',
  ]);
}

/** What is said of a job that was not imported. Of those that need no attention only the number is told. */
const REPORTED: Partial<Record<Restored, string>> = {
  differs: 'is in the queue as another job, and was left as it is',
  held: 'is held by an interrupted move: finish that, then repeat',
  'kept-dead': 'is dead in the queue, and was left as it is',
};

type Numbered = Parcel & { readonly line: number };

async function importJobs(context: Context, queue: string, file: string | undefined, options: Options): Promise<void> {
  const stop = context.stopSignal();
  const { redis, operator, transfer, recurring } = access(context, options);
  const input = await opened(context, file);
  const zone = context.zone(options);
  const now = await redis.now();
  let recurringJobs = 0;
  const counts = { created: 0, kept: 0, 'kept-dead': 0, 'kept-done': 0, differs: 0, held: 0 };
  const meter = new Meter(context, options.dryRun ? 'read' : 'imported', !options.quiet);
  const report = (text: string) => meter.say(text);
  const lines = new LineInput(context, report);
  const putSettings = async (settings: Partial<Settings>, line: number) => {
    const names = Object.keys(settings).join(', ');
    if (!options.config && names !== '') report(`line ${line}: settings ignored (${names}): --config sets them`);
    if (options.config && !options.dryRun) await operator.configure(queue, settings);
  };
  const putEvery = async ({ job, paused }: ImportedEvery, line: number) => {
    if (!options.config) return report(`line ${line}: the recurring job ${shownId(job.id)} ignored: --config puts it`);
    if (!options.dryRun) {
      await recurring.put(queue, job);
      if (paused) await recurring.pause(queue, job.id);
    }
    recurringJobs += 1;
  };
  const read = async (found: Imported, number: number): Promise<Numbered | undefined> => {
    try {
      if ('parcel' in found) return Object.assign(found.parcel, { line: number });
      if ('every' in found) await putEvery(found.every, number);
      else await putSettings(readSettings(found.settings), number);
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
      const found = REPORTED[outcome];
      if (found) report(`line ${line}: ${shownId(idOf(id))} ${found}`);
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
    const done = options.dryRun ? undefined : `${many(created, 'job')} imported into ${queue}`;
    await context.write(document({ queue, ...dry }), done);
  } else if (!options.quiet) {
    const would = options.dryRun ? 'would be ' : '';
    const others = [
      [kept, 'job', ' there already'],
      [keptDone, 'job', ' done there, within the window'],
      [keptDead, 'job', ' dead there'],
      [differs, 'job', ' there as another job'],
      [held, 'job', ' held there by a move'],
      [recurringJobs, 'recurring job', ` ${would}put`],
      [refused, 'bad line', ''],
    ] as const;
    const parts = others.flatMap(([n, thing, what]) => (n > 0 ? [`${many(n, thing)}${what}`] : []));
    const rest = stop.aborted ? ['stopped: repeat the command for the rest'] : [];
    say(context, [`${many(created, 'job')} ${would}imported into ${queue}`, ...parts, ...rest].join('; '));
  }
  if (differs + keptDead + held > 0) context.outcomes.add('incomplete');
  if (stop.aborted) context.outcomes.add('interrupted');
}

async function opened(context: Context, file: string | undefined): Promise<Readable> {
  const next = 'name the output of delayq export: delayq import q q.jsonl';
  if (file === undefined && context.stdin.isTTY)
    throw usageError('nothing to import', next, 'no file is named, and stdin is a terminal');
  const isStdin = file === undefined || file === '-';
  try {
    const handle = isStdin ? undefined : await open(file);
    if (fstatSync(handle?.fd ?? context.stdin.fd).isDirectory()) {
      await handle?.close();
      throw new Error('it is a directory');
    }
    return handle ? createReadStream('', { fd: handle, highWaterMark: 256 * 1024 }) : context.stdin;
  } catch (cause) {
    const what = `cannot read ${isStdin ? 'stdin' : JSON.stringify(file)}`;
    throw new DelayqError('input', what, { why: (cause as Error).message, next, cause });
  }
}
