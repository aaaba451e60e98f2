import type { Task } from '../../internal.js';
import { type Form, lineOf } from '../lines/drain-line.js';
import type { Recipe } from './to-handlers.js';

const NEWLINE = Buffer.from('\n');

/** Lines are handed on when they have so many bytes together. */
const CHUNK = 64 * 1024;

/** One process a job: `command` as it is, no shell, the payload on stdin, the rest in DELAYQ_*. */
export function execRecipe(
  command: readonly string[],
  form: Form,
  env: NodeJS.ProcessEnv,
  odd: (notice: string) => void,
): Recipe {
  const [file = '', ...args] = command;
  return ([task]) => {
    const { queue, id, attempt, tries, due, receipt } = task as Task;
    // Whole arguments only, and never the payload: nothing of a job can become part of another word, or code of a shell.
    const whole: Record<string, string> = { '{id}': id, '{queue}': queue };
    return {
      file,
      args: args.map((arg) => whole[arg] ?? arg),
      // A child of ours rather than a copy, which would be much garbage: the more memory a process has touched, the longer
      // it takes to start another. spawn reads what is inherited, too.
      env: Object.assign(Object.create(env), {
        DELAYQ_ID: id,
        DELAYQ_QUEUE: queue,
        DELAYQ_ATTEMPT: String(attempt),
        DELAYQ_TRIES: String(tries),
        DELAYQ_DUE: String(due),
        DELAYQ_RECEIPT: receipt,
      }),
      input: [lineOf(form, queue, task as Task, odd), NEWLINE],
    };
  };
}

/** One shell command a batch, the jobs on its stdin, one a line. No shell sees a payload but as input of a command. */
export function pipeRecipe(command: string, form: Form, env: NodeJS.ProcessEnv, odd: (notice: string) => void): Recipe {
  return (tasks) => ({
    file: '/bin/sh',
    args: ['-c', command],
    env: { ...env, DELAYQ_QUEUE: (tasks[0] as Task).queue },
    input: chunks(tasks, (task) => lineOf(form, task.queue, task, odd)),
  });
}

function* chunks(tasks: readonly Task[], line: (task: Task) => Buffer): Generator<Buffer> {
  let pile: Buffer[] = [];
  let size = 0;
  for (const task of tasks) {
    const text = line(task);
    pile.push(text, NEWLINE);
    size += text.length;
    if (size < CHUNK) continue;
    yield Buffer.concat(pile);
    pile = [];
    size = 0;
  }
  yield Buffer.concat(pile);
}
