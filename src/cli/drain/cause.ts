/*
 * Why a handler failed, by what it wrote to stderr last. Its error begins with the line that tells: views show this
 * line, and equal errors are counted by it. Below it stands what was written around it.
 */

/** How many lines are kept below the telling one. */
const CONTEXT = 10;

/** Reports that have their telling line above: a line that such a report has, and how the telling one begins. */
const HEADED: readonly (readonly [mark: RegExp, head: RegExp])[] = [
  // PHP
  [/^ {2}thrown in .* on line \d+$/, /^(PHP )?Fatal error: /],
  // Go
  [/^goroutine \d+ \[/, /^(panic|fatal error): /],
];

const PYTHON = 'Traceback (most recent call last):';

/** What stands below other errors: frames of a stack, which are indented, lines without a word, words of runtimes. */
const BELOW = /^\s|^[^\p{L}\p{N}]*$|^(Node\.js|Bun) v\d|^\(Use `node |^note: run with `RUST_BACKTRACE/u;

/** How a handler `ended`, and the last lines of its stderr, the telling one first. */
export function withCause(ended: string, stderr: string): string {
  if (stderr === '') return ended;
  const lines = stderr.split('\n');
  const context = lines.slice(-CONTEXT);
  const line = tellingLine(lines);
  return `${ended}: ${[...(context[0] === line ? [] : [line]), ...context].join('\n')}`;
}

function tellingLine(lines: readonly string[]): string {
  const [, head] = HEADED.find(([mark]) => lines.some((line) => mark.test(line))) ?? [];
  const traceback = lines.lastIndexOf(PYTHON);
  const found =
    (head && lines.findLast((line) => head.test(line))) ??
    // Messages may have several lines, so it is not always the last one.
    (traceback >= 0 ? lines.slice(traceback + 1).find((line) => /^\S/.test(line)) : undefined) ??
    lines.findLast((line) => !BELOW.test(line)) ??
    lines.at(-1);
  return (found ?? '').trim();
}
