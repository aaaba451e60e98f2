import { type Attributes, NO_ATTRIBUTES, type Task } from '../../internal.js';
import { ATTRIBUTE_VARIABLE } from '../host/context.js';
import { type FormOf, inputOf, LINE_END, lineOf, type OnOdd } from '../lines/drain-line.js';
import type { Recipe } from './to-handlers.js';

/** Lines are written to the input file of a handler in pieces of this size, bytes. */
const CHUNK = 64 * 1024;

/**
 * `drain Q -- command`: a process for each job, without a shell. The payload is on stdin, the rest in DELAYQ_…
 * variables.
 */
export function execRecipe(command: readonly string[], formOf: FormOf, env: NodeJS.ProcessEnv, onOdd: OnOdd): Recipe {
  const [file = '', ...args] = command;
  return ([task]) => {
    const { queue, id, attempt, tries, due, receipt, attributes } = task as Task;
    // Only whole arguments are replaced, and never by the payload: no job can inject options or shell code.
    const placeholders: Record<string, string> = { '{id}': id, '{queue}': queue };
    return {
      file,
      args: args.map((arg) => placeholders[arg] ?? arg),
      // Inherits from `env` instead of copying it: copies are garbage, and the more memory this process uses, the
      // longer it takes to start another. spawn() reads inherited properties too.
      env: Object.assign(Object.create(env), {
        DELAYQ_ID: id,
        DELAYQ_QUEUE: queue,
        DELAYQ_ATTEMPT: String(attempt),
        DELAYQ_TRIES: String(tries),
        DELAYQ_DUE: String(due),
        DELAYQ_RECEIPT: receipt,
        ...(attributes === NO_ATTRIBUTES ? undefined : variablesOf(attributes)),
      }),
      input: inputOf(formOf(queue), queue, task as Task, onOdd),
    };
  };
}

/** Attributes as variables: `traceparent` is DELAYQ_ATTR_TRACEPARENT. Their names cannot clash: they have no `_`. */
function variablesOf(attributes: Attributes): Record<string, string> {
  const nameOf = (name: string) => `${ATTRIBUTE_VARIABLE}${name.toUpperCase().replaceAll('-', '_')}`;
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [nameOf(name), value]));
}

/**
 * `drain Q --pipe 'command'`: a shell command for each batch. The jobs are lines on its stdin, so no shell parses them.
 */
export function pipeRecipe(command: string, formOf: FormOf, env: NodeJS.ProcessEnv, onOdd: OnOdd): Recipe {
  return (tasks) => ({
    file: '/bin/sh',
    args: ['-c', command],
    env: { ...env, DELAYQ_QUEUE: (tasks[0] as Task).queue },
    // Those that are no lines were refused.
    input: chunks(tasks, (task) => lineOf(formOf(task.queue), task.queue, task, onOdd) as Buffer),
  });
}

function* chunks(tasks: readonly Task[], line: (task: Task) => Buffer): Generator<Buffer> {
  let piece: Buffer[] = [];
  let size = 0;
  for (const task of tasks) {
    const text = line(task);
    piece.push(text, LINE_END);
    size += text.length;
    if (size < CHUNK) continue;
    yield Buffer.concat(piece);
    piece = [];
    size = 0;
  }
  yield Buffer.concat(piece);
}
