import type { Command } from 'commander';
import { closest } from '../internal.js';
import { CliCommand, usageError } from './args/command.js';
import { addGlobals } from './args/options.js';
import type { Context } from './host/context.js';
import { COMMANDS, type Make } from './registry.js';

declare const DELAYQ_VERSION: string;

/**
 * The program. A command has only its name and summary until it is run. `all` makes the others, too, and returns the
 * program.
 */
export function programOf(context: Context): { program: Command; all: () => Promise<Command> } {
  const { stdout, stderr } = context;
  const program = addGlobals(new CliCommand('delayq'))
    // Options after the name of a command belong to the command, even if they have the name of a global one.
    .enablePositionalOptions()
    .description('The delay queue for people who already run Redis and live in a shell.')
    .version(DELAYQ_VERSION, '-V, --version', 'print the version')
    .helpOption('-h, --help', 'show this help')
    .exitOverride()
    .configureOutput({
      writeOut: (text) => stdout.write(text),
      writeErr: (text) => stderr.write(text),
      getOutHelpWidth: () => (stdout.isTTY ? stdout.columns : 80),
      getErrHelpWidth: () => (stderr.isTTY ? stderr.columns : 80),
      getOutHasColors: () => false,
      getErrHasColors: () => false,
      // run.ts reports it, as every error.
      outputError: () => {},
    });
  const loaders = new Map<Command, () => Promise<object>>();
  for (const [group, commands] of Object.entries(COMMANDS)) {
    program.commandsGroup(`${group}:`);
    for (const [name, [summary, load]] of Object.entries(commands))
      loaders.set(program.command(name).summary(summary), load);
  }
  const make = async (command: Command) => {
    const load = loaders.get(command);
    if (!load) return;
    loaders.delete(command);
    const name = command.name();
    const module = (await load()) as Record<`${string}Command`, Make>;
    module[`${name}Command`]?.(command as CliCommand, context, all);
    // The demo has a Redis of its own.
    if (name !== 'demo') addGlobals(command);
  };
  const all = async () => {
    for (const command of program.commands) await make(command);
    return program;
  };
  // commander's own help command would not make the other one.
  program
    .command('help')
    .summary('show the help of a command')
    .argument('[command]')
    .action(async (name?: string) => {
      await program.parseAsync(name === undefined ? ['-h'] : [name, '-h'], { from: 'user' });
    });
  const refuseUnknown = () => {
    const [name] = program.args;
    const known = program.commands.map((command) => command.name());
    if (name === undefined || name.startsWith('-') || known.includes(name)) return;
    const close = closest(name, known);
    const next = close ? `did you mean ${close}? delayq ${close} --help` : 'delayq --help';
    throw usageError(`unknown command '${name}'`, next);
  };
  // With --help after it, commander would ignore that the command is unknown, and show the help of the program.
  program.on('command:*', refuseUnknown).on('beforeHelp', refuseUnknown);
  program.details('Data goes to stdout, everything else to stderr. Try it: delayq demo');
  program.examples([
    `delayq enqueue --in 15m order-close '{"orderId":42}'`,
    'delayq drain order-close -- ./close-order',
    'delayq inspect',
  ]);
  return {
    program: program
      // One long option must not push all words to the right.
      .configureHelp({ subcommandTerm: (command) => command.name(), padWidth: () => '--tls-servername <name>'.length })
      .hook('preSubcommand', (_, command) => make(command))
      // Global options may also stand before the command; those after it win.
      .hook('preAction', (_, action) => {
        for (const [name, value] of Object.entries(program.opts())) {
          if (action.getOptionValue(name) === undefined) action.setOptionValue(name, value);
        }
      }),
    all,
  };
}
