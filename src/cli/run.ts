import { type Command, CommanderError } from 'commander';
import { DelayqError, isDelayqError } from '../internal.js';
import { reportUnknown } from './commands/check.js';
import { exitStatus } from './exit.js';
import { Context } from './host/context.js';
import { type Host, WATCHER } from './host/host.js';
import { programOf } from './program.js';
import { ofUsage, withOptions } from './suggest.js';
import { complain } from './terminal/output.js';

/** Runs the command line that `host` was given. Resolves with the exit status once the run has let go of everything. */
export async function run(host: Host): Promise<number> {
  const context = new Context(host, () => host.exit(exitStatus('interrupted')));
  const { program } = programOf(context);
  try {
    checkEncoding(host);
    await runCommand(context, host.words, program);
    return exitStatus(...context.outcomes);
  } catch (error) {
    return await failed(context, program, error);
  } finally {
    await context.close();
  }
}

/** Throws `data` if an argument is not UTF-8: Node has put U+FFFD in place of its bytes, so it would be another one. */
function checkEncoding(host: Host): void {
  if (!host.words.some((word) => word.includes('\ufffd')) || host.isUtf8) return;
  throw new DelayqError('data', 'an argument is not valid UTF-8', {
    why: 'Node cannot pass such bytes on unchanged',
    next: 'write it in UTF-8; ids of any bytes can be given as base64:…',
  });
}

async function runCommand(context: Context, words: readonly string[], program: Command): Promise<void> {
  if (words[0] !== WATCHER) return void (await program.parseAsync(words, { from: 'user' }));
  // No command for people: drain starts it.
  const { watchPipe } = await import('./drain/watcher.js');
  await watchPipe(context);
}

async function failed(context: Context, program: Command, thrown: unknown): Promise<number> {
  // commander throws after it has printed a help or the version, too.
  if (thrown instanceof CommanderError && thrown.code === 'commander.help') return exitStatus('usage');
  if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
  const [name] = program.args;
  const command = program.commands.find((one) => one.name() === name) ?? program;
  const error = thrown instanceof CommanderError ? ofUsage(thrown, command) : withOptions(thrown);
  if (name === 'check') {
    await reportUnknown(context, error);
    return exitStatus(...context.outcomes);
  }
  complain(context, error);
  return exitStatus(isDelayqError(error) ? error.code : 'internal');
}
