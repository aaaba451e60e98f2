import {
  DelayqError,
  formatTime,
  isDelayqError,
  isOfTexts,
  type JsonText,
  queueWord,
  type RawPayload,
  type StoredJob,
  shellWord,
} from '../../internal.js';
import type { CliCommand } from '../args/command.js';
import { idsOf } from '../args/ids.js';
import { access, requireQueue } from '../args/queues.js';
import { isAgreed } from '../bulk/confirm.js';
import type { Context, Globals } from '../host/context.js';
import { Draft, editorOf, runEditor } from '../host/editor.js';
import { type Form, formOf } from '../lines/layout.js';
import { say, sayInParts, shownId } from '../terminal/output.js';
import { missingJob } from '../views/missing-job.js';

export function editCommand(command: CliCommand, context: Context): void {
  command
    .description('Change the payload of a job in your editor. A dead job is then pending again.')
    .argument('<queue>', 'name of the queue')
    .argument('<id>', 'id of the job')
    .action((queue: string, id: string, options: Globals) => edit(context, queue, id, options));
  command.details(`
    The editor is VISUAL or EDITOR, as for git, or else vi. JSON is laid out for it, and stored without whitespace; in a
    queue of texts (delayq config QUEUE text=on) you edit the text itself.

    A dead job is due now, with no failures and losses counted; a pending job stays due as it is. Both keep what else
    they were enqueued with. Nothing changes if you leave the file as it is or empty, if the editor fails, or if the job
    has changed in the meantime. A text that you have written and that was not stored is kept, in a directory
    delayq-edit-… in TMPDIR or /tmp, even if the terminal is closed. Active jobs cannot be edited. An editor that
    returns at once must wait: EDITOR="code --wait".

    Without an editor, and without a look at what has changed meanwhile:

      delayq show --json webhook order:42 | jq -c '.payload.sum = 7' |
        delayq enqueue --jobs --if-exists replace webhook -
  `);
  command.examples([
    'delayq edit webhook VbayYBj0B1VUn',
    'EDITOR="sed -i s/null/42/" delayq edit webhook VbayYBj0B1VUn',
  ]);
}

async function edit(context: Context, queue: string, word: string, options: Globals): Promise<void> {
  const { redis, prefix, inspector, operator } = access(context, options);
  const name = queueWord(queue);
  const job = `${name} ${shellWord(word)}`;
  const pipe = `delayq show --json ${job} | jq -c ".payload.x = 1" | delayq enqueue --jobs --if-exists replace ${name} -`;
  const renamed = `delayq show --json ${job} | jq -c 'del(.idBase64) | .id = "NEW"' | delayq enqueue --jobs ${name} -`;
  const next = `set EDITOR, or edit it in a pipe: ${pipe}`;
  const editor = editorOf(context, next);
  const stop = context.stopSignal();
  const zone = context.zone({});
  const [id = word] = await idsOf(inspector, queue, [word]);
  const isText = await isOfTexts(redis, prefix, queue);
  let draft: Draft | undefined;
  let due = 0;
  const editAgain = (path: string) => `${editor.variable}=${shellWord(`cp ${path}`)} delayq edit ${job}`;
  const kept = ({ path }: Draft, advice: string, line = editAgain) => {
    draft?.keep();
    return `your text is kept in ${path}; ${advice}: ${line(path)}`;
  };
  const rescued = ({ path, place }: Draft) => {
    if (place === undefined) return undefined;
    draft?.keep();
    const open = place === path ? '' : `open ${path} in your editor to recover it; `;
    return `your text is kept in ${place}; ${open}to repeat the edit: ${editAgain(path)}`;
  };
  try {
    const result = await operator.edit(queue, id, (found) => {
      due = found.due ?? due;
      const form = formOf(found, isText);
      draft = new Draft(context, form.name, form.content);
      const edit = (path: string) => runEditor(context, editor, path, { stop, next });
      return edited(context, draft, form, { stop, edit, kept: rescued });
    });
    if (result === 'unchanged') return;
    if (result === 'requeued') return say(context, `${shownId(id)} has its new payload and is pending again, due now`);
    if (result === 'edited') return say(context, `${shownId(id)} has its new payload: due ${formatTime(due, zone)}`);
    if (result === 'missing') {
      await requireQueue(redis, prefix, queue);
      throw await missingJob(inspector, queue, { id, word }, zone);
    }
    context.outcomes.add('incomplete');
    const [now] = await inspector.show(queue, [id]);
    sayInParts(context, `nothing was changed: ${shownId(id)} ${OBSTACLES[result]}`, {
      why: result === 'bad-id' ? 'it is not UTF-8, or has a NUL byte' : whatBecame(now),
      next:
        result === 'bad-id'
          ? `enqueue it under another id: ${renamed}; then: delayq cancel ${job}`
          : draft &&
            (now
              ? kept(draft, `look at delayq show ${job}, then repeat`)
              : kept(draft, 'to enqueue it as a new job', (path) => `delayq enqueue ${name} @${path}`)),
    });
  } catch (error) {
    if (!isDelayqError(error) || !draft?.isChanged) throw error;
    const { code, what, why } = error;
    const advice = code === 'data' ? 'correct it, then repeat' : `${error.next ?? 'try again'}; to repeat it`;
    throw new DelayqError(code, what, { why, next: kept(draft, advice), cause: error });
  } finally {
    draft?.remove();
  }
}

const OBSTACLES = {
  active: 'is active',
  changed: 'has changed in the meantime',
  'bad-id': 'has an id that no handler can receive',
};

/** The new payload, edited until it is one. Undefined if there is none, which is reported. Throws `data` for a bad one. */
async function edited(
  context: Context,
  draft: Draft,
  { payloadOf }: Form,
  {
    stop,
    edit,
    kept,
  }: { stop: AbortSignal; edit(path: string): Promise<string | undefined>; kept(draft: Draft): string | undefined },
): Promise<JsonText | RawPayload | undefined> {
  for (;;) {
    const failure = stop.aborted ? undefined : await edit(draft.path);
    try {
      const content = draft.read();
      const isEmpty = content.toString('latin1').trim() === '';
      const payload = failure || stop.aborted || isEmpty ? undefined : payloadOf(content);
      if (payload) return payload;
      const why = draft.isChanged && isEmpty ? 'the file is empty' : 'the payload is unchanged';
      sayInParts(context, `${stop.aborted ? 'stopped' : (failure ?? why)}: nothing was changed`, {
        next: failure || stop.aborted ? kept(draft) : undefined,
      });
      context.outcomes.add(stop.aborted ? 'interrupted' : 'incomplete');
      return undefined;
    } catch (error) {
      if (!isDelayqError(error, 'data') || !context.stdin.isTTY || !context.stderr.isTTY) throw error;
      say(context, `${error.what}: ${error.why}`);
      if (!(await isAgreed(context, 'edit it again', stop))) throw error;
    }
  }
}

/** Why a job could not be edited; undefined: it is there no more. */
function whatBecame(job: StoredJob | undefined): string {
  if (!job) return 'it is not in the queue any more: it is done, or was cancelled or moved';
  if (job.moving) return `it is being moved to ${job.moving.to}`;
  if (job.state === 'active') return 'its handler has the old payload: edit it when it has failed';
  return `it is ${job.state} now: it has failed again, or somebody else has changed it`;
}
