import { setTimeout as sleep } from 'node:timers/promises';
import { Command, Option } from 'commander';
import { checkName, DelayqError, Inspector, Recurring } from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import { type Candidates, candidatesFor } from '../completion/candidates.js';
import { bash, fish, zsh } from '../completion/shells.js';
import type { Context, Globals } from '../host/context.js';
import { visible } from '../terminal/output.js';

interface Options extends Globals {
  readonly words?: boolean;
}

const SCRIPTS: Readonly<Record<string, string>> = { bash, zsh, fish };

/** How long a completion waits for names of queues, ms. */
const DEADLINE_MS = 1_000;

/** `everything` returns the program with all its commands. */
export function completionCommand(context: Context, everything: () => Promise<Command>): Command {
  const command = new Command('completion')
    .description('Print a script that completes commands, options, their values, queues and files.')
    .usage('[options] <bash|zsh|fish>')
    .argument('<bash|zsh|fish>')
    .argument('[word...]')
    .addOption(new Option('--words', 'answer the script: what may stand in place of the last word').hideHelp())
    .action(async (first: string, rest: string[], options: Options) =>
      options.words ? answer(context, await everything(), [first, ...rest]) : print(context, [first, ...rest]),
    );
  examples(command, [
    "echo 'source <(delayq completion bash)' >> ~/.bashrc",
    'delayq completion zsh > "$fpath[1]/_delayq"',
    'delayq completion fish > ~/.config/fish/completions/delayq.fish',
  ]);
  details(command, [
    'To try one in a running shell:',
    '  bash   source <(delayq completion bash)',
    '  zsh    source <(delayq completion zsh)      (after compinit)',
    '  fish   delayq completion fish | source',
    '',
    'The scripts call delayq for each completion, so they stay valid after an update.',
    'Names of queues come from Redis, at DELAYQ_REDIS_URL or the --redis that was',
    'typed.',
  ]);
  return addGlobals(command);
}

async function print(context: Context, [shell = '', ...rest]: readonly string[]): Promise<void> {
  const script = Object.hasOwn(SCRIPTS, shell) && rest.length === 0 ? SCRIPTS[shell] : undefined;
  if (script === undefined) {
    throw new DelayqError('usage', `there is no completion for ${JSON.stringify([shell, ...rest].join(' '))}`, {
      next: `name a shell: ${Object.keys(SCRIPTS).join(', ')}`,
    });
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
    const [redis, prefix] = [context.redis(given), context.prefix(given)];
    if (found.kind === 'recurring') {
      const jobs = await new Recurring(redis, { prefix }).list(found.queue);
      return jobs.filter(({ id }) => isName(id)).map(({ id, when }) => [id, visible(when)] as const);
    }
    // A URL that was typed there is never printed: it may hold a password.
    const all = found.before.includes('://') ? [] : await new Inspector(redis, { prefix }).queues();
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
