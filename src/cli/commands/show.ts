import {
  DEFAULT_SETTINGS,
  DelayqError,
  exactDuration,
  moveLine,
  printable,
  queueWord,
  type Settings,
  type StoredJob,
  shellWord,
  timeOfId,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { idsOf } from '../args/ids.js';
import { access, requireQueue } from '../args/queues.js';
import type { Context, Globals } from '../host/context.js';
import { colours, fitted, many, type Paint, type Room, say, sizeOf, visible, writeJson } from '../terminal/output.js';
import { jobJson, lifetimeText, reasonOf } from '../views/jobs.js';
import { storyOf } from '../views/missing-job.js';
import { holderOf, momentOf } from '../views/problems.js';
import { recurringJson, recurringText } from '../views/recurring.js';

interface Options extends Globals {
  readonly tz?: string;
}

export function showCommand(command: CliCommand, context: Context): void {
  command
    .description('Show one job: state, times, attempts, last error, payload; or a recurring job.')
    .argument('<queue>', 'name of the queue')
    .argument('<id>', 'id of the job; base64:… gives the bytes of an id')
    .option('--json', 'print one JSON document')
    .option('--tz <zone>', 'time zone of the printed times (env DELAYQ_TZ, TZ)')
    .action((queue: string, id: string, options: Options) => show(context, queue, id, options));
  command.details(`
    A long error or payload is shown whole in a pipe only. For a job that does not exist it prints what is known about
    it, and exits 3.
  `);
  command.examples(['delayq show order-close order:42', 'delayq show --json order-close VbayYBj0B1VUn | jq .payload']);
}

async function show(context: Context, queue: string, word: string, options: Options): Promise<void> {
  const zone = context.zone(options);
  const { redis, prefix, inspector, recurring } = access(context, options);
  const [id = word] = await idsOf(inspector, queue, [word]);
  const [job] = await inspector.show(queue, [id]);
  if (!job) {
    const found = (await recurring.show(queue, word)) ?? (await recurring.show(queue, id));
    if (found) {
      if (options.json) return writeJson(context, `${recurringJson(queue, found, { schema: 1 })}\n`);
      return context.write(await recurringText(queue, found, { zone, now: await redis.now() }));
    }
    await requireQueue(redis, prefix, queue);
    throw new DelayqError('missing', `there is no job ${printable(word)} in ${queue}`, {
      why: (await storyOf(inspector, queue, id, zone)).join('\n'),
      next: `list the jobs: delayq list ${queueWord(queue)}`,
    });
  }
  if (options.json) return writeJson(context, jobJson(queue, job, { schema: 1, made: job.created }));
  const settings = { ...DEFAULT_SETTINGS, ...(await inspector.settings(queue)) };
  const paint = await colours(context, context.stdout);
  const room = sizeOf(context, context.stdout);
  const { text, isWhole } = toText(queue, job, { settings, paint, zone, now: await redis.now(), room });
  await context.write(text);
  if (!isWhole)
    say(
      context,
      `only the beginning is shown; for all of it: delayq show ${queueWord(queue)} ${shellWord(word)} | less`,
    );
}

/** Lines of a terminal that show needs besides: the command line, the head of the payload, a notice, the prompt. */
const OTHER_LINES = 4;

/** The least number of lines for a payload. */
const MIN_ROWS = 3;

/** Columns before a value. */
const MARGIN = 14;

function toText(
  queue: string,
  job: StoredJob,
  how: { settings: Settings; paint: Paint; zone: string; now: number; room: Room },
): { text: string; isWhole: boolean } {
  const { settings, paint, zone, now, room } = how;
  const { state, due, died, lease, failures, losses, failed, error, payload } = job;
  const at = (ms: number) => momentOf(ms, now, zone);
  const line = (name: string, value: string) => `  ${name.padEnd(10)}  ${value}\n`;
  const ttl = job.ttl ?? settings.ttl;

  let text = `${queue} ${paint.bold(visible(job.id))}  ${state === 'dead' ? paint.red.bold(state) : state}\n`;
  if (job.idBase64 !== undefined) text += line('id', visible(Buffer.from(job.idBase64, 'base64').toString('utf8')));
  if (job.created !== undefined)
    text += line('made', `${at(job.created)}, by its ${job.created === timeOfId(job.id) ? 'id' : 'producer'}`);
  if (died !== undefined) text += line('died', `${at(died)}  ${visible(reasonOf(job))}`);
  if (due !== undefined) text += line(state === 'dead' ? 'first due' : 'due', at(due));
  if (lease) {
    text += line('held by', `${holderOf(lease.by)} since ${at(lease.since)}`);
    if (!job.moving) text += line('lease ends', at(lease.ends));
  }
  if (job.moving) {
    const { to, from } = job.moving;
    text += line('moving', `${from} before; a move to ${visible(to)} was interrupted, or is at work`);
    text += line('', `to end it: ${moveLine(queue, visible(to))}`);
  }
  const { deliveries } = job;
  const most = (own: number | undefined, ofQueue: number) => {
    const limit = own ?? (deliveries === undefined ? ofQueue : undefined);
    return limit === undefined ? '' : ` of ${limit}`;
  };
  text += line(
    'attempts',
    `${job.attempts}${deliveries === undefined ? '' : ` of ${deliveries}`}: ` +
      `${many(failures, 'failure')}${most(job.tries, settings.tries)}, ` +
      `${many(losses, 'loss')}${most(job.maxLost, settings.maxLost)}${lease && !job.moving ? ', and one under way' : ''}`,
  );
  if (ttl !== undefined) text += line('ttl', lifetimeText(ttl));
  const window = job.onceFor ?? settings.onceFor;
  if (window !== undefined) text += line('once for', exactDuration(window));
  for (const [i, [name, value]] of Object.entries(job.attributes).entries())
    text += line(i === 0 ? 'attributes' : '', `${name}=${visible(value)}`);
  if (failed !== undefined) text += line('failed', at(failed));
  const errors = error ? error.split('\n').map(visible) : [];
  const shown = fitted(errors, room.height / 3, room.width - MARGIN);
  text += shown.map((part, i) => line(i === 0 ? 'error' : '', part)).join('');
  const isWhole = shown.join() === errors.join();
  if (!payload) return { text: text + line('payload', paint.red.bold('none')), isWhole };
  const rows = Math.max(MIN_ROWS, room.height - text.split('\n').length - OTHER_LINES);
  // A payload may be large: only what may be visible is processed.
  const some = visible(payload.subarray(0, 4 * rows * room.width).toString('utf8'));
  const [seen = ''] = fitted([some], rows, room.width);
  text += `${line('payload', many(payload.length, 'byte'))}${seen}\n`;
  return { text, isWhole: isWhole && seen === some && payload.length <= 4 * rows * room.width };
}
