import { Command } from 'commander';
import { addGlobals, examples } from './args/options.js';
import type { Context } from './host/context.js';
import { COMMANDS } from './registry.js';

declare const DELAYQ_VERSION: string;

/**
 * The program with the commands for which `isLoaded` returns true, each loaded. `listOthers` adds the other commands
 * by name and summary only, as the help of the program needs no more of them.
 */
export async function programOf(
  context: Context,
  isLoaded: (name: string) => boolean,
  { listOthers = false }: { listOthers?: boolean } = {},
): Promise<Command> {
  const made = addGlobals(new Command('delayq'))
    // What stands behind the name of a command is the command's: a handler's own options, too.
    .enablePositionalOptions()
    .description('The delay queue for people who already run Redis and live in a shell.')
    .version(DELAYQ_VERSION)
    .configureHelp({ subcommandTerm: (command) => command.name() });
  for (const [group, commands] of Object.entries(COMMANDS)) {
    made.commandsGroup(`${group}:`);
    for (const [name, { summary, load }] of Object.entries(commands)) {
      const command = isLoaded(name)
        ? (await load())(context, () => programOf(context, () => true))
        : new Command(name);
      if (isLoaded(name) || listOthers) made.addCommand(command.summary(summary));
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
