import { setTimeout as sleep } from 'node:timers/promises';
import { type Command, Option } from 'commander';
import { checkName, printable } from '../../internal.js';
import { type CliCommand, usageError } from '../args/command.js';
import { access } from '../args/queues.js';
import { type Candidates, candidatesFor } from '../completion/candidates.js';
import { bash, fish, zsh } from '../completion/shells.js';
import type { Context } from '../host/context.js';
import { visible } from '../terminal/output.js';

const SCRIPTS: Readonly<Record<string, string>> = { bash, zsh, fish };

/** How long a completion waits for names of queues, ms. */
const DEADLINE_MS = 1_000;

export function completionCommand(command: CliCommand, context: Context, all: () => Promise<Command>): void {
  command
    .description('Print a script that completes commands, options, their values, queues and files.')
    .usage('[options] <bash|zsh|fish>')
    .argument('<bash|zsh|fish>')
    .argument('[word...]')
    .addOption(new Option('--words', 'answer the script: what may stand in place of the last word').hideHelp())
    .action(async (first: string, rest: string[], options: { words?: boolean }) =>
      options.words ? answer(context, await all(), [first, ...rest]) : print(context, [first, ...rest]),
    );
  command.details(`
    To try one in a running shell:
      bash   source <(delayq completion bash)
      zsh    source <(delayq completion zsh)      (after compinit)
      fish   delayq completion fish | source

    The scripts call delayq for each completion, so they stay valid after an update. Names of queues come from Redis, at
    DELAYQ_REDIS_URL or the --redis that was typed.
  `);
  command.examples([
    "echo 'source <(delayq completion bash)' >> ~/.bashrc",
    'delayq completion zsh > "$fpath[1]/_delayq"',
    'delayq completion fish > ~/.config/fish/completions/delayq.fish',
  ]);
}

async function print(context: Context, [shell = '', ...rest]: readonly string[]): Promise<void> {
  const script = Object.hasOwn(SCRIPTS, shell) && rest.length === 0 ? SCRIPTS[shell] : undefined;
  if (script === undefined) {
    const what = `there is no completion for ${printable([shell, ...rest].join(' '))}`;
    throw usageError(what, `name a shell: ${Object.keys(SCRIPTS).join(', ')}`);
  }
  await context.write(script);
}

/** Prints the kind of completion on the first line; then words, one a line, each with a tab and its description. */
async function answer(context: Context, program: Command, words: readonly string[]): Promise<void> {
  const current = words[words.length - 1] ?? '';
  const found = candidatesFor(program, words.slice(0, -1), current);
  if (found.kind === 'files') return context.write(`files ${found.before}\n`);
  if (found.kind === 'command') return context.write(`command ${found.from}\n`);
  const all = found.kind === 'words' ? found.words : await names(context, found);
  const lines = all.filter(([word]) => word.startsWith(current)).map(([word, meaning]) => `${word}\t${meaning}\n`);
  return context.write(`words\n${lines.join('')}`);
}

/**
 * Names of queues, or ids of recurring jobs; none if Redis does not answer in time, as an error would spoil the line that
 * is being typed.
 */
async function names(
  context: Context,
  { given = {}, ...found }: Candidates & { kind: 'queues' | 'recurring' },
): Promise<readonly (readonly [string, string])[]> {
  const ask = async () => {
    const { inspector, recurring } = access(context, given);
    if (found.kind === 'recurring') {
      const jobs = await recurring.list(found.queue);
      return jobs.filter(({ id }) => isName(id)).map(({ id, when }) => [id, visible(when)] as const);
    }
    // A URL that was typed there is never printed: it may hold a password.
    const all = found.before.includes('://') ? [] : await inspector.queues();
    // One that begins with a dash would be taken for an option.
    const names = all.map((name) => `${found.before}${name}`).filter((word) => !word.startsWith('-'));
    return names.filter((word) => isName(word.slice(found.before.length))).map((word) => [word, ''] as const);
  };
  return Promise.race([ask(), sleep(DEADLINE_MS, [])]).catch(() => []);
}

/** Whether a name is valid: other software may have listed anything, and a shell must not run it. */
function isName(name: string): boolean {
  try {
    return checkName(name) === name;
  } catch {
    return false;
  }
}
