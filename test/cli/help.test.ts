import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { Queue } from '../../src/index.js';
import { beginSh, binary, delayq, linesOf, sh } from '../support/cli.js';
import { admin, connection, freshName } from '../support/redis.js';
import { temporaryDirectory } from '../support/temporary.js';
import { until } from '../support/until.js';

const helpOf = async (...command: string[]) => (await delayq([...command, '--help'])).stdout;

/** Commands by their groups, as the help lists them. */
const groups = [...(await helpOf()).matchAll(/^(Produce|Consume|Look|Act|Serve|Operate):\n((?: {2}.*\n)+)/gm)].map(
  ([, group, lines = '']) =>
    [group, [...lines.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name as string)] as const,
);
const commands = groups.flatMap(([, names]) => names).filter((name) => name !== 'help');

/** The help of the program (''), and of each command. */
const helps = new Map<string, string>();
for (const name of ['', ...commands]) helps.set(name, await helpOf(...name.split(' ').filter(Boolean)));
const help = (command: string) => helps.get(command) as string;

const has = (program: string) => spawnSync(program, ['--version']).status === 0;
const hasJq = has('jq');

/** Handlers and files that the examples name, and what they need to do their part. */
const HANDLERS = ['close-order', 'close-orders', 'work', 'post', 'send-all', 'deploy', 'handler', 'alert'];
const QUEUES = ['order-close', 'webhook', 'mail', 'notify', 'remind', 'high', 'low', 'refund', 'q'];

/** A namespace with jobs in every queue of the examples, in a directory with their handlers. */
async function place() {
  const prefix = freshName();
  for (const name of QUEUES) {
    const queue = new Queue(connection, name, { prefix });
    await queue.enqueue([
      { payload: { to: 'dead', shop: 7 }, id: 'VbayYBj0B1VUn', at: 1_000 },
      { payload: { to: 'a', shop: 7, orderId: 42 }, id: 'order:42' },
      { payload: { to: 'b' }, in: '1h' },
    ]);
    const { jobs } = await queue.drain({ limit: 1 });
    await queue.nack(jobs, { mode: 'dead', error: 'connection refused' });
  }
  const directory = temporaryDirectory();
  for (const name of HANDLERS) writeFileSync(join(directory, name), '#!/bin/sh\nexec cat\n', { mode: 0o755 });
  mkdirSync(join(directory, '.config/fish/completions'), { recursive: true });
  writeFileSync(join(directory, 'payloads.jsonl'), '{"n":1}\n{"n":2}\n');
  writeFileSync(join(directory, 'old-token.txt'), 'a-token-of-at-least-20-characters\n');
  writeFileSync(join(directory, 'jobs.jsonl'), '{"payload":1,"id":"imported"}\n');
  const env = { DELAYQ_PREFIX: prefix, HOME: directory };
  const exported = (await delayq(['export', 'order-close'], { env })).stdout;
  writeFileSync(join(directory, 'order-close.jsonl'), exported);
  writeFileSync(join(directory, 'order-close.jsonl.gz'), gzipSync(exported));
  writeFileSync(
    join(directory, 'lines-in-hand.jsonl'),
    (await delayq(['drain', '--lease', '1m', 'low'], { env })).stdout,
  );
  return { directory, env };
}

/** A line of an example as the test can run it: as cron would, on nobody's crontab, with files of its own. */
function runnable(line: string, directory: string): string {
  return line
    .replace(/^\* \* \* \* \* +/, '')
    .replaceAll('/usr/local/bin/close-order', './close-order')
    .replaceAll('/var/lib/prometheus/node-exporter', directory)
    .replaceAll('$fpath[1]', directory)
    .replace('(crontab -l; ', '(')
    .replace(/\| crontab -$/, '')
    .replace(/^(?=delayq wait )/, 'delayq drain -q order-close -- true; ')
    .replace(/--for 59s (?=.*drain)/, '--for 1s ');
}

