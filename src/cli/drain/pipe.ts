import type { Task } from '../../index.js';
import { type Form, lineOf } from '../lines/form.js';
import type { Recipe } from './handlers.js';

const NEWLINE = Buffer.from('\n');

/** Lines are handed on when they have so many bytes together. */
const CHUNK = 64 * 1024;

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
