import { DelayqError, exactDuration, formatDuration, formatTime, printable, shellWord } from '../../internal.js';
import { type Limits, RIGHTS, type Right, SIDES, type Token, Tokens } from '../../serve/access/tokens.js';
import { type CliCommand, usageError } from '../args/command.js';
import { count, positiveDuration } from '../args/options.js';
import { readPayload } from '../args/payload.js';
import type { Context, Globals } from '../host/context.js';
import { clip, document, say, sizeOf, table, visible } from '../terminal/output.js';

interface Options extends Globals {
  readonly description?: string;
  readonly rights?: readonly Right[];
  readonly limitRead?: number;
  readonly limitWrite?: number;
  readonly interval?: number;
  readonly tokenFile?: string;
  readonly tz?: string;
}

export function tokenCommand(command: CliCommand, context: Context): void {
  command
    .description('Make, list and remove the tokens that clients of delayq serve send.')
    .usage('[options] add|list|remove [namespace] [fingerprint]')
    .argument('[add|list|remove]', 'what to do')
    .argument('[namespace]', 'the namespace; * (quoted) for all')
    .argument('[fingerprint]', 'of the token to remove')
    .option('--description <text>', 'what the token is for')
    .option('--rights <list>', 'what it allows (default: publish,consume; see below)', rights)
    .option('--limit-read <n>', 'most requests to consume in an interval, over all servers', count)
    .option('--limit-write <n>', 'most requests to publish in an interval, over all servers', count)
    .option('--interval <duration>', 'the interval of the limits, whole seconds (default: 1s)', positiveDuration)
    .option('--token-file <file>', 'take the text of the token from a file; -: from stdin')
    .option('--tz <zone>', 'time zone of the printed times (env DELAYQ_TZ, TZ)')
    .option('--json', 'print one JSON document')
    .action((act: string | undefined, ns: string | undefined, fingerprint: string | undefined, options: Options) =>
      token(context, [act, ns, fingerprint], options),
    );
  command.details(`
    add prints the token, and nothing can print it again: Redis keeps only its SHA-256. Lists and logs name it by its
    fingerprint. Servers accept a new token within a second, and refuse a removed one within 10 s. As soon as there is a
    token, every request needs one, within 5 s.

    Rights: publish adds jobs; consume takes, acks, shows, respawns and removes them; operate is for the admin listener.
    Metrics need operate for '*', all namespaces.

    --token-file keeps a token that clients have already, such as one of lmstfy: 20 to 512 printable characters, no space
    and no colon.
  `);
  command.examples([
    `delayq token add shop --description 'order service'`,
    'delayq token add shop --rights publish --limit-write 100 --interval 1s',
    `delayq token add '*' --rights operate --description prometheus`,
    'delayq token add shop --token-file old-token.txt',
    'delayq token list shop',
    'delayq token remove shop 3f9a1c0b7e2d',
  ]);
}

function rights(text: string): Right[] {
  const words = text.split(',').map((word) => word.trim());
  if (words.every((word): word is Right => (RIGHTS as readonly string[]).includes(word))) return words;
  const next = 'write them with commas between: publish,consume';
  throw usageError(`${printable(text)} are not rights of a token`, next, `the rights are ${RIGHTS.join(', ')}`);
}

/** Options of a new token. */
const FOR_NEW = ['description', 'rights', 'limitRead', 'limitWrite', 'interval', 'tokenFile'] as const;

async function token(
  context: Context,
  [act, ns, fingerprint]: readonly (string | undefined)[],
  options: Options,
): Promise<void> {
  if (act !== 'add' && act !== 'list' && act !== 'remove') {
    const what = act === undefined ? 'missing action: add, list or remove' : `token cannot ${printable(act)}`;
    throw usageError(what, 'write delayq token add NAMESPACE, for example');
  }
  if (act !== 'remove' && fingerprint !== undefined) {
    // It may be a token: it is not repeated.
    const next =
      act === 'add' ? 'give the text of a token with --token-file: ps would show it' : 'see delayq help token';
    throw usageError(`token ${act} takes no third word`, next);
  }
  if (act !== 'add' && FOR_NEW.some((name) => options[name] !== undefined))
    throw usageError(`token ${act} takes no options of a new token`, 'see delayq help token');
  if (act !== 'list' && ns === undefined)
    throw usageError(`token ${act} needs a namespace`, `write delayq token ${act} shop, for example`);
  const tokens = new Tokens(context.redis(options), context.prefix(options));
  if (act === 'list') return list(context, tokens, ns, options);
  if (act === 'add') return add(context, tokens, ns as string, options);
  if (fingerprint === undefined) {
    const next = 'write delayq token remove NAMESPACE FINGERPRINT; see delayq token list';
    throw usageError('token remove needs a fingerprint', next);
  }
  await remove(context, tokens, ns as string, fingerprint, options);
}