/** The words of a line that no shell has to run: nothing but a command of delayq, which names no file. */
function wordsOf(line: string): string[] | undefined {
  if (
    !/^delayq(?: +(?:[\w.:=,+%-]+|'[^']*'|"[^"$`\\]*"))+$/.test(line) ||
    /\.(jsonl|txt)|--watch|--follow| wait /.test(line)
  )
    return undefined;
  return [...line.matchAll(/ +(?:'([^']*)'|"([^"]*)"|(\S+))/g)].map(
    ([, ...found]) => found.find((one) => one !== undefined) as string,
  );
}

/** Ends that examples come to when nobody is at a terminal to say yes, or only the server of a user could do better. */
const NOT_HERE = [
  'there is no editor',
  'cannot ask whether to',
  // A plain Redis of the tests: no disk, no replicas.
  'appendonly',
  'AOF',
  'WAITAOF',
];

describe('the help', () => {
  it('lists the commands in the order of what a user does', () => {
    const order = [
      ['Produce', ['enqueue', 'every']],
      ['Consume', ['drain', 'ack', 'nack', 'renew']],
      ['Look', ['inspect', 'list', 'show', 'events', 'result']],
      ['Act', ['cancel', 'reschedule', 'requeue', 'edit', 'bury', 'move', 'purge', 'pause', 'resume']],
      ['Serve', ['serve', 'token']],
      [
        'Operate',
        [
          'doctor',
          'check',
          'wait',
          'metrics',
          'config',
          'export',
          'import',
          'adopt',
          'crontab',
          'completion',
          'demo',
          'help',
        ],
      ],
    ] as const;
    const known: readonly string[] = commands;
    expect(groups).toEqual(
      order.map(([group, names]) => [group, names.filter((name) => name === 'help' || known.includes(name))]),
    );
    expect(order.flatMap(([, names]) => names)).toEqual(expect.arrayContaining(commands));
  });

  it.each([[['help']], [['--help']], [['-h']]])('of the program: %j', async (args) => {
    expect(await binary(args)).toMatchObject({ code: 0, stdout: help(''), stderr: '' });
  });

  it.each([[['help', 'cancel']], [['cancel', '--help']], [['--prefix', 'x', 'cancel', '-h']]])(
    'of a command: %j',
    async (args) => {
      expect(await delayq(args)).toMatchObject({ code: 0, stdout: help('cancel'), stderr: '' });
    },
  );

  it.each([[['lst']], [['lst', '--help']], [['help', 'lst']], [['--prefix', 'x', 'lst', 'q']]])(
    'of what is no command names one that is close: %j',
    async (args) => {
      const { code, stdout, stderr } = await delayq(args);
      expect({ code, stdout }).toEqual({ code: 64, stdout: '' });
      expect(stderr).toBe("delayq: unknown command 'lst'\n  next: did you mean list? delayq list --help\n");
    },
  );

  it.each(commands)('of %s has examples, a usage, and options that are explained', (command) => {
    const text = help(command);
    expect(text).toMatch(/\n\nExamples:\n(?: {2}\S.*\n)+$/);
    expect(text).toMatch(new RegExp(`^Usage: delayq ${command} `));
    expect(text).toMatch(/\n {2}-h, --help +\S/);
    // The shell's own completion could not tell what these mean.
    expect([...text.matchAll(/^ {2}(?:-\w, )?--[a-z-]+(?: <[^>]+>)?$(?!\n {8})/gm)]).toEqual([]);
  });

  it.each(['', ...commands])('delayq %s --help has no line that is longer than 80 columns', (command) => {
    expect(linesOf(help(command)).filter((line) => line.length > 80)).toEqual([]);
  });
});

// The demo has a Redis of its own, and serve would not end.
const ending = commands.filter((name) => name !== 'demo' && name !== 'serve');
describe.concurrent.each(ending)('the examples of %s', (command) => {
  const [, lines = ''] = /^Examples:\n((?: {2}.*\n)+)/m.exec(help(command)) ?? [];
  let placed: ReturnType<typeof place> | undefined;
  for (const [i, line] of linesOf(lines)
    .map((text) => text.trim())
    .entries()) {
    // One after another, in the same queues.
    it.runIf(hasJq || !/\bjq\b/.test(line)).sequential(`"${line}" works`, async () => {
      placed ??= place();
      const { directory, env } = await placed;
      const run = `cd ${directory} || exit 99; ${runnable(line, directory)}`;
      if (/--follow/.test(line)) {
        const running = beginSh(run, { env, detached: true });
        const events = `${env.DELAYQ_PREFIX}:{order-close}:events`;
        await until(async () => ((await admin.xinfo('GROUPS', events).catch(() => [])) as unknown[]).length > 0);
        process.kill(-(running.child.pid as number), 'SIGTERM');
        expect((await running.ended).stderr).toBe('');
        return;
      }
      if (/--watch/.test(line)) {
        const running = beginSh(run.replace('; delayq', '; exec delayq'), { env });
        await until(() => running.stdout !== '');
        running.child.kill('SIGTERM');
        expect(await running.ended).toMatchObject({ code: 0, stderr: expect.not.stringMatching(/next:/) });
        return;
      }
      // The first is run as users run it, and all that need a shell or its directory.
      const words = i === 0 ? undefined : wordsOf(line);
      const { code, stderr } = await (words ? delayq(words, { env }) : sh(run, { env }));
      if (NOT_HERE.some((reason) => stderr.includes(reason))) return;
      // 1, 2 and 3 are answers: not found, warnings, nothing there.
      expect({ line, code, stderr }).toMatchObject({ line, code: expect.toBeOneOf([0, 1, 2, 3]) });
      expect(stderr).not.toMatch(/--help|syntax error|command not found|: not found|No such file/);
    });
  }
});
