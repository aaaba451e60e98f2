import { CommanderError } from 'commander';
import { isDelayqError } from '../internal.js';
import { Context } from './host/context.js';
import { programOf } from './program.js';
import { COMMANDS } from './registry.js';
import { complain } from './terminal/output.js';

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

/** The name of the command: the first word that is neither an option of the program nor its value. */
function meantOf(words: readonly string[]): string {
  const [word = '', ...rest] = words;
  if (word === '--redis' || word === '--prefix') return meantOf(rest.slice(1));
  return /^--($|(redis|prefix)=)/.test(word) ? meantOf(rest) : word;
}

async function main(): Promise<number> {
  try {
    const program = await programOf(context, (name) => name === meant || (meant === 'help' && words.includes(name)), {
      listOthers: !isKnown,
    });
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
