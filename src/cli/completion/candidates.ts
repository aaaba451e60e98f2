import type { Argument, Command, Option, OptionValues } from 'commander';
import { EVENT_TYPES, SETTING_NAMES, settingWord } from '../../internal.js';

/** A word to offer, and its description. */
type Candidate = readonly [word: string, description: string];

/** What to offer: words, queue names or files after `before`, or the completions of the command after `from` words. */
export type Candidates = (Values | { readonly kind: 'command'; readonly from: number }) & {
  readonly given?: OptionValues;
};

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
  'name=value': () => words(SETTING_NAMES.map((name) => `${settingWord(name)}=`)),
  types: () => words(EVENT_TYPES),
};

/** Finds in the tree of commands what to offer in place of `current`; `before` are the words between it and delayq. */
export function candidatesFor(program: Command, before: readonly string[], current: string): Candidates {
  const { command, args, option } = cursorAfter(program, before);
  const dashes = before.indexOf('--') + 1;
  const given = { ...program.opts(), ...command.opts() };
  if (option) return { ...valuesFor(option, current), given };
  const assigned = ASSIGNMENT.exec(current);
  if (dashes === 0 && assigned) {
    const [, flag = '', value = ''] = assigned;
    const found = command.options.find(({ long }) => long === flag);
    return found ? { ...prefixed(`${flag}=`, valuesFor(found, value)), given } : NOTHING;
  }
  if (dashes === 0 && current.startsWith('-')) return options(command);
  if (command === program) return commands(program);
  if (command.name() === 'every') return { ...recurring(args, command.opts(), current), given };
  const argument = argumentAt(command, args.length);
  if (command.name() === 'help') return argument ? commands(program) : NOTHING;
  if (argument?.name() === 'command') return dashes === 0 ? NOTHING : { kind: 'command', from: dashes };
  return argument ? { ...valuesOf(argument.name(), current), given } : NOTHING;
}

/** Where the cursor is: in which command, after which arguments, and at the value of which option, if of any. */
function cursorAfter(program: Command, before: readonly string[]) {
  const { operands, unknown, option } = read(program, before);
  const [name] = operands;
  if (name === undefined) return { command: program, args: operands, option };
  const found = visible(program).find((command) => command.name() === name);
  // After an unknown command there is nothing to offer.
  const command = found ?? program.createCommand(name).copyInheritedSettings(program);
  const inside = read(command, unknown);
  return { command, args: inside.operands, option: inside.option };
}

/** Reads words as commander does. The last one may be an option whose value is being typed. */
function read(command: Command, words: readonly string[]) {
  // A wrong value must not end the completion of others.
  for (const option of command.options) option.argParser((value) => value);
  try {
    return { ...command.parseOptions([...words]), option: undefined };
  } catch {
    const last = words.at(-1) ?? '';
    const flag = last.startsWith('--') ? last : `-${last.at(-1)}`;
    const option = command.options.find(({ short, long }) => flag === short || flag === long);
    return { ...command.parseOptions(words.slice(0, -1)), option };
  }
}

/** The arguments of every depend on its options. */
function recurring(args: readonly string[], given: OptionValues, current: string): Values {
  const [queue] = args;
  if (given.list) return valuesOf('queue', current);
  if (given.remove || given.pause || given.resume)
    return queue === undefined ? valuesOf('queue', current) : { kind: 'recurring', queue };
  return valuesOf(['when', 'queue', 'payload'][args.length] ?? '', current);
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
