import { CommanderError } from 'commander';
import { DelayqError, isDelayqError } from '../internal.js';
import { exitStatus } from './exit.js';
import { Context } from './host/context.js';
import { type Host, WATCHER } from './host/host.js';
import { programOf } from './program.js';
import { LOADERS } from './registry.js';
import { complain } from './terminal/output.js';

/** Runs the command line that `host` was given. Resolves with the exit status once the run has let go of everything. */
export async function run(host: Host): Promise<number> {
  const context = new Context(host, () => host.exit(exitStatus('interrupted')));
  const name = nameOf(host.words);
  try {
    return await runCommand(context, host, name).catch((error) => failed(context, name, error));
  } finally {
    await context.close();
  }
}

/** The name of the command: the first word that is neither a global option nor the value of one. */
function nameOf(words: readonly string[]): string {
  const [word = '', ...rest] = words;
  const [, option, assigned] = /^--(?:(redis|prefix|tls-[a-z]+)(=)?)?/.exec(word) ?? [];
  if (option && word === `--${option}`) return nameOf(rest.slice(1));
  return word === '--' || assigned ? nameOf(rest) : word;
}

/** Throws `data` if an argument is not UTF-8: Node has put U+FFFD in place of its bytes, so it would be another one. */
function checkEncoding(host: Host): void {
  if (!host.words.some((word) => word.includes('\ufffd')) || host.isUtf8) return;
  throw new DelayqError('data', 'an argument is not valid UTF-8', {
    why: 'Node cannot pass such bytes on unchanged',
    next: 'write it in UTF-8; ids of any bytes can be given as base64:…',
  });
}

async function runCommand(context: Context, host: Host, name: string): Promise<number> {
  checkEncoding(host);
  const { words } = host;
  // No command for people: drain starts it.
  if (name === WATCHER) {
    const { watchPipe } = await import('./drain/watcher.js');
    await watchPipe(context);
    return 0;
  }
  const isKnown = ['-V', '--version'].includes(name) || Object.hasOwn(LOADERS, name);
  const isLoaded = (command: string) => command === name || (name === 'help' && words.includes(command));
  const program = await programOf(context, isLoaded, { listOthers: !isKnown });
  if (words.length === 0) {
    program.outputHelp({ error: true });
    return exitStatus('usage');
  }
  // With --help after it, commander would ignore that the command is unknown, and show the help of the program.
  const isUnknown = !isKnown && /^[^-]/.test(name) && name !== 'help';
  await program.parseAsync(isUnknown ? [name] : words, { from: 'user' });
  return exitStatus(...context.outcomes);
}

async function failed(context: Context, name: string, thrown: unknown): Promise<number> {
  // commander throws after it has printed a help or the version, too.
  if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
  const error = thrown instanceof CommanderError ? await usageError(context, name, thrown) : await inOptions(thrown);
  if (name === 'check') {
    const { reportUnknown } = await import('./commands/check.js');
    await reportUnknown(context, error);
    return exitStatus(...context.outcomes);
  }
  complain(context, error);
  return exitStatus(isDelayqError(error) ? error.code : 'internal');
}

async function inOptions(thrown: unknown): Promise<unknown> {
  if (!isDelayqError(thrown, 'usage', 'data')) return thrown;
  const { withOptions } = await import('./suggest.js');
  return withOptions(thrown);
}

async function usageError(context: Context, name: string, error: CommanderError): Promise<DelayqError> {
  const { nextStep } = await import('./suggest.js');
  const next = nextStep(error, await programOf(context, (command) => command === name), name);
  return new DelayqError('usage', error.message.replace(/^error: /, ''), { next });
}
