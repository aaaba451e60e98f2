import { Command, CommanderError } from 'commander';
import { isDelayqError } from '../index.js';
import { adoptCommand } from './adopt.js';
import { buryCommand } from './bury.js';
import { cancelCommand } from './cancel.js';
import { checkCommand, unknownState } from './check.js';
import { completionCommand } from './completion.js';
import { configCommand } from './config.js';
import { Context } from './context.js';
import { crontabCommand } from './crontab.js';
import { demoCommand } from './demo.js';
import { doctorCommand } from './doctor.js';
import { drainCommand } from './drain.js';
import { enqueueCommand } from './enqueue.js';
import { exportCommand } from './export.js';
import { importCommand } from './import.js';
import { inspectCommand } from './inspect.js';
import { listCommand } from './list.js';
import { metricsCommand } from './metrics.js';
import { moveCommand } from './move.js';
import { addGlobals, examples } from './options.js';
import { complain } from './output.js';
import { pauseCommand, resumeCommand } from './pause.js';
import { purgeCommand } from './purge.js';
import { requeueCommand } from './requeue.js';
import { rescheduleCommand } from './reschedule.js';
import { ackCommand, nackCommand, renewCommand } from './settle.js';
import { showCommand } from './show.js';
import { waitCommand } from './wait.js';

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

/** All commands, in the order in which the help tells of them. */
const COMMANDS: Readonly<Record<string, Readonly<Record<string, (context: Context) => Command>>>> = {
  Produce: { enqueue: enqueueCommand },
  Consume: { drain: drainCommand, ack: ackCommand, nack: nackCommand, renew: renewCommand },
  Look: { inspect: inspectCommand, list: listCommand, show: showCommand },
  Act: {
    cancel: cancelCommand,
    reschedule: rescheduleCommand,
    requeue: requeueCommand,
    bury: buryCommand,
    move: moveCommand,
    purge: purgeCommand,
    pause: pauseCommand,
    resume: resumeCommand,
  },
  Operate: {
    doctor: doctorCommand,
    check: checkCommand,
    wait: waitCommand,
    metrics: metricsCommand,
    config: configCommand,
    export: exportCommand,
    import: importCommand,
    adopt: adoptCommand,
    crontab: crontabCommand,
    completion: (context) => completionCommand(context, () => programOf(() => true)),
    demo: demoCommand,
  },
};

const context = new Context((code) => process.exit(code));

// Building a command costs time at every start: once it is known which is meant, the others are left out.
const words = process.argv.slice(2);
const meant = meantOf(words);
const isKnown =
  ['-V', '--version'].includes(meant) || Object.values(COMMANDS).some((commands) => Object.hasOwn(commands, meant));
const program = programOf((name) => !isKnown || name === meant);

/** The program with those of its commands that are wanted. */
function programOf(isWanted: (name: string) => boolean): Command {
  const made = addGlobals(new Command('delayq'))
    // What stands behind the name of a command is the command's: a handler's own options, too.
    .enablePositionalOptions()
    .description('The delay queue for people who already run Redis and live in a shell.')
    .version(DELAYQ_VERSION)
    .configureHelp({ subcommandTerm: (command) => command.name() });
  for (const [group, commands] of Object.entries(COMMANDS)) {
    made.commandsGroup(`${group}:`);
    for (const [name, make] of Object.entries(commands)) {
      if (isWanted(name)) made.addCommand(make(context));
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
      outputError: (text, write) => write(`delayq: ${text.replace(/^error: /, '')}`),
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
  return /^--(redis|prefix)=/.test(word) ? meantOf(rest) : word;
}

async function main(): Promise<number> {
  try {
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
    if (meant === 'check') return await unknownState(context, error);
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
