import type { Command, CommanderError } from 'commander';
import { closest, DelayqError, ID_ADVICE, TEXT_ADVICE, ZONE_ADVICE } from '../internal.js';
import { COMMANDS } from './registry.js';

/** What other tools call our commands. A word may stand for several. */
export const COMMAND_WORDS: Readonly<Record<string, string>> = {
  enqueue: 'add push publish schedule at put send produce submit create new post later delay insert',
  every: 'cron repeat recurring schedule scheduler interval periodic',
  drain:
    'work worker consume consumer run process pop dequeue reserve receive subscribe pull fetch start listen daemon',
  ack: 'complete done finish commit',
  nack: 'reject fail release',
  renew: 'extend touch heartbeat',
  inspect: 'status stat stats info queues queue ps ls overview dashboard length count size',
  'inspect --watch': 'top tail watch monitor live',
  list: 'ls jobs peek get search find',
  'list --dead': 'failed failures dead dlq errors',
  show: 'peek get view cat describe job',
  cancel: 'delete del rm remove drop abort',
  reschedule: 'postpone defer snooze update edit',
  requeue: 'retry replay redrive revive',
  bury: 'kill discard archive',
  move: 'rename mv transfer',
  purge: 'delete del rm remove drop clear flush empty truncate clean obliterate',
  pause: 'stop suspend hold halt freeze disable',
  resume: 'start continue unpause enable unfreeze',
  doctor: 'health diagnose verify repair fix ping test',
  check: 'health nagios ping',
  metrics: 'prometheus stats exporter',
  config: 'settings set get',
  serve: 'server listen http rest api web lmstfy',
  token: 'tokens key keys auth login',
  export: 'dump backup save',
  import: 'restore load',
  adopt: 'migrate convert',
  crontab: 'cron',
};

/** What other tools call our options. */
export const OPTION_WORDS: Readonly<Record<string, string>> = {
  '--parallel': 'concurrency workers worker jobs threads procs max-procs j c',
  '--in': 'delay after wait delay-seconds',
  '--at': 'when time date run-at schedule-at eta',
  '--tz': 'timezone time-zone zone',
  '--id': 'job-id jobid key unique unique-key dedupe',
  '--if-exists': 'replace overwrite upsert',
  '--tries': 'retries retry max-attempts attempts max-retries max-tries',
  '--deliveries': 'max-deliveries max-deliver delivery-limit max-receive-count',
  '--backoff': 'retry-delay retry-wait',
  '--max-failures': 'max-errors',
  '--ttl': 'expire expires expiry expire-in expiration max-age',
  '--lease': 'visibility-timeout visibility ttr lock-duration',
  '--timeout': 'time-limit max-time t',
  '--for': 'duration run-for max-runtime time-limit',
  '--wait-for-redis': 'connect-timeout redis-timeout wait-for-connection',
  '--watch': 'daemon follow forever loop continuous',
  '--number': 'limit count max max-jobs first head',
  '--batch': 'batch-size chunk',
  '--rate': 'rate-limit throttle limit',
  '--grep': 'search filter match pattern query',
  '--from': 'since after start newer-than',
  '--to': 'until before end older-than',
  '--dead': 'failed failures dlq',
  '--pending': 'waiting delayed scheduled queued',
  '--active': 'running reserved processing',
  '--all': 'every everything a',
  '--yes': 'force f assume-yes no-confirm',
  '--dry-run': 'dry simulate preview',
  '--fix': 'repair',
  '--max-lag': 'critical crit c',
  '--warn-lag': 'warning warn',
  '--quiet': 'silent s',
  '--json': 'format output output-format o',
  '--redis': 'host hostname port url uri server socket password user db h p u a s',
  '--prefix': 'namespace ns key-prefix',
};

/** What stands in the place of options that other tools have, for commands with an argument of this name. */
const NO_OPTIONS: readonly (readonly [argument: string, words: string, advice: string])[] = [
  ['queue', 'queue name topic tube stream', 'the queue is an argument'],
  ['payload', 'payload data body message', 'the payload is an argument'],
  [
    'payload',
    'cron every repeat recurring interval schedule',
    'recurring jobs have a command of their own: delayq every --help',
  ],
  ['queue', 'priority', 'make a queue for each priority, and drain high,low'],
];

