import { Command } from 'commander';
import {
  DEFAULT_SETTINGS,
  DelayqError,
  formatSetting,
  Operator,
  parseSetting,
  SETTING_NAMES,
  type Settings,
} from '../../internal.js';
import { addGlobals, details, examples } from '../args/options.js';
import type { Context, Globals } from '../host/context.js';
import { colours, document, table } from '../terminal/output.js';

const MEANINGS: Record<keyof Settings, string> = {
  tries: 'failures after which a job is dead',
  maxLost: 'losses after which a job is dead',
  backoff: 'waits between tries: 30s,1m,10m or exponential',
  lease: 'time a consumer may hold a job without renewing',
  ttl: 'jobs later than this are dropped',
};

export function configCommand(context: Context): Command {
  const command = new Command('config')
    .description('Show or set the defaults of a queue, for jobs and commands that do not set their own.')
    .argument('<queue>', 'name of the queue')
    .argument('[name=value...]', 'settings; name= removes one')
    .option('--json', 'print one JSON document')
    .action((queue: string, changes: string[], options: Globals) => config(context, queue, changes, options));
  details(command, [
    'Settings and their defaults:',
    ...SETTING_NAMES.map(
      (name) => `  ${name.padEnd(8)}  ${MEANINGS[name]} (${formatSetting(name, DEFAULT_SETTINGS[name])})`,
    ),
    '',
    'A loss is a lease that expired. The last wait of a backoff repeats. Settings',
    'also apply to jobs that are in the queue already, from the next call on.',
  ]);
  examples(command, [
    'delayq config webhook tries=4 backoff=30s,1m,10m lease=2m',
    'delayq config webhook ttl=      # back to none',
    'delayq config webhook',
  ]);
  return addGlobals(command);
}

async function config(context: Context, queue: string, changes: readonly string[], options: Globals): Promise<void> {
  const change = Object.assign({}, ...changes.map(parseChange));
  const operator = new Operator(context.redis(options), { prefix: context.prefix(options) });
  const set = await operator.configure(queue, change);
  const all = { ...DEFAULT_SETTINGS, ...set };
  if (options.json) {
    const values = Object.fromEntries(SETTING_NAMES.map((name) => [name, all[name] ?? null]));
    return context.write(document({ queue, ...values, set: SETTING_NAMES.filter((name) => name in set) }));
  }
  const paint = await colours(context, context.stdout);
  const rows = SETTING_NAMES.map((name) => [
    name,
    formatSetting(name, all[name]),
    name in set ? '' : paint.dim('default'),
    paint.dim(MEANINGS[name]),
  ]);
  await context.write(`${await table(undefined, rows, [0, 1, 2, 3])}\n`);
}

function parseChange(text: string) {
  const at = text.indexOf('=');
  if (at > 0) return parseSetting(text.slice(0, at), text.slice(at + 1));
  throw new DelayqError('usage', `${JSON.stringify(text)} does not set a value`, {
    next: 'write name=value, such as tries=4, or name= to remove a setting',
  });
}
