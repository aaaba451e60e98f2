import type { Argument, Command, Option } from 'commander';
import { SETTING_NAMES } from '../../internal.js';

/*
 * What can stand at the cursor of a command line that is being typed, found by walking the tree of commands.
 */

/** A word that may stand there, and what it means. */
type Candidate = readonly [word: string, meaning: string];

/** What may stand there: words; names of queues behind what is there already; files, behind `before`; or another command line. */
export type Candidates =
  | { readonly kind: 'words'; readonly words: readonly Candidate[] }
  | { readonly kind: 'queues'; readonly before: string; readonly redis?: string; readonly prefix?: string }
  | { readonly kind: 'files'; readonly before: string }
  | { readonly kind: 'command'; readonly from: number };

const NOTHING: Candidates = { kind: 'words', words: [] };

/** What is meant by the placeholders of options and arguments, such as queue in <queue>. */
const SOURCES: Readonly<Record<string, (current: string) => Candidates>> = {
  // drain takes several: high,low
  queue: (current) => ({ kind: 'queues', before: current.replace(/[^,]*$/, '') }),
  file: () => ({ kind: 'files', before: '' }),
  payload: (current) => (current.startsWith('@') ? { kind: 'files', before: '@' } : NOTHING),
  zone: () => words(Intl.supportedValuesOf('timeZone')),
  'name=value': () => words(SETTING_NAMES.map((name) => `${name}=`)),
};

/** Where the words before the cursor have led. */
interface Place {
  readonly command: Command;
  /** How many arguments of the command stand before. */
  readonly args: number;
  /** What must stand here: the value of this option. */
  readonly option?: Option | undefined;
  /** How many words stand up to `--`, with it. */
  readonly dashes?: number | undefined;
  /** Values of options that choose the Redis and the namespace. */
  readonly given: { redis?: string; prefix?: string };
}

/** What may stand in place of `current`, behind the words `before` it, none of which is the program's name. */
export function candidatesFor(program: Command, before: readonly string[], current: string): Candidates {
  const { command, args, option, dashes, given } = placeOf(program, before);
  if (option) return { ...valuesOf(placeholder(option.flags), current), ...given };
  const assigned = /^(--[^=]+)=(.*)$/.exec(current);
  if (dashes === undefined && assigned) {
    const [, flag = '', value = ''] = assigned;
    const found = optionOf(command, flag);
    return found ? behind(`${flag}=`, { ...valuesOf(placeholder(found.flags), value), ...given }) : NOTHING;
  }
  if (dashes === undefined && current.startsWith('-')) return options(command);
  if (command === program) return commands(program);
  const argument = argumentAt(command, args);
  if (command.name() === 'help') return argument ? commands(program) : NOTHING;
  if (argument?.name() === 'command') return dashes === undefined ? NOTHING : { kind: 'command', from: dashes };
  return argument ? { ...valuesOf(argument.name(), current), ...given } : NOTHING;
}

function placeOf(program: Command, before: readonly string[]): Place {
  let command = program;
  let args = 0;
  let option: Option | undefined;
  let dashes: number | undefined;
  const given: Place['given'] = {};
  for (const [i, word] of before.entries()) {
    if (option) {
      keep(given, option, word);
      option = undefined;
    } else if (dashes !== undefined) args += 1;
    else if (word === '--') dashes = i + 1;
    else if (word.startsWith('--')) {
      const [, flag = word, value] = /^(--[^=]+)=(.*)$/.exec(word) ?? [];
      const found = optionOf(command, flag);
      if (found && value !== undefined) keep(given, found, value);
      else option = takesValue(found) ? found : undefined;
    } else if (word.length > 1 && word.startsWith('-')) option = lastOf(command, word.slice(1));
    else if (command === program) command = commandOf(program, word);
    else args += 1;
  }
  return { command, args, option, dashes, given };
}

function keep(given: Place['given'], option: Option, value: string): void {
  const name = option.attributeName();
  if (name === 'redis' || name === 'prefix') given[name] = value;
}

function commandOf(program: Command, name: string): Command {
  const found = visible(program).find((command) => command.name() === name || command.aliases().includes(name));
  // Behind a word that is no command nothing can be told.
  return found ?? program.createCommand(name);
}

/** Of letters such as qn in -qn the option that takes the next word as its value. */
function lastOf(command: Command, letters: string): Option | undefined {
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

function argumentAt(command: Command, place: number): Argument | undefined {
  const all = command.registeredArguments;
  const last = all[all.length - 1];
  return all[place] ?? (last?.variadic ? last : undefined);
}

/** queue of <queue>, name=value of [name=value...]. */
function placeholder(flags: string): string {
  return /[<[](.*?)(?:\.{3})?[>\]]/.exec(flags)?.[1] ?? '';
}

function valuesOf(name: string, current: string): Candidates {
  return name.includes('|') ? words(name.split('|')) : (SOURCES[name]?.(current) ?? NOTHING);
}

/** The same candidates with `prefix` before each. */
function behind(prefix: string, candidates: Candidates): Candidates {
  switch (candidates.kind) {
    case 'words':
      return { kind: 'words', words: candidates.words.map(([word, meaning]) => [`${prefix}${word}`, meaning]) };
    case 'command':
      return candidates;
    default:
      return { ...candidates, before: `${prefix}${candidates.before}` };
  }
}

function words(all: readonly string[]): Candidates {
  return { kind: 'words', words: all.map((word) => [word, '']) };
}

function options(command: Command): Candidates {
  const all = command.createHelp().visibleOptions(command);
  return { kind: 'words', words: all.map(({ long, short, description }) => [long ?? short ?? '', description]) };
}

function commands(program: Command): Candidates {
  return {
    kind: 'words',
    words: visible(program).map((command) => [command.name(), command.summary() || command.description()]),
  };
}

function visible(program: Command): readonly Command[] {
  return program.createHelp().visibleCommands(program);
}
