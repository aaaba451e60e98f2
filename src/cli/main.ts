import { Command, CommanderError } from 'commander';
import { isDelayqError } from '../internal.js';
import { addGlobals, examples } from './args/options.js';
import { Context } from './host/context.js';
import { COMMANDS } from './registry.js';
import { complain } from './terminal/output.js';

declare const DELAYQ_VERSION: string;

/** What the process ends with for each error, after sysexits.h. */
const EXIT = {
  missing: 3,
  usage: 64,
  data: 65,
  input: 66,
  unreachable: 69,
  internal: 70,
  output: 74,
  temporary: 75,
  unknown: 75,
  refused: 77,
  config: 78,
} as const;

const context = new Context((code) => process.exit(code));

const words = process.argv.slice(2);
const meant = meantOf(words);
const isKnown =
  ['-V', '--version'].includes(meant) || Object.values(COMMANDS).some((commands) => Object.hasOwn(commands, meant));

/** The program with those of its commands that `isMeant`; of the others, unless one is, what the help tells of them. */
async function programOf(isMeant: (name: string) => boolean): Promise<Command> {
  const made = addGlobals(new Command('delayq'))
    // What stands behind the name of a command is the command's: a handler's own options, too.
    .enablePositionalOptions()
    .description('The delay queue for people who already run Redis and live in a shell.')
    .version(DELAYQ_VERSION)
    .configureHelp({ subcommandTerm: (command) => command.name() });
  for (const [group, commands] of Object.entries(COMMANDS)) {
    made.commandsGroup(`${group}:`);
    for (const [name, { summary, load }] of Object.entries(commands)) {
      const command = isMeant(name) ? (await load())(context, () => programOf(() => true)) : new Command(name);
      if (isMeant(name) || !isKnown) made.addCommand(command.summary(summary));
    }
  }
  made
    .addCommand(helpOf(made))
    .addHelpText('after', '\nstdout carries data only; everything else goes to stderr. Try: delayq demo');
  examples(made, [
    `delayq enqueue --in 15m order-close '{"orderId":42}'`,
    'delayq drain order-close -- ./close-order',
    'delayq inspect',
  ]);
  for (const command of [made, ...made.commands]) {
    command.exitOverride().configureOutput({
      outputError: (text, write) => write(`delayq: ${context.withoutLogins(text).replace(/^error: /, '')}`),
    });
  }
  // Options of the program may stand after the command as well; there they win.
  return made.hook('preAction', (_, action) => {
    for (const [name, value] of Object.entries(made.opts())) {
      if (action.getOptionValue(name) === undefined) action.setOptionValue(name, value);
    }
  });
}

/** commander's own ends with the exit code that stands while the program runs: that of a bug. */
function helpOf(made: Command): Command {
  return new Command('help')
    .summary('show help for a command')
    .argument('[command]')
    .helpOption(false)
    .action(async (name?: string) => {
      const command = name === undefined ? made : made.commands.find((command) => command.name() === name);
      // For what it says of an unknown command.
      if (command === undefined) await made.parseAsync([name as string], { from: 'user' });
      else command.outputHelp();
    });
}

/** The name of the command: the first word that is neither an option of the program nor its value. */
function meantOf(words: readonly string[]): string {
  const [word = '', ...rest] = words;
  if (word === '--redis' || word === '--prefix') return meantOf(rest.slice(1));
  return /^--($|(redis|prefix)=)/.test(word) ? meantOf(rest) : word;
}

async function main(): Promise<number> {
  try {
    const program = await programOf((name) => name === meant || (meant === 'help' && words.includes(name)));
    if (process.argv.length <= 2) {
      process.stderr.write(program.helpInformation({ error: true }));
      return EXIT.usage;
    }
    // Of a command that is none --help would show the program's, as if nothing were wrong.
    const unknown = !isKnown && /^[^-]/.test(meant) && meant !== 'help';
    await program.parseAsync(unknown ? [meant] : words, { from: 'user' });
    return context.exitCode;
  } catch (error) {
    if (error instanceof CommanderError && error.exitCode === 0) return 0;
    // Monitoring knows four states, and reads stdout.
    if (meant === 'check') {
      const { unknownState } = await import('./commands/check.js');
      return await unknownState(context, error);
    }
    if (error instanceof CommanderError) {
      process.stderr.write(`  next: delayq ${isKnown ? `${meant} ` : ''}--help\n`);
      return EXIT.usage;
    }
    complain(context, error);
    return isDelayqError(error) ? EXIT[error.code] : EXIT.internal;
  } finally {
    await context.close();
  }
}

// Should nothing be left to wait for before main() has ended, that is a bug, and no success.
process.exitCode = EXIT.internal;
main().then((code) => process.exit(code));
