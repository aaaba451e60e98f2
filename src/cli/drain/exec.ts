import type { Task } from '../../index.js';
import { type Form, lineOf } from '../lines/form.js';
import type { Recipe } from './handlers.js';

const NEWLINE = Buffer.from('\n');

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
