import {
  DEFAULT_SETTINGS,
  type DoneJob,
  exactDuration,
  formatDuration,
  idWord,
  type JobEvent,
  moveLine,
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
import {
  clip,
  colours,
  field,
  fitted,
  many,
  type Paint,
  type Room,
  say,
  sizeOf,
  visible,
  writeJson,
} from '../terminal/output.js';
import { doneJson } from '../views/done.js';
import { jobJson, lifetimeText, reasonOf } from '../views/jobs.js';
import { missingJob } from '../views/missing-job.js';
import { holderOf, momentOf } from '../views/problems.js';
import { recurringJson, recurringText } from '../views/recurring.js';
import { storyLine, storyOf } from '../views/story.js';

interface Options extends Globals {
  readonly tz?: string;
}

export function showCommand(command: CliCommand, context: Context): void {
  command
    .description('Show one job: state, times, attempts, last error, payload; or a recurring job, or one that is done.')
    .argument('<queue>', 'name of the queue')
    .argument('<id>', 'id of the job; base64:… gives the bytes of an id')
    .option('--json', 'print one JSON document')
    .option('--tz <zone>', 'time zone of the printed times (env DELAYQ_TZ, TZ)')
    .action((queue: string, id: string, options: Options) => show(context, queue, id, options));
  command.details(`
    A long error or payload is shown whole in a pipe only. Where the queue keeps events (see delayq events), it also
    tells what happened to the job, and where it keeps jobs that are done (see delayq result), what came out of it. For
    a job that is not there it prints what is known about it, and exits 3.
  `);
  command.examples(['delayq show order-close order:42', 'delayq show --json order-close VbayYBj0B1VUn | jq .payload']);
}

async function show(context: Context, queue: string, word: string, options: Options): Promise<void> {
  const zone = context.zone(options);
  const { redis, prefix, inspector, recurring } = access(context, options);
  const [id = word] = await idsOf(inspector, queue, [word]);
  const [job] = await inspector.show(queue, [id]);
  const story = await storyOf(inspector, queue, idWord(id), job?.created);
  if (!job) {
    const [done] = await inspector.doneJobs(queue, [id]);
    if (done) {
      if (options.json)
        return writeJson(context, doneJson(queue, done, { schema: 1, ...(story && { events: story }) }));
      const room = sizeOf(context, context.stdout);
      return context.write(doneText(queue, done, { now: await redis.now(), zone, room, story }));
    }
    const found = (await recurring.show(queue, word)) ?? (await recurring.show(queue, id));
    if (found) {
      if (options.json) return writeJson(context, `${recurringJson(queue, found, { schema: 1 })}\n`);
      return context.write(await recurringText(queue, found, { zone, now: await redis.now() }));
    }
    await requireQueue(redis, prefix, queue);
    if (story?.length && !options.json)
      await context.write(`${storyLines(story, await redis.now(), zone).join('\n')}\n`);
    throw await missingJob(inspector, queue, { id, word }, zone);
  }
  if (options.json)
    return writeJson(context, jobJson(queue, job, { schema: 1, made: job.created, ...(story && { events: story }) }));
  const settings = { ...DEFAULT_SETTINGS, ...(await inspector.settings(queue)) };
  const paint = await colours(context, context.stdout);
  const room = sizeOf(context, context.stdout);
  const how = { settings, paint, zone, now: await redis.now(), room, story };
  const { text, isWhole } = toText(queue, job, how);
  await context.write(text);
  const all = `delayq show ${queueWord(queue)} ${shellWord(word)} | less`;
  if (!isWhole) say(context, `only the beginning is shown; for all of it: ${all}`);
}

/** Lines of a terminal that show needs besides: the command line, the head of the payload, a notice, the prompt. */
const OTHER_LINES = 4;

/** The least number of lines for events, and for a payload. */
const MIN_EVENTS = 3;
const MIN_ROWS = 3;

/** Columns before a value. */
const MARGIN = 14;

function toText(
  queue: string,
  job: StoredJob,
  how: {
    settings: Settings;
    paint: Paint;
    zone: string;
    now: number;
    room: Room;
    story: readonly JobEvent[] | undefined;
  },
): { text: string; isWhole: boolean } {
  const { settings, paint, zone, now, room, story = [] } = how;
  const { state, due, died, lease, moving, failed, error, payload } = job;
  const at = (ms: number) => momentOf(ms, now, zone);
  const lines = [`${queue} ${paint.bold(visible(job.id))}  ${state === 'dead' ? paint.red.bold(state) : state}`];
  const add = (name: string, value: string | undefined) => {
    if (value !== undefined) lines.push(field(name, value));
  };
  const addTime = (name: string, ms: number | undefined, more = '') => {
    if (ms !== undefined) add(name, `${at(ms)}${more}`);
  };
  if (job.idBase64 !== undefined) add('id', visible(Buffer.from(job.idBase64, 'base64').toString('utf8')));
  addTime('made', job.created, `, by its ${job.created === timeOfId(job.id) ? 'id' : 'producer'}`);
  addTime('died', died, `  ${visible(reasonOf(job))}`);
  addTime(state === 'dead' ? 'first due' : 'due', due);
  if (lease) add('held by', `${holderOf(lease.by)} since ${at(lease.since)}`);
  if (!moving) addTime('lease ends', lease?.ends);
  else {
    add('moving', `${moving.from} before; a move to ${visible(moving.to)} was interrupted, or is at work`);
    add('', `to end it: ${moveLine(queue, visible(moving.to))}`);
  }
  add('attempts', attemptsOf(job, settings));
  const ttl = job.ttl ?? settings.ttl;
  add('ttl', ttl === undefined ? undefined : lifetimeText(ttl));
  const window = job.onceFor ?? settings.onceFor;
  add('once for', window === undefined ? undefined : exactDuration(window));
  for (const [i, [name, value]] of Object.entries(job.attributes).entries())
    add(i === 0 ? 'attributes' : '', `${name}=${visible(value)}`);
  addTime('failed', failed);
  const errors = error ? error.split('\n').map(visible) : [];
  const shown = fitted(errors, room.height / 3, room.width - MARGIN);
  for (const [i, part] of shown.entries()) add(i === 0 ? 'error' : '', part);
  const told = storyLines(story, now, zone).map((line) =>
    room.height < Number.POSITIVE_INFINITY ? clip(line, room.width) : line,
  );
  // The last events tell most.
  const most = Math.max(MIN_EVENTS, Math.floor(room.height / 3));
  lines.push(...told.slice(-most));
  add('payload', payload ? many(payload.length, 'byte') : paint.red.bold('none'));
  const isWhole = shown.join() === errors.join() && told.length <= most;
  if (!payload) return { text: `${lines.join('\n')}\n`, isWhole };
  const rows = Math.max(MIN_ROWS, room.height - lines.length - OTHER_LINES);
  // A payload may be large: only what may be visible is processed.
  const bytes = 4 * rows * room.width;
  const some = visible(payload.subarray(0, bytes).toString('utf8'));
  const [seen = ''] = fitted([some], rows, room.width);
  return { text: `${[...lines, seen].join('\n')}\n`, isWhole: isWhole && seen === some && payload.length <= bytes };
}

/** What happened to a job, as fields. */
const storyLines = (story: readonly JobEvent[], now: number, zone: string) =>
  story.map((event, i) => field(i === 0 ? 'events' : '', storyLine(event, now, zone)));

/** A job that is done, as text. */
function doneText(
  queue: string,
  job: DoneJob,
  { now, zone, room, story = [] }: { now: number; zone: string; room: Room; story: readonly JobEvent[] | undefined },
): string {
  const { id, done, due, by, attempts, tookMs, result } = job;
  const lines = [
    `${queue} ${visible(id)}  done`,
    field('done', momentOf(done, now, zone)),
    ...(due === undefined ? [] : [field('first due', momentOf(due, now, zone))]),
    field('by', `${visible(by) || 'unknown'}, in ${formatDuration(tookMs)}`),
    field('attempts', String(attempts)),
    ...storyLines(story, now, zone),
    field(
      'result',
      result === undefined ? 'none' : fitted([visible(result)], room.height / 3, room.width - MARGIN).join(''),
    ),
  ];
  return `${lines.join('\n')}\n`;
}

/** As in "3 of 6: 2 failures of 5, 1 loss of 20". */
function attemptsOf(job: StoredJob, { tries, maxLost }: Settings): string {
  const { attempts, deliveries, failures, losses, releases, lease, moving } = job;
  const ofMost = (most: number | undefined) => (most === undefined ? '' : ` of ${most}`);
  // With a limit of deliveries, those of the queue do not count.
  const most = (own: number | undefined, ofQueue: number) => ofMost(own ?? (deliveries === undefined ? ofQueue : own));
  const failed = `${many(failures, 'failure')}${most(job.tries, tries)}`;
  const lost = `${many(losses, 'loss')}${most(job.maxLost, maxLost)}`;
  const given = releases === 0 ? '' : `, released ${releases === 1 ? 'once' : many(releases, 'time')}`;
  return `${attempts}${ofMost(deliveries)}: ${failed}, ${lost}${lease && !moving ? ', and one under way' : ''}${given}`;
}
