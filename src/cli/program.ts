import { Command } from 'commander';
import { addGlobals, details, examples } from './args/options.js';
import type { Context } from './host/context.js';
import { COMMANDS, LOADERS } from './registry.js';

declare const DELAYQ_VERSION: string;

/**
 * The program with the commands for which `isLoaded` returns true. `listOthers` adds the other commands by name and
 * summary only: the help of the program needs no more of them.
 */
export async function programOf(
  context: Context,
  isLoaded: (name: string) => boolean,
  { listOthers = false }: { listOthers?: boolean } = {},
): Promise<Command> {
  const program = addGlobals(new Command('delayq'))
    // Options after the name of a command belong to the command, even if they have the name of a global one.
    .enablePositionalOptions()
    .description('The delay queue for people who already run Redis and live in a shell.')
    .version(DELAYQ_VERSION, '-V, --version', 'print the version')
    // One long option must not push all words to the right.
    .configureHelp({ subcommandTerm: (command) => command.name(), padWidth: () => '--tls-servername <name>'.length });
  for (const [group, commands] of Object.entries(COMMANDS)) {
    program.commandsGroup(`${group}:`);
    for (const [name, summary] of Object.entries(commands)) {
      const all = () => programOf(context, () => true);
      const make = LOADERS[name as keyof typeof LOADERS];
      const command = isLoaded(name) ? (await make())(context, all) : new Command(name);
      if (isLoaded(name) || listOthers) program.addCommand(command.summary(summary));
    }
  }
  program.addCommand(helpCommand(program));
  details(program, ['Data goes to stdout, everything else to stderr. Try it: delayq demo']);
  examples(program, [
    `delayq enqueue --in 15m order-close '{"orderId":42}'`,
    'delayq drain order-close -- ./close-order',
    'delayq inspect',
  ]);
  const { stdout, stderr } = context;
  for (const command of [program, ...program.commands]) {
    command
      .helpOption('-h, --help', 'show this help')
      .exitOverride()
      .showSuggestionAfterError(false)
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
  }
  // Global options may also stand before the command; those after it win.
  return program.hook('preAction', (_, action) => {
    for (const [name, value] of Object.entries(program.opts())) {
      if (action.getOptionValue(name) === undefined) action.setOptionValue(name, value);
    }
  });
}

/** `delayq help`. commander's own would exit with process.exitCode, which is 70 until the run has ended. */
function helpCommand(program: Command): Command {
  return new Command('help')
    .summary('show the help of a command')
    .argument('[command]')
    .action(async (name?: string) => {
      const command = name === undefined ? program : program.commands.find((command) => command.name() === name);
      if (command === undefined) await program.parseAsync([name as string], { from: 'user' });
      else command.outputHelp();
    });
}
