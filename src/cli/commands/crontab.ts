import { accessSync, constants, statSync } from 'node:fs';
import { delimiter, isAbsolute, join, resolve } from 'node:path';
import { Command } from 'commander';
import { checkName, DEFAULT_PREFIX, DelayqError, exactDuration, hasLogin, shellWord } from '../../internal.js';
import { addGlobals, details, examples, longerThanNone } from '../args/options.js';
import type { Context, Globals } from '../host/context.js';
import { say } from '../terminal/output.js';

interface Options extends Globals {
  readonly for?: number;
}

/** What cron looks for programs in, unless it is told otherwise. */
const CRON_PATH = ['/usr/bin', '/bin'];

/** The longest command that Vixie's cron runs, characters. */
const LONGEST = 998;

export function crontabCommand(context: Context): Command {
  const command = new Command('crontab')
    .description(
      'Prints a crontab line that drains a queue into a handler every minute, as it would run here and now: cron has ' +
        'another directory, hardly a PATH, and its own idea of %.',
    )
    .usage('[options] <queue> -- command args…')
    .argument('<queue>', 'name of the queue, or several as high,low')
    .argument('<command...>', 'after --: the handler and its arguments')
    .option(
      '--for <duration>',
      'let each run wait for jobs so long, such as 59s: on the second, not on the minute',
      longerThanNone,
    )
    .action((queue: string, handler: string[], options: Options, self: Command) =>
      crontab(context, queue, handler, options, self),
    );
  examples(command, [
    'delayq crontab order-close -- ./close-order',
    'delayq crontab --for 59s order-close -- ./close-order --verbose',
    '(crontab -l; delayq crontab order-close -- ./close-order) | crontab -',
  ]);
  details(command, [
    'Where Redis is, the namespace, the directory and the PATH are those of this shell. A URL with a password is not',
    'printed: whoever lists processes would see it. The line then needs DELAYQ_REDIS_URL set above it.',
    'Options of drain may be added behind "drain". Nothing due, nothing printed; cron mails what handlers print.',
  ]);
  return addGlobals(command);
}

async function crontab(
  context: Context,
  queues: string,
  handler: readonly string[],
  options: Options,
  self: Command,
): Promise<void> {
  const args = self.parent?.args ?? [];
  // As drain has it: without it a handler's options would be read as ours.
  if (args.indexOf('--') !== args.length - handler.length - 1) {
    throw new DelayqError('usage', 'a handler stands after --', {
      next: `write delayq crontab ${queues} -- ${handler.join(' ')}`,
    });
  }
  for (const queue of queues.split(',')) checkName(queue);
  if (handler.some(hasLogin)) {
    throw new DelayqError('usage', 'an argument of the handler holds a URL of Redis with a password', {
      why: 'whoever reads the crontab, or lists processes, would see it',
      next: 'put the command into a script, and name that',
    });
  }
  const [name = '', ...rest] = handler;
  const prefix = checkName(context.prefix(options), 'prefix');
  // Read once, so that a mistake is told now and not in a mail.
  context.redis(options);
  const url = context.url(options);
  const secret = hasLogin(url ?? '');
  const path = pathOf(context);
  const words = [
    ...(path.every((directory) => CRON_PATH.includes(directory)) ? [] : [`PATH=${quoted(path.join(delimiter))}`]),
    ...(url === undefined || secret ? [] : [`DELAYQ_REDIS_URL=${quoted(url)}`]),
    ...[process.execPath, resolve(process.argv[1] ?? ''), 'drain', '-q'].map(quoted),
    ...(prefix === DEFAULT_PREFIX ? [] : ['--prefix', prefix]),
    ...(options.for === undefined ? [] : ['--for', exactDuration(options.for)]),
    ...[queues, '--', programOf(context, name), ...rest].map(quoted),
  ];
  const steps = [
    `cd ${quoted(process.cwd())}`,
    // Without it the line would drain the Redis of this host, or none.
    // biome-ignore lint/suspicious/noTemplateCurlyInString: it is the shell's.
    ...(secret ? [': "${DELAYQ_REDIS_URL:?}"'] : []),
    words.join(' '),
  ];
  const line = steps.join(' && ').replaceAll('%', '\\%');
  if (/\p{Cc}/u.test(line)) {
    throw new DelayqError('usage', 'a line break or another control character does not fit into a crontab', {
      next: 'put the command into a script, and name that',
    });
  }
  if (line.length > LONGEST)
    say(context, `the line has ${line.length} characters, and some crons take ${LONGEST}: shorten the PATH`);
  await context.write(
    [
      `# Drains ${queues}. A run that is still busy when the next one starts does no harm: no job is given to both.`,
      '# When nothing is due nothing is printed; what handlers print, and errors, cron sends by mail (MAILTO).',
      ...(secret
        ? ['# Above it belongs a line DELAYQ_REDIS_URL=…, with the password; this file is for your eyes alone.']
        : []),
      `* * * * *  ${line}\n`,
    ].join('\n'),
  );
  if (secret) {
    say(
      context,
      'the URL of Redis has a password, which is not printed: write DELAYQ_REDIS_URL=… on a line of its own above',
    );
  }
}

/** The directories of PATH, without those that are not there or not always the same. */
function pathOf(context: Context): string[] {
  const all = (context.env.PATH ?? '').split(delimiter);
  const there = (directory: string) => statSync(directory, { throwIfNoEntry: false })?.isDirectory();
  return [...new Set(all.filter((directory) => isAbsolute(directory) && there(directory)))];
}

/** Where the program `name` is: as the shell would find it here. */
function programOf(context: Context, name: string): string {
  const places = name.includes('/') ? [resolve(name)] : pathOf(context).map((directory) => join(directory, name));
  const found = name === '' ? undefined : places.find(isProgram);
  if (found !== undefined) return found;
  throw new DelayqError('config', `the handler cannot be run: ${JSON.stringify(name)}`, {
    why: name.includes('/') ? 'no such file, or not executable' : 'it is not in PATH',
    next: 'name a program with its path, and chmod +x it',
  });
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return statSync(file).isFile();
  } catch {
    return false;
  }
}

/** `text` as one word for sh. Of \% cron would keep the backslash it must not, so the two are put apart. */
function quoted(text: string): string {
  return shellWord(text).replaceAll('\\%', "\\''%");
}
