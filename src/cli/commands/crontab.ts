import { statSync } from 'node:fs';
import { delimiter, isAbsolute, resolve } from 'node:path';
import { Command, Option } from 'commander';
import {
  checkName,
  DEFAULT_PREFIX,
  DelayqError,
  exactDuration,
  hasLogin,
  queueWord,
  shellWord,
} from '../../internal.js';
import { addGlobals, details, examples, positiveDuration } from '../args/options.js';
import { handlerAfter } from '../args/queues.js';
import { type Context, type Globals, URL_OPTIONS } from '../host/context.js';
import { findProgram } from '../host/program.js';
import { say } from '../terminal/output.js';

type Form = 'job' | 'pipe' | 'lines';

interface Options extends Globals {
  readonly for?: number;
  readonly form: Form;
}

/** How safe each form is, and what it runs when nothing is due: for the comments above its line. */
const PROMISES: Readonly<Record<Form, readonly string[]>> = {
  job: [
    'At least once, for each job: a job may come a second time, so the handler must tolerate a repeat.',
    'Prints nothing if nothing is due. Cron mails errors, jobs that die, and what handlers print (MAILTO).',
  ],
  pipe: [
    'At least once, for each batch: if the handler fails, the whole batch comes a second time. It must tolerate that.',
    'Prints nothing if nothing is due. Cron mails errors, jobs that die, and what handlers print (MAILTO).',
  ],
  lines: [
    'At least once, unless the handler crashes: what it has read then is lost. The other forms lose nothing.',
    'It starts every minute, also if nothing is due. Cron mails errors, jobs that die, and what it prints (MAILTO).',
  ],
};

const CRON_PATH = ['/usr/bin', '/bin'];

/** The longest command that Vixie's cron accepts, characters. */
const LONGEST = 998;

export function crontabCommand(context: Context): Command {
  const command = new Command('crontab')
    .description('Print a crontab line that drains a queue into a handler every minute.')
    .usage('[options] <queue> -- command args…')
    .argument('<queue>', 'name of the queue, or several as high,low')
    .argument('<command...>', 'after --: the handler and its arguments')
    .option('--for <duration>', 'keep each run waiting for jobs, such as 59s: on time to the second', positiveDuration)
    .addOption(
      new Option('--form <form>', 'a process for each job, for each batch (--pipe), or one that reads lines (|)')
        .choices(['job', 'pipe', 'lines'])
        .default('job'),
    )
    .action((queue: string, handler: string[], options: Options, self: Command) =>
      crontab(context, queue, handler, options, self),
    );
  details(command, [
    'Forms:',
    '  job    drain Q -- handler: at least once, for each job. The right one, unless',
    '         you know a reason for another.',
    "  pipe   drain --pipe 'handler' Q: at least once, for each batch. For jobs that",
    '         are cheaper together.',
    '  lines  drain Q | handler: for a program that reads lines. What it has read is',
    '         lost if it crashes.',
    '',
    'The line keeps the directory, PATH, Redis, TLS and prefix of this shell, escapes',
    '% for cron. A URL with a password is not printed, because the list of processes',
    'would show it: set DELAYQ_REDIS_URL on a line of its own above. You can add',
    'options of drain after the word drain. If nothing is due nothing is printed;',
    'cron mails errors, jobs that die, and what handlers print.',
  ]);
  examples(command, [
    'delayq crontab order-close -- ./close-order',
    'delayq crontab --for 59s order-close -- ./close-order --verbose',
    'delayq crontab --form lines order-close -- ./close-orders',
    '(crontab -l; delayq crontab order-close -- ./close-order) | crontab -',
  ]);
  return addGlobals(command);
}

async function crontab(
  context: Context,
  queues: string,
  after: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const { handler, words: given, dashes } = handlerAfter(queues, after, self);
  // As in drain: without -- the options of the handler would be parsed as ours.
  if (dashes < 0 || dashes !== given.length - handler.length - 1) {
    throw new DelayqError('usage', 'the handler must follow --', {
      next: `write delayq crontab ${queueWord(queues)} -- ${handler.join(' ')}`,
    });
  }
  for (const queue of queues.split(',')) checkName(queue);
  if (handler.some(hasLogin)) {
    throw new DelayqError('usage', 'an argument of the handler is a URL with a password', {
      why: 'the crontab and the list of processes would show it',
      next: 'put the command into a script, and use that as the handler',
    });
  }
  const [name = '', ...rest] = handler;
  const prefix = checkName(context.prefix(options), 'prefix');
  // Parsed here, so that a mistake is reported now and not in a mail.
  context.redis(options);
  const place = context.server(options);
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
      const value = (place[part] as Record<string, string> | undefined)?.[setting];
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
  if (/\p{Cc}/u.test(line)) {
    throw new DelayqError('usage', 'a crontab line cannot contain a line break or another control character', {
      next: 'put the command into a script, and use that as the handler',
    });
  }
  if (line.length > LONGEST)
    say(context, `the line has ${line.length} characters, but some crons accept only ${LONGEST}: shorten the PATH`);
  await context.write(
    [
      `# Drains ${queues}. Runs may overlap: no job goes to two of them.`,
      ...PROMISES[options.form].map((line) => `# ${line}`),
      ...(secret
        ? ['# Needs a line DELAYQ_REDIS_URL=… above it, with the password: let nobody else read this file.']
        : []),
      `* * * * *  ${line}\n`,
    ].join('\n'),
  );
  if (secret) {
    say(context, 'the URL of Redis has a password, so it is not printed: add a line DELAYQ_REDIS_URL=… above');
  }
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
