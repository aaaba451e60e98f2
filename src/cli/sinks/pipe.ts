import type { Task } from '../../index.js';
import { type Form, lineOf } from './form.js';
import type { Recipe } from './handlers.js';

/** One shell command a batch, the jobs on its stdin, one a line. No shell sees a payload but as input of a command. */
export function pipeRecipe(command: string, form: Form, env: NodeJS.ProcessEnv, odd: (notice: string) => void): Recipe {
  const newline = Buffer.from('\n');
  return (tasks) => ({
    file: '/bin/sh',
    args: ['-c', command],
    env: { ...env, DELAYQ_QUEUE: (tasks[0] as Task).queue },
    input: Buffer.concat(tasks.flatMap((task) => [lineOf(form, task.queue, task, odd), newline])),
  });
}
