import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { cronEnv } from '../support/cli.js';
import { until, within } from '../support/until.js';
import { type Told, toldBy } from './events.js';
import type { Random } from './random.js';

const GROUP = 'follower';

/** How long a process lives until it is killed, ms. */
const LIVES_MS = [300, 3_000] as const;

/** How long it may take until all is printed, once nothing strikes, ms. */
const LAST_MS = 60_000;

/** Statuses after which it is started again: Redis could not be reached, or could not do it now. */
const AGAIN = new Set([69, 75]);

/** The lines of each partition that one process has printed. */
type Printed = Map<number, string[]>;

/** Follows the events of a queue as a group. Its process is killed at random moments, and started again. */
export class Follower {
  readonly #queue: string;
  readonly #url: string;
  readonly #errors: string;
  readonly #random: Random;
  readonly #printed: Printed[] = [];
  readonly #bugs: string[] = [];
  readonly #running: Promise<void>;
  #child: ChildProcess | undefined;
  #isStruck = true;
  #isOver = false;
  killed = 0;

  constructor(queue: string, url: string, errors: string, random: Random) {
    this.#queue = queue;
    this.#url = url;
    this.#errors = errors;
    this.#random = random;
    this.#running = this.#run();
  }

  /** Waits until its group is among those that `groups` returns: it must print what happens from then on. */
  async begin(groups: () => Promise<unknown>): Promise<void> {
    await until(async () => JSON.stringify(await groups().catch(() => [])).includes(GROUP));
    void this.#strike();
  }

  async #strike(): Promise<void> {
    for (;;) {
      await sleep(this.#random.whole(...LIVES_MS), undefined, { ref: false });
      if (!this.#isStruck || this.#isOver) return;
      if (this.#child?.kill('SIGKILL')) this.killed += 1;
    }
  }

  async #run(): Promise<void> {
    while (!this.#isOver) {
      const args = ['events', this.#queue, '--follow', '--from-group', GROUP];
      // If the suite is killed, it dies, too.
      const child = spawn('setpriv', ['--pdeathsig', 'KILL', 'delayq', ...args], {
        env: cronEnv({ DELAYQ_REDIS_URL: this.#url }),
        stdio: ['ignore', 'pipe', 'pipe'],
      });
      this.#child = child;
      const printed: Printed = new Map();
      this.#printed.push(printed);
      let [rest, said] = ['', ''];
      child.stdout.on('data', (data: Buffer) => {
        const lines = (rest + data).split('\n');
        // The last line of a killed process may be incomplete.
        rest = lines.pop() as string;
        for (const line of lines) note(printed, line);
      });
      child.stderr.on('data', (data: Buffer) => {
        said += data;
      });
      child.stderr.pipe(createWriteStream(this.#errors, { flags: 'a' }));
      await once(child, 'close');
      const isExpected = child.signalCode === 'SIGKILL' || AGAIN.has(child.exitCode ?? 0);
      if (!isExpected || said.includes('were removed'))
        this.#bugs.push(`${this.#queue}: its follower ended with ${child.exitCode}: ${said}`);
    }
  }

  /** From now on nothing strikes it. */
  calm(): void {
    this.#isStruck = false;
  }

  /**
   * Waits until it has printed the last of these events, and ends it. Returns what is wrong with what it has printed;
   * `mayForget`: Redis may have forgotten some of that.
   */
  async end(events: readonly (readonly Told[])[], mayForget = false): Promise<string[]> {
    this.calm();
    const texts = events.map((all) => all.map(textOf));
    const hasLast = (all: string[], i: number) =>
      all.length === 0 || this.#printed.some((printed) => printed.get(i)?.at(-1) === all.at(-1));
    await until(() => texts.every(hasLast), LAST_MS).catch(() => {});
    await this.stop();
    const wrong = texts.flatMap((all, i) => {
      const runs = this.#printed.flatMap((printed) => [printed.get(i) ?? []]);
      const what = mayForget ? missing(all, runs) : outOfPlace(all, runs);
      return what === undefined ? [] : `${this.#queue}: its follower, in partition ${i}: ${what}`;
    });
    return [...this.#bugs, ...wrong];
  }

  /** Ends it at once. */
  async stop(): Promise<void> {
    this.#isOver = true;
    this.#child?.kill('SIGKILL');
    await within(LAST_MS, 'the end of a follower', this.#running);
  }
}

const textOf = (event: Told) => JSON.stringify(Object.values(event));

function note(printed: Printed, line: string): void {
  const event = JSON.parse(line);
  const lines = printed.get(event.partition ?? 0) ?? [];
  printed.set(event.partition ?? 0, lines);
  lines.push(textOf(toldBy(event)));
}

/** What nobody has printed; undefined: all was. */
function missing(all: readonly string[], runs: readonly (readonly string[])[]): string | undefined {
  const printed = new Set(runs.flat());
  const missed = all.filter((text) => !printed.has(text));
  return missed.length > 0 ? `${missed.length} were missed: ${missed[0]}` : undefined;
}

/**
 * What is out of place: each run prints events one after the other, from one on that was printed already, or from the
 * next. Undefined: nothing is, and all were printed.
 */
export function outOfPlace(all: readonly string[], runs: readonly (readonly string[])[]): string | undefined {
  let end = 0;
  for (const run of runs) {
    // Two events may look alike: the place from which most of the run is right.
    let [from, right] = [end, -1];
    for (let i = end; i >= 0 && right < run.length; i--) {
      const wrong = run.findIndex((text, n) => text !== all[i + n]);
      if (wrong < 0) [from, right] = [i, run.length];
      else if (wrong > right) [from, right] = [i, wrong];
    }
    if (right < run.length) return `${run[right]} in place of ${all[from + right]}, after ${right} of its run`;
    end = Math.max(end, from + run.length);
  }
  return end < all.length ? `it missed ${all.length - end} of ${all.length} events: ${all[end]}` : undefined;
}
