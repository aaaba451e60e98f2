import { statSync } from 'node:fs';
import { delimiter, isAbsolute, resolve } from 'node:path';
import { Command } from 'commander';
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
import type { Context } from '../host/context.js';
import { type Globals, URL_OPTIONS } from '../host/place.js';
import { findProgram } from '../host/program.js';
import { say } from '../terminal/output.js';

interface Options extends Globals {
  readonly for?: number;
}

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
    .action((queue: string, handler: string[], options: Options, self: Command) =>
      crontab(context, queue, handler, options, self),
    );
  details(command, [
    'The line keeps the directory, PATH, Redis, TLS and prefix of this shell, escapes',
    '% for cron. A URL with a password is not printed, because the list of processes',
    'would show it: set DELAYQ_REDIS_URL on a line of its own above. You can add',
    'options of drain after the word drain. If nothing is due nothing is printed;',
    'cron mails errors, jobs that die, and what handlers print.',
  ]);
  examples(command, [
    'delayq crontab order-close -- ./close-order',
    'delayq crontab --for 59s order-close -- ./close-order --verbose',
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
  const place = context.place(options);
  const url = context.url(options);
  const secret = hasLogin(url ?? '');
  const path = pathOf(context);
  const [node, file] = context.program;
  const words = [
    ...(path.every((directory) => CRON_PATH.includes(directory)) ? [] : [`PATH=${quoted(path.join(delimiter))}`]),
    ...(url === undefined || secret ? [] : [`DELAYQ_REDIS_URL=${quoted(url)}`]),
    ...[node, resolve(file), 'drain', '-q'].map(quoted),
    ...(prefix === DEFAULT_PREFIX ? [] : ['--prefix', prefix]),
    ...Object.entries(URL_OPTIONS).flatMap(([name, [part, setting]]) => {
      const value = (place[part] as Record<string, string> | undefined)?.[setting];
      return value === undefined ? [] : [`--${name}`, quoted(value)];
    }),
    ...(options.for === undefined ? [] : ['--for', exactDuration(options.for)]),
    ...(queues.startsWith('-') ? ['--'] : []),
    ...[queues, '--', resolve(findProgram(name, path.join(delimiter))), ...rest].map(quoted),
  ];
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
      '# Prints nothing if nothing is due. Cron mails errors, jobs that die, and what handlers print (MAILTO).',
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