/** What the library advises, and what it is called on the command line. */
const ADVICE = new Map([
  [TEXT_ADVICE, 'to store any text: --text, or delayq config QUEUE text=on'],
  [ID_ADVICE, 'choose another id, for example daily-report; delayq every --list has those that exist'],
  [ZONE_ADVICE, 'set --tz (or DELAYQ_TZ, TZ) to a name such as Europe/Berlin or UTC'],
]);

/** `error` with advice that names options where the library has arguments. */
export function withOptions(error: DelayqError): DelayqError {
  const { code, what, why, next = '', cause } = error;
  const advice = ADVICE.get(next);
  return advice === undefined ? error : new DelayqError(code, what, { why, next: advice, cause });
}

/** What to do next after a usage error: what was probably meant, and the help that tells more. */
export function nextStep({ code, message }: CommanderError, program: Command, name: string): string {
  // commander quotes the word that it does not know: 'retry', '--delay=5m', '-j4'.
  const word = (/'(-[^-]|[^'=]*)/.exec(message)?.[1] ?? '').toLowerCase();
  const whole = /'([^']*)'/.exec(message)?.[1] ?? '';
  if (code === 'commander.unknownCommand') return commandAdvice(word);
  const command = program.commands.find((one) => one.name() === name) ?? program;
  const help = command === program ? 'delayq --help' : `delayq ${name} --help`;
  const takesTime = command.options.some(({ long }) => long === '--at');
  const advice =
    code === 'commander.unknownOption'
      ? (optionAdvice(command, word.replace(/^-+/, '')) ?? queueAdvice(command, whole))
      : code === 'commander.excessArguments' && takesTime
        ? 'put the payload or the time into single quotes, and a due time after --in or --at:'
        : code === 'commander.missingArgument' && /'payload'/.test(message)
          ? 'give a payload, or - to read payloads from stdin:'
          : undefined;
  if (advice === undefined) return help;
  return advice.endsWith('--help') ? advice : `${advice} ${help}`;
}

function commandAdvice(word: string): string {
  const summaries: Partial<Record<string, string>> = Object.assign({}, ...Object.values(COMMANDS));
  const meant = meaningsOf(COMMAND_WORDS, word);
  if (meant.length === 0) {
    const close = closest(word, Object.keys(summaries));
    return close ? `did you mean ${close}? delayq ${close} --help` : 'delayq --help';
  }
  const described = meant.map((one) => `${one} (${summaries[one.split(' ')[0] as string]})`);
  return `${question(described)} delayq ${meant.length > 1 ? '' : `${meant[0]} `}--help`;
}

function optionAdvice(command: Command, word: string): string | undefined {
  const names = command.registeredArguments.map((argument) => argument.name());
  const [, , advice] = NO_OPTIONS.find(([name, words]) => names.includes(name) && isIn(words, word)) ?? [];
  if (advice) return advice.endsWith('--help') ? advice : `${advice}:`;
  const meant = meaningsOf(OPTION_WORDS, word);
  const own = command.options.map(({ long }) => long?.slice(2) ?? '');
  // A word of other tools is no misspelling of ours.
  const close = meant.length > 0 ? undefined : closest(word, own);
  const found = command.options.filter(({ long }) => long && (meant.includes(long) || long === `--${close}`));
  return question(found.map(({ flags }) => flags)) ?? (command.parent ? undefined : 'options follow the command:');
}

/** What looks like an option may be the name of a queue. */
function queueAdvice(command: Command, word: string): string | undefined {
  const takesQueue = command.registeredArguments.some((argument) => argument.name() === 'queue');
  return takesQueue && /^-\w[\w.:-]*$/.test(word)
    ? `a queue of this name comes after --: delayq ${command.name()} -- ${word};`
    : undefined;
}

const isIn = (words: string, word: string) => words.split(' ').includes(word);

function meaningsOf(table: Readonly<Record<string, string>>, word: string): string[] {
  return Object.keys(table).filter((ours) => isIn(table[ours] as string, word));
}

function question(meant: readonly string[]): string | undefined {
  return meant.length > 0 ? `did you mean ${meant.join(' or ')}?` : undefined;
}
