import type { Command, CommanderError } from 'commander';
import { DelayqError, ID_ADVICE, isDelayqError, TEXT_ADVICE, ZONE_ADVICE } from '../internal.js';

/** What the library advises, and what it is called on the command line. */
const ADVICE = new Map([
  [TEXT_ADVICE, 'to store any text: --text, or delayq config QUEUE text=on'],
  [ID_ADVICE, 'choose another id, for example daily-report; delayq every --list has those that exist'],
  [ZONE_ADVICE, 'set --tz (or DELAYQ_TZ, TZ) to a name such as Europe/Berlin or UTC'],
]);

/** An error with advice that names options where the library has arguments. */
export function withOptions(error: unknown): unknown {
  if (!isDelayqError(error)) return error;
  const { code, what, why, next = '', cause } = error;
  const advice = ADVICE.get(next);
  return advice === undefined ? error : new DelayqError(code, what, { why, next: advice, cause });
}

/** commander's error in our words: what is wrong, then what was probably meant, and the help that tells more. */
export function ofUsage({ code, message }: CommanderError, command: Command): DelayqError {
  // "error: unknown option '--wacth'", and perhaps a second line: "(Did you mean --watch?)".
  const [what = '', suggestion] = message.replace(/^error: /, '').split('\n');
  const help = command.parent ? `delayq ${command.name()} --help` : 'delayq --help';
  if (/^unknown option '--cron\b/.test(what))
    return new DelayqError('usage', what, { next: 'recurring jobs have a command of their own: delayq every --help' });
  const advice = suggestion?.slice(1, -1).replace('Did', 'did') ?? adviceFor(code, what, command);
  return new DelayqError('usage', what, { next: advice === undefined ? help : `${advice} ${help}` });
}

function adviceFor(code: string, what: string, command: Command): string | undefined {
  const takes = (name: string) => command.registeredArguments.some((argument) => argument.name() === name);
  const [, word = ''] = /'(-\w[\w.:-]*)'/.exec(what) ?? [];
  switch (code) {
    case 'commander.unknownOption':
      if (!command.parent) return 'options follow the command:';
      // What looks like an option may be the name of a queue.
      return takes('queue') && word
        ? `a queue of this name comes after --: delayq ${command.name()} -- ${word};`
        : undefined;
    case 'commander.conflictingOption':
      return 'leave out one of them:';
    case 'commander.excessArguments':
      return takes('payload')
        ? 'put the payload or the time into single quotes, and a due time after --in or --at:'
        : undefined;
    case 'commander.missingArgument':
      if (/'payload'/.test(what)) return 'give a payload, or - to read payloads from stdin:';
      // The value of this option may be missing, so it takes the word behind it.
      return typeof command.getOptionValue('toStream') === 'string' ? 'name the queue before --to-stream:' : undefined;
    default:
      return undefined;
  }
}
