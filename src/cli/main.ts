import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { CommanderError } from 'commander';
import { DelayqError, isDelayqError } from '../internal.js';
import { exitStatus } from './exit.js';
import { Context } from './host/context.js';
import { programOf } from './program.js';
import { LOADERS } from './registry.js';
import { complain } from './terminal/output.js';

const context = new Context(() => process.exit(exitStatus('interrupted')));
const words = process.argv.slice(2);
const name = nameOf(words);
const isKnown = ['-V', '--version'].includes(name) || Object.hasOwn(LOADERS, name);

/** The name of the command: the first word that is neither a global option nor the value of one. */
function nameOf(words: readonly string[]): string {
  const [word = '', ...rest] = words;
  const [, option, assigned] = /^--(?:(redis|prefix|tls-[a-z]+)(=)?)?/.exec(word) ?? [];
  if (option && word === `--${option}`) return nameOf(rest.slice(1));
  return word === '--' || assigned ? nameOf(rest) : word;
}

/** Throws `data` if an argument is not UTF-8: Node has put U+FFFD in place of its bytes, so it would be another one. */
function checkEncoding(): void {
  if (!words.some((word) => word.includes('\ufffd'))) return;
  let given: Buffer;
  try {
    given = readFileSync('/proc/self/cmdline');
  } catch {
    return;
  }
  if (isUtf8(given)) return;
  throw new DelayqError('data', 'an argument is not valid UTF-8', {
    why: 'Node cannot pass such bytes on unchanged',
    next: 'write it in UTF-8; ids of any bytes can be given as base64:…',
  });
}

async function run(): Promise<number> {
  checkEncoding();
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

async function failed(thrown: unknown): Promise<number> {
  // commander throws after it has printed a help or the version, too.
  if (thrown instanceof CommanderError && thrown.exitCode === 0) return 0;
  const error = thrown instanceof CommanderError ? await usageError(thrown) : thrown;
  if (name === 'check') {
    const { reportUnknown } = await import('./commands/check.js');
    await reportUnknown(context, error);
    return exitStatus(...context.outcomes);
  }
  complain(context, error);
  return exitStatus(isDelayqError(error) ? error.code : 'internal');
}

async function usageError(error: CommanderError): Promise<DelayqError> {
  const { nextStep } = await import('./suggest.js');
  const next = nextStep(error, await programOf(context, (command) => command === name), name);
  return new DelayqError('usage', error.message.replace(/^error: /, ''), { next });
}

async function main(): Promise<number> {
  try {
    return await run().catch(failed);
  } finally {
    await context.close();
  }
}

// If Node finds nothing left to wait for before main() has ended, that is a bug, not a success.
process.exitCode = exitStatus('internal');
main().then((status) => process.exit(status));
