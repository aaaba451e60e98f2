import { type Attributes, NO_ATTRIBUTES, parseUrl, type Task, withoutLogin } from '../../internal.js';
import { attempt } from '../host/attempt.js';
import { type Context, URL_VARIABLES } from '../host/context.js';
import { inputOf, lineOf, textOf } from '../lines/drain-line.js';
import { ANSWER_FD } from './answers.js';
import type { Drain } from './drain.js';
import type { Command as ProcessCommand, Program } from './process.js';

/** What to run for some jobs. */
export type Recipe = (tasks: readonly Task[]) => Omit<Program, 'signal'>;

/** Variables that describe a job to its handler. A drain that is itself run by a handler must not pass those on. */
const OF_JOB = /^DELAYQ_(ID|QUEUE|ATTEMPT|TRIES|DUE|RECEIPT|ANSWER_FD|TYPE|BY|REASON|ERROR|ATTR_.*)$/;

/** The environment for a handler: ours, without the credentials of Redis, and without what is meant for us alone. */
export function handlerEnv(context: Context): NodeJS.ProcessEnv {
  const env = { ...context.env };
  for (const name of Object.keys(env))
    if (name === 'REDISCLI_AUTH' || name === 'NOTIFY_SOCKET' || OF_JOB.test(name)) delete env[name];
  for (const name of URL_VARIABLES) {
    const url = env[name];
    if (!url) continue;
    // The address is not secret, and lets a handler that runs delayq report that it lacks a password.
    if (attempt(() => parseUrl(url))) env[name] = withoutLogin(url);
    else delete env[name];
  }
  return env;
}

/**
 * `drain Q -- command`: a process for each job, without a shell. The payload is on stdin, the rest in DELAYQ_…
 * variables.
 */
export function execRecipe(context: Context, { formOf, report }: Drain, command: readonly string[]): Recipe {
  const env = { ...handlerEnv(context), DELAYQ_ANSWER_FD: String(ANSWER_FD) };
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
      input: inputOf(formOf(queue), queue, task as Task, report.odd),
      answers: true,
      speaks: task?.keepsResult,
    };
  };
}

/** `drain Q --stay -- command`: a process for one job after another. */
export function stayProgram(
  context: Context,
  [file = '', ...args]: readonly string[],
  answerFd: number,
): ProcessCommand {
  return { file, args, env: { ...handlerEnv(context), DELAYQ_ANSWER_FD: String(answerFd) } };
}

/** Attributes as variables: `traceparent` is DELAYQ_ATTR_TRACEPARENT. Their names cannot clash: they have no `_`. */
export function variablesOf(attributes: Attributes): Record<string, string> {
  const nameOf = (name: string) => `DELAYQ_ATTR_${name.toUpperCase().replaceAll('-', '_')}`;
  return Object.fromEntries(Object.entries(attributes).map(([name, value]) => [nameOf(name), value]));
}

/**
 * `drain Q --pipe 'command'`: a shell command for each batch. The jobs are lines on its stdin, so no shell parses them.
 */
export function pipeRecipe(context: Context, { formOf, report }: Drain, command: string): Recipe {
  const env = handlerEnv(context);
  return (tasks) => ({
    file: '/bin/sh',
    args: ['-c', command],
    env: { ...env, DELAYQ_QUEUE: (tasks[0] as Task).queue },
    // Jobs that cannot be lines were refused.
    input: textOf(tasks.map((task) => lineOf(formOf(task.queue), task.queue, task, report.odd) as Buffer)),
    answers: false,
  });
}
