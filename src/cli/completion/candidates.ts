import type { Argument, Command, Option } from 'commander';
import { SETTING_NAMES } from '../../internal.js';

/** A word to offer, and its description. */
type Candidate = readonly [word: string, description: string];

/** What to offer: words, queue names or files after `before`, or the completions of the command after `from` words. */
export type Candidates = (Values | { readonly kind: 'command'; readonly from: number }) & { readonly given?: Given };

type Values =
  | { readonly kind: 'words'; readonly words: readonly Candidate[] }
  | { readonly kind: 'queues'; readonly before: string }
  | { readonly kind: 'recurring'; readonly queue: string }
  | { readonly kind: 'files'; readonly before: string };

/** An option with its value: --redis=redis://host */
const ASSIGNMENT = /^(--[^=]+)=(.*)$/;

const NOTHING: Values = { kind: 'words', words: [] };

/** What to offer for the placeholder of an option or argument, such as queue in <queue>. */
const SOURCES: Readonly<Record<string, (current: string) => Values>> = {
  // drain accepts several: high,low
  queue: (current) => ({ kind: 'queues', before: current.replace(/[^,]*$/, '') }),
  file: () => ({ kind: 'files', before: '' }),
  payload: (current) => (current.startsWith('@') ? { kind: 'files', before: '@' } : NOTHING),
  zone: () => words(Intl.supportedValuesOf('timeZone')),
  'name=value': () => words(SETTING_NAMES.map((name) => `${name}=`)),
};

/** The values of the options of every command, by their attributes: they lead to the queues. */
type Given = Record<string, string>;

/** Finds in the tree of commands what to offer in place of `current`; `before` are the words between it and delayq. */
export function candidatesFor(program: Command, before: readonly string[], current: string): Candidates {
  const { command, args, option, dashes, given, flags } = cursorAfter(program, before);
  if (option) return { ...valuesFor(option, current), given };
  const assigned = ASSIGNMENT.exec(current);
  if (dashes === undefined && assigned) {
    const [, flag = '', value = ''] = assigned;
    const found = optionOf(command, flag);
    return found ? { ...prefixed(`${flag}=`, valuesFor(found, value)), given } : NOTHING;
  }
  if (dashes === undefined && current.startsWith('-')) return options(command);
  if (command === program) return commands(program);
  if (command.name() === 'every') return { ...recurring(args, flags, current), given };
  const argument = argumentAt(command, args.length);
  if (command.name() === 'help') return argument ? commands(program) : NOTHING;
  if (argument?.name() === 'command') return dashes === undefined ? NOTHING : { kind: 'command', from: dashes };
  return argument ? { ...valuesOf(argument.name(), current), given } : NOTHING;
}

function cursorAfter(program: Command, before: readonly string[]) {
  let command = program;
  /** The arguments of the command before the cursor. */
  const args: string[] = [];
  /** The long options before it. */
  const flags: string[] = [];
  /** The cursor is at the value of this option. */
  let option: Option | undefined;
  /** How many words there are up to and including `--`. */
  let dashes: number | undefined;
  const given: Given = {};
  for (const [i, word] of before.entries()) {
    if (option) {
      keep(given, option, word);
      option = undefined;
    } else if (dashes !== undefined) args.push(word);
    else if (word === '--') dashes = i + 1;
    else if (word.startsWith('--')) {
      const [, flag = word, value] = ASSIGNMENT.exec(word) ?? [];
      const found = optionOf(command, flag);
      flags.push(flag);
      if (found && value !== undefined) keep(given, found, value);
      else option = takesValue(found) ? found : undefined;
    } else if (word.length > 1 && word.startsWith('-')) option = valueOption(command, word.slice(1));
    else if (command === program) command = commandOf(program, word);
    else args.push(word);
  }
  return { command, args, option, dashes, given, flags };
}

/** The arguments of every depend on its options. */
function recurring(args: readonly string[], flags: readonly string[], current: string): Values {
  const [queue] = args;
  if (flags.includes('--list')) return valuesOf('queue', current);
  if (['--remove', '--pause', '--resume'].some((act) => flags.includes(act)))
    return queue === undefined ? valuesOf('queue', current) : { kind: 'recurring', queue };
  return valuesOf(['when', 'queue', 'payload'][args.length] ?? '', current);
}

function keep(given: Given, option: Option, value: string): void {
  const name = option.attributeName();
  if (/^(redis|prefix|(tls|sentinel)[A-Z].*)$/.test(name)) given[name] = value;
}

function commandOf(program: Command, name: string): Command {
  const found = visible(program).find((command) => command.name() === name || command.aliases().includes(name));
  // After an unknown command there is nothing to offer.
  return found ?? program.createCommand(name);
}

/** In letters such as qn of -qn, the last option, if the next word is its value. */
function valueOption(command: Command, letters: string): Option | undefined {
  for (const [i, letter] of [...letters].entries()) {
    const option = optionOf(command, `-${letter}`);
    if (takesValue(option)) return i === letters.length - 1 ? option : undefined;
  }
  return undefined;
}

function optionOf(command: Command, flag: string): Option | undefined {
  return command.options.find(({ short, long }) => flag === short || flag === long);
}

function takesValue(option: Option | undefined): boolean {
  return Boolean(option && (option.required || option.optional));
}

function argumentAt(command: Command, index: number): Argument | undefined {
  const all = command.registeredArguments;
  const last = all.at(-1);
  return all[index] ?? (last?.variadic ? last : undefined);
}

/** Returns queue for <queue>, name=value for [name=value...]. */
function placeholder(flags: string): string {
  return /[<[](.*?)(?:\.{3})?[>\]]/.exec(flags)?.[1] ?? '';
}

function valuesFor({ argChoices, flags }: Option, current: string): Values {
  return argChoices ? words(argChoices) : valuesOf(placeholder(flags), current);
}

function valuesOf(name: string, current: string): Values {
  return name.includes('|') ? words(name.split('|')) : (SOURCES[name]?.(current) ?? NOTHING);
}

function prefixed(prefix: string, values: Values): Candidates {
  if ('before' in values) return { ...values, before: `${prefix}${values.before}` };
  if (values.kind !== 'words') return NOTHING;
  return { kind: 'words', words: values.words.map(([word, description]) => [`${prefix}${word}`, description]) };
}

function words(all: readonly string[]): Values {
  return { kind: 'words', words: all.map((word) => [word, '']) };
}

function options(command: Command): Candidates {
  const all = command.createHelp().visibleOptions(command);
  return { kind: 'words', words: all.map(({ long, short, description }) => [long ?? short ?? '', description]) };
}

function commands(program: Command): Candidates {
  const all = visible(program);
  return { kind: 'words', words: all.map((command) => [command.name(), command.summary() || command.description()]) };
}

function visible(program: Command): readonly Command[] {
  return program.createHelp().visibleCommands(program);
}