/** What to do about a file of a token that cannot be read. */
const READABLE = 'write the path of a file that you can read, or - for stdin';

async function add(context: Context, tokens: Tokens, ns: string, options: Options): Promise<void> {
  const { description, tokenFile } = options;
  const limits = limitsOf(options);
  const file = tokenFile === '-' ? context.stdin : tokenFile;
  // A line break at the end of a file belongs to the file.
  const given = file === undefined ? undefined : (await readPayload(file, READABLE)).replace(/\r?\n$/, '');
  const text = await tokens.add(ns, { description, rights: options.rights, limits, token: given });
  const made = await tokens.find(ns, text);
  const shown = options.json ? document({ token: text, ...(made && tokenJson(made)) }) : `${text}\n`;
  const lost = `remove it, as nobody knows it: delayq token remove ${shellWord(ns)} ${made?.fingerprint}; then add another`;
  await context.write(shown, `token ${made?.fingerprint} is added`, given === undefined ? lost : undefined);
  if (options.json) return;
  if (made && context.stderr.isTTY)
    say(context, `its fingerprint is ${made.fingerprint}; the token is not shown again`);
}

function limitsOf({ limitRead: read = 0, limitWrite: write = 0, interval: ms }: Options): Limits | undefined {
  if (read === 0 && write === 0) {
    if (ms === undefined) return undefined;
    throw usageError('--interval needs a limit', 'give --limit-read or --limit-write, too');
  }
  if (ms !== undefined && ms % 1000 !== 0)
    throw usageError(`the interval cannot be ${exactDuration(ms)}`, 'write whole seconds, such as 1s or 1m');
  return { read, write, interval: (ms ?? 1000) / 1000 };
}

async function list(context: Context, tokens: Tokens, ns: string | undefined, options: Options): Promise<void> {
  const zone = context.zone(options);
  const all = await tokens.list(ns);
  if (options.json) return context.write(document({ tokens: all.map(tokenJson) }));
  if (all.length === 0) return say(context, ns === undefined ? 'no tokens' : `no tokens of ${visible(ns)}`);
  const rows = all.map((one) => [
    one.fingerprint,
    visible(one.ns),
    one.rights.join(','),
    limitText(one.limits),
    visible(one.description),
    one.created > 0 ? formatTime(one.created, zone).slice(0, 10) : '-',
  ]);
  const head = ['fingerprint', 'namespace', 'rights', 'limits', 'description', 'made'];
  const { width } = sizeOf(context, context.stdout);
  const lines = (await table(head, rows, [0, 1, 2, 3, 4, 5])).split('\n');
  // Elsewhere than on a terminal nothing is cut.
  await context.write(`${lines.map((line) => (context.stdout.isTTY ? clip(line, width) : line)).join('\n')}\n`);
}

/** Such as `r 100/s w 20/s`, for reads and writes. */
function limitText(limits: Limits | undefined): string {
  if (!limits) return '-';
  const each = limits.interval === 1 ? 's' : formatDuration(limits.interval * 1000);
  return SIDES.filter((side) => limits[side] > 0)
    .map((side) => `${side[0]} ${limits[side]}/${each}`)
    .join(' ');
}

const tokenJson = ({ fingerprint, ns, description, rights, limits, created }: Token) => ({
  fingerprint,
  namespace: ns,
  description,
  rights,
  limits: limits ?? null,
  created,
});

async function remove(
  context: Context,
  tokens: Tokens,
  ns: string,
  fingerprint: string,
  options: Options,
): Promise<void> {
  // The text of a token does not belong on a command line; but if it was put there, it must be possible to remove it.
  const found = await tokens.find(ns, fingerprint);
  if (!found) {
    const next = 'look for it with delayq token list';
    throw new DelayqError('missing', `${printable(ns)} has no such token`, { next });
  }
  await tokens.remove(found);
  if (options.json) return context.write(document({ removed: tokenJson(found) }));
  say(context, `removed: ${found.fingerprint} of ${found.ns}; servers refuse it within 10 s`);
}
