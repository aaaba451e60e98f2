import { Command, CommanderError } from 'commander';
import { describe, expect, it } from 'vitest';
import { Context } from '../../src/cli/host/context.js';
import { ownProcess } from '../../src/cli/host/host.js';
import { LOADERS } from '../../src/cli/registry.js';
import { COMMAND_WORDS, nextStep, OPTION_WORDS } from '../../src/cli/suggest.js';
import { delayq } from '../support/cli.js';

const context = new Context(ownProcess(), () => {
  throw new Error('stopped');
});
const program = new Command('delayq');
for (const load of Object.values(LOADERS)) program.addCommand((await load())(context, async () => program));
const flags = new Set(program.commands.flatMap((command) => command.options.map(({ long }) => long)));

describe('after a usage error', () => {
  it.each([
    [['retry', 'q', 'id'], 'did you mean requeue (make dead jobs pending again)? delayq requeue --help'],
    [['delete', 'q'], 'did you mean cancel (remove jobs) or purge (remove all jobs of a queue)? delayq --help'],
    [['help', 'status'], 'did you mean inspect (show the queues, and what is wrong with them)? delayq inspect --help'],
    [['top'], /^did you mean inspect --watch \(.*\)\? delayq inspect --watch --help$/],
    [['lsit'], 'did you mean list? delayq list --help'],
    [['enqeue', '--help'], 'did you mean enqueue? delayq enqueue --help'],
    [['s'], 'delayq --help'],
    [['constructor'], 'delayq --help'],
    [['drain', '--concurrency', '4', 'q', '--', 'cat'], 'did you mean -P, --parallel <n>? delayq drain --help'],
    [['drain', '-j4', 'q'], 'did you mean -P, --parallel <n>? delayq drain --help'],
    [['drain', '--wacth', 'q'], 'did you mean -w, --watch? delayq drain --help'],
    [['drain', '--queue', 'q'], 'the queue is an argument: delayq drain --help'],
    [['enqueue', '--delay=5m', 'q', '1'], 'did you mean --in <duration>? delayq enqueue --help'],
    [['enqueue', '--max-attempts', '3', 'q', '1'], 'did you mean --tries <n>? delayq enqueue --help'],
    [['enqueue', '--cron', '* * * * *', 'q', '1'], 'recurring jobs have a command of their own: delayq every --help'],
    [['cron'], /^did you mean every \(.*\) or crontab \(.*\)\? delayq --help$/],
    [['recurring'], /^did you mean every \(.*\)\? delayq every --help$/],
    [
      ['enqueue', 'q', '{a:', '1}'],
      'put the payload or the time into single quotes, and a due time after --in or --at: delayq enqueue --help',
    ],
    [['inspect', '--port', '6379'], 'did you mean --redis <url>? delayq inspect --help'],
    [['list', '--format', 'json', 'q'], 'did you mean --json? delayq list --help'],
    [['--concurrency', '4', 'drain', 'q'], 'options follow the command: delayq --help'],
    [['--verison'], 'did you mean -V, --version? delayq --help'],
    // An option that the command does not have is not suggested.
    [['inspect', '--retries', '3'], 'delayq inspect --help'],
    [['cancel', '--concurrency', '3', 'q', 'id'], 'delayq cancel --help'],
    [['metrics', '--queue', 'q'], /^the queue is an argument|^delayq metrics/],
    [['inspect', 'a', 'b'], 'delayq inspect --help'],
  ])('%j says what was probably meant', async (args, next) => {
    const { code, stdout, stderr } = await delayq(args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    const [, found] = /^delayq: .*\n {2}next: (.*)\n$/.exec(stderr) ?? [];
    expect(found).toEqual(typeof next === 'string' ? next : expect.stringMatching(next));
  });

  it('the line for monitoring says it, too', async () => {
    expect(await delayq(['check', '--max-lga', '1m', 'q'])).toMatchObject({
      code: 3,
      stdout: "DELAYQ UNKNOWN - unknown option '--max-lga'; did you mean --max-lag <duration>? delayq check --help\n",
    });
  });
});

describe('what the library advises', () => {
  it.each([
    [['enqueue', 'q', '{"a"'], 65, 'to store any text: --text, or delayq config QUEUE text=on'],
    [['every', 'q', '15m', 'hello', '--id', 'x'], 65, 'to store any text: --text, or delayq config QUEUE text=on'],
    [
      ['every', 'q', '15m', 'null', '--id', 'a b'],
      64,
      'choose another id, for example daily-report; delayq every --list has those that exist',
    ],
    [
      ['enqueue', '--at', '14:00', '--tz', 'Mars/X', 'q', '1'],
      64,
      'set --tz (or DELAYQ_TZ, TZ) to a name such as Europe/Berlin or UTC',
    ],
    [
      ['config', '--create', '--', '-q', 'partitions=2', 'rate=1/s'],
      78,
      'remove them: delayq config -- -q rate= burst= max-active=',
    ],
  ])('is said with options on the command line: %j', async (args, code, next) => {
    const { stderr, ...done } = await delayq(args);
    expect(done).toMatchObject({ code, stdout: '' });
    expect(stderr.endsWith(`\n  next: ${next}\n`), stderr).toBe(true);
  });
});

describe('the words of other tools', () => {
  const others = (table: Readonly<Record<string, string>>) => Object.values(table).flatMap((words) => words.split(' '));

  it('stand for commands and options that there are', () => {
    const commands = Object.keys(COMMAND_WORDS).map((words) => words.split(' '));
    expect(commands.filter(([command]) => !Object.hasOwn(LOADERS, command as string))).toEqual([]);
    const used = [...Object.keys(OPTION_WORDS), ...commands.flatMap(([, ...options]) => options)];
    expect(used.filter((flag) => !flags.has(flag))).toEqual([]);
  });

  it('are no commands of delayq, and are given once', () => {
    expect(others(COMMAND_WORDS).filter((word) => Object.hasOwn(LOADERS, word))).toEqual([]);
    for (const words of [...Object.values(COMMAND_WORDS), ...Object.values(OPTION_WORDS)])
      expect(new Set(words.split(' ')).size, words).toBe(words.split(' ').length);
  });

  it('lead to an option of the very command, or only to its help', () => {
    for (const command of program.commands) {
      for (const word of others(OPTION_WORDS)) {
        const error = new CommanderError(1, 'commander.unknownOption', `error: unknown option '--${word}'`);
        const next = nextStep(error, program, command.name());
        const [, meant] = /^did you mean (.*)\?/.exec(next) ?? [];
        const own = command.options.map((option) => option.flags);
        expect(own, `${command.name()} --${word}: ${next}`).toEqual(expect.arrayContaining(meant?.split(' or ') ?? []));
        // What another command does leads to that one.
        const helped = next.includes('a command of their own') ? 'every' : command.name();
        expect(next.endsWith(`delayq ${helped} --help`)).toBe(true);
      }
    }
  });
});
