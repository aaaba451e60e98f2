import { statSync } from 'node:fs';
import { delimiter, isAbsolute, resolve } from 'node:path';
import type { Command } from 'commander';
import { checkName, DEFAULT_PREFIX, exactDuration, hasLogin, shellWord } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { choice, positiveDuration } from '../args/options.js';
import { handlerAfter } from '../args/queues.js';
import { type Context, type Globals, URL_OPTIONS } from '../host/context.js';
import { findProgram } from '../host/program.js';
import { say } from '../terminal/output.js';

const FORMS = ['job', 'pipe', 'lines'] as const;
type Form = (typeof FORMS)[number];

interface Options extends Globals {
  readonly for?: number;
  readonly form: Form;
}

/** How safe each form is: for the comments above its line. */
const PROMISES: Readonly<Record<Form, string>> = {
  job: 'At least once, for each job: a job may come a second time, so the handler must tolerate a repeat.',
  pipe: 'At least once, for each batch: if the handler fails, the whole batch comes a second time. It must tolerate that.',
  lines: 'At least once, unless the handler crashes: what it has read then is lost. The other forms lose nothing.',
};

/** What each form runs when nothing is due. */
const IDLE: Readonly<Record<Form, string>> = {
  job: 'Prints nothing if nothing is due.',
  pipe: 'Prints nothing if nothing is due.',
  lines: 'The handler starts every minute, also if nothing is due.',
};

const CRON_PATH = ['/usr/bin', '/bin'];

const USE_A_SCRIPT = 'put the command into a script, and use that as the handler';

/** The longest command that Vixie's cron accepts, characters. */
const LONGEST = 998;

export function crontabCommand(command: CliCommand, context: Context): void {
  command
    .description('Print a crontab line that drains a queue into a handler every minute.')
    .usage('[options] <queue> -- command args…')
    .argument('<queue>', 'name of the queue, or several as high,low')
    .argument('<command...>', 'after --: the handler and its arguments')
    .option('--for <duration>', 'keep each run waiting for jobs, such as 59s: on time to the second', positiveDuration)
    .addOption(
      choice(
        '--form <form>',
        'a process for each job, for each batch (--pipe), or one that reads lines (|)',
        FORMS,
      ).default('job'),
    )
    .action((queue: string, handler: string[], options: Options, self: Command) =>
      crontab(context, queue, handler, options, self),
    );
  command.details(`
    Forms:
      job    drain Q -- handler: at least once, for each job. The right one, unless
             you know a reason for another.
      pipe   drain --pipe 'handler' Q: at least once, for each batch. For jobs that
             are cheaper together.
      lines  drain Q | handler: for a program that reads lines. What it has read is
             lost if it crashes.

    The line keeps the directory, PATH, Redis, TLS and prefix of this shell, and escapes % for cron. A URL with a
    password is not printed, because the list of processes would show it: set DELAYQ_REDIS_URL on a line of its own
    above. You can add options of drain after the word drain. If nothing is due, the line prints nothing; cron mails
    errors, jobs that die, runs in which every handler fails, and what handlers print.
  `);
  command.examples([
    'delayq crontab order-close -- ./close-order',
    'delayq crontab --for 59s order-close -- ./close-order --verbose',
    'delayq crontab --form lines order-close -- ./close-orders',
    '(crontab -l; delayq crontab order-close -- ./close-order) | crontab -',
  ]);
}

async function crontab(
  context: Context,
  queues: string,
  after: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const handler = handlerAfter(queues, after, self);
  for (const queue of queues.split(',')) checkName(queue);
  if (handler.some(hasLogin)) {
    const why = 'the crontab and the list of processes would show it';
    throw usageError('an argument of the handler is a URL with a password', USE_A_SCRIPT, why);
  }
  const [name = '', ...rest] = handler;
  const prefix = checkName(context.prefix(options), 'prefix');
  // Parsed here, so that a mistake is reported now and not in a mail.
  context.redis(options);
  const server = context.server(options);
  const url = context.url(options);
  const secret = hasLogin(url ?? '');
  const path = pathOf(context);
  const [node, file] = context.program;
  const variables = [
    ...(path.every((directory) => CRON_PATH.includes(directory)) ? [] : [`PATH=${quoted(path.join(delimiter))}`]),
    ...(url === undefined || secret ? [] : [`DELAYQ_REDIS_URL=${quoted(url)}`]),
  ];
  const program = [resolve(findProgram(name, path.join(delimiter))), ...rest];
  const drain = [
    ...[node, resolve(file), 'drain', '-q'].map(quoted),
    ...(prefix === DEFAULT_PREFIX ? [] : ['--prefix', prefix]),
    ...Object.entries(URL_OPTIONS).flatMap(([name, [part, setting]]) => {
      const value = (server[part] as Record<string, string> | undefined)?.[setting];
      return value === undefined ? [] : [`--${name}`, quoted(value)];
    }),
    ...(options.for === undefined ? [] : ['--for', exactDuration(options.for)]),
    ...(options.form === 'pipe' ? ['--pipe', quoted(program.map(shellWord).join(' '))] : []),
    ...(queues.startsWith('-') ? ['--'] : []),
    quoted(queues),
  ];
  const words = {
    job: [...variables, ...drain, '--', ...program.map(quoted)],
    pipe: [...variables, ...drain],
    // Before drain they would not reach the other end of the pipe.
    lines: [...(variables.length > 0 ? ['export', ...variables, '&&'] : []), ...drain, '|', ...program.map(quoted)],
  }[options.form];
  const steps = [
    `cd ${quoted(process.cwd())}`,
    // Without the variable the line would drain another Redis, or none.
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the shell's.
    ...(secret ? [': "${DELAYQ_REDIS_URL:?}"'] : []),
    words.join(' '),
  ];
  const line = steps.join(' && ').replaceAll('%', '\\%');
  if (/\p{Cc}/u.test(line))
    throw usageError('a crontab line cannot contain a line break or another control character', USE_A_SCRIPT);
  if (line.length > LONGEST)
    say(context, `the line has ${line.length} characters, but some crons accept only ${LONGEST}: shorten the PATH`);
  await context.write(
    [
      `# Drains ${queues}. Runs may overlap: no job goes to two of them.`,
      `# ${PROMISES[options.form]}`,
      `# ${IDLE[options.form]} Cron mails errors, jobs that die, and what handlers print (MAILTO).`,
      ...(secret
        ? ['# Needs a line DELAYQ_REDIS_URL=… above, with the password: let nobody else read this file.']
        : []),
      `* * * * *  ${line}\n`,
    ].join('\n'),
  );
  if (secret)
    say(context, 'the URL of Redis has a password, so it is not printed: add a line DELAYQ_REDIS_URL=… above');
}

function pathOf(context: Context): string[] {
  const all = (context.env.PATH ?? '').split(delimiter);
  const there = (directory: string) => statSync(directory, { throwIfNoEntry: false })?.isDirectory();
  return [...new Set(all.filter((directory) => isAbsolute(directory) && there(directory)))];
}

/** `text` as one word for sh. cron would read \\% as an escaped %, so a quote separates the two. */
function quoted(text: string): string {
  return shellWord(text).replaceAll('\\%', "\\''%");
}
