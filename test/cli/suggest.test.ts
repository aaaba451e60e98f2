import { describe, expect, it } from 'vitest';
import { delayq } from '../support/cli.js';

describe('after a usage error', () => {
  it.each([
    [['lsit'], 'did you mean list? delayq list --help'],
    [['enqeue', '--help'], 'did you mean enqueue? delayq enqueue --help'],
    [['s'], 'delayq --help'],
    [['constructor'], 'delayq --help'],
    [['drain', '--wacth', 'q'], 'did you mean --watch? delayq drain --help'],
    [['drain', '-j', '4', 'q'], 'a queue of this name comes after --: delayq drain -- -j; delayq drain --help'],
    [['enqueue', '--cron', '* * * * *', 'q', '1'], 'recurring jobs have a command of their own: delayq every --help'],
    [
      ['enqueue', 'q', '{a:', '1}'],
      'put the payload or the time into single quotes, and a due time after --in or --at: delayq enqueue --help',
    ],
    [['enqueue', 'q'], 'give a payload, or - to read payloads from stdin: delayq enqueue --help'],
    [['enqueue', '--in', '1h', '--at', '14:00', 'q', '1'], 'leave out one of them: delayq enqueue --help'],
    [['every', '--list', '--remove'], 'leave out one of them: delayq every --help'],
    [['enqueue', '--if-exists', 'no', 'q', '1'], 'delayq enqueue --help'],
    [['--concurrency', '4', 'drain', 'q'], 'options follow the command: delayq --help'],
    [['--verison'], 'did you mean --version? delayq --help'],
    [['inspect', '--concurrency', '3'], 'delayq inspect --help'],
    [['inspect', 'a', 'b'], 'delayq inspect --help'],
  ])('%j says what was probably meant', async (args, next) => {
    const { code, stdout, stderr } = await delayq(args);
    expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
    const [, found] = /^delayq: .*\n {2}next: (.*)\n$/.exec(stderr) ?? [];
    expect(found).toBe(next);
  });

  it('the line for monitoring says it, too', async () => {
    expect(await delayq(['check', '--max-lga', '1m', 'q'])).toMatchObject({
      code: 3,
      stdout: "DELAYQ UNKNOWN - unknown option '--max-lga'; did you mean --max-lag? delayq check --help\n",
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
