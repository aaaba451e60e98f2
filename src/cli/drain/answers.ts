import { Dead, parseDuration, Release, Retry } from '../../internal.js';
import { attempt } from '../host/attempt.js';
import { withCause } from './cause.js';

/*
 * What a handler can say of its job, in a line that it writes to a descriptor of its own, so that whatever is printed on
 * stdout is no answer:
 *   ok [TICKET [RESULT]]                 done
 *   retry [TICKET] [DURATION] [REASON]   failed; retried after this time, or after the backoff, which - says, too
 *   release [TICKET] [DURATION]          put off, not counted as a failure
 *   dead [TICKET] [REASON]               dead at once
 * The ticket says which job is meant. It is new for each delivery. Where only one job can be meant, it may be left out.
 */

/** The descriptor for answers. DELAYQ_ANSWER_FD names it. */
export const ANSWER_FD = 3;

/** How much of a line is read, bytes: more than the longest reason that is stored. The rest of it is skipped. */
export const MAX_ANSWER = 16 * 1024;

const LF = 10;
const NOTHING = Buffer.alloc(0);

export interface Answer {
  readonly verb: 'ok' | 'retry' | 'release' | 'dead';
  readonly ticket: string | undefined;
  readonly delayMs: number | undefined;
  /** Of ok, what came out of the job. Empty: none was given. */
  readonly reason: string;
}

/** Parses a line. `isTicket` tells tickets from other words. Returns undefined if it is no answer. */
export function parseAnswer(line: string, isTicket: (word: string) => boolean = () => false): Answer | undefined {
  const [, verb, words = ''] = /^(ok|retry|release|dead)(?:\s+(.*))?$/s.exec(line.trim()) ?? [];
  if (verb === undefined) return undefined;
  let rest = words;
  const next = () => /^\S*/.exec(rest)?.[0] ?? '';
  const skip = (word: string) => {
    rest = rest.slice(word.length).trimStart();
  };
  const ticket = isTicket(next()) ? next() : undefined;
  if (ticket) skip(ticket);
  const hasDelay = verb === 'retry' || verb === 'release';
  const delayMs = hasDelay ? attempt(() => parseDuration(next())) : undefined;
  // A dash stands for no time: a reason may begin with what could be one.
  if (delayMs !== undefined || (hasDelay && next() === '-')) skip(next());
  // Whatever follows these was meant in another way than it would be understood: perhaps as a ticket of another run.
  if (rest !== '' && (verb === 'release' || (verb === 'ok' && ticket === undefined))) return undefined;
  return { verb: verb as Answer['verb'], ticket, delayMs, reason: rest };
}

/**
 * Returns what came out of the job if the answer is that it is done; empty: nothing. Otherwise throws what a worker
 * expects. `tail`: what the handler wrote to stderr last, for answers without a reason.
 */
export function carryOut({ verb, delayMs, reason }: Answer, tail: string): string {
  if (verb === 'ok') return reason;
  if (verb === 'release') throw new Release(delayMs);
  const text = reason || withCause(`answered ${verb}`, tail);
  if (verb === 'dead') throw new Dead(text);
  throw delayMs === undefined ? new Error(text) : new Retry(delayMs, text);
}

/** Lines that come in pieces. Those that are longer than {@link MAX_ANSWER} are cut. */
export class Lines {
  /** The beginning of a line whose end has not come. */
  #begun: Buffer = NOTHING;

  /** Returns the lines that end in `data`, without their line ends. Keeps nothing of `data` itself. */
  take(data: Buffer): string[] {
    const lines: string[] = [];
    let at = 0;
    for (let end = data.indexOf(LF); end >= 0; end = data.indexOf(LF, at)) {
      if (this.#begun.length > 0) this.#add(data.subarray(at, end));
      lines.push(this.#begun.length > 0 ? this.begun : data.toString('utf8', at, Math.min(end, at + MAX_ANSWER)));
      this.#begun = NOTHING;
      at = end + 1;
    }
    if (at < data.length) this.#add(data.subarray(at));
    return lines;
  }

  #add(data: Buffer): void {
    this.#begun = Buffer.concat([this.#begun, data.subarray(0, MAX_ANSWER - this.#begun.length)]);
  }

  /** A line whose end has not come; empty if there is none. */
  get begun(): string {
    return this.#begun.toString('utf8');
  }
}

/** Parts answers from other output, by their tickets. Other lines are passed on once they are whole, or too long. */
export class Sieve {
  readonly #isAnswer: (line: string) => boolean;
  #begun: Buffer = NOTHING;
  /** The line was too long to be held back: what follows of it is no answer. */
  #isLong = false;
  readonly #onAnswer: (line: string) => void;

  constructor(isAnswer: (line: string) => boolean, onAnswer: (line: string) => void) {
    this.#isAnswer = isAnswer;
    this.#onAnswer = onAnswer;
  }

  /** Takes output of a process. Returns what is to be passed on. */
  take(data: Buffer): Buffer {
    const all = this.#begun.length === 0 ? data : Buffer.concat([this.#begun, data]);
    this.#begun = NOTHING;
    const others: Buffer[] = [];
    let at = 0;
    for (let end = all.indexOf(LF); end >= 0; end = all.indexOf(LF, at)) {
      const line = all.subarray(at, end + 1);
      const text = line.length <= MAX_ANSWER && !this.#isLong ? line.toString('utf8') : '';
      if (text !== '' && this.#isAnswer(text)) this.#onAnswer(text);
      else others.push(line);
      this.#isLong = false;
      at = end + 1;
    }
    const rest = all.subarray(at);
    if (this.#isLong || rest.length > MAX_ANSWER) {
      others.push(rest);
      this.#isLong = rest.length > 0 || this.#isLong;
    } else this.#begun = rest;
    return Buffer.concat(others);
  }

  /** The process has ended: returns what was held back. */
  rest(): Buffer {
    const rest = this.#begun;
    this.#begun = NOTHING;
    return rest;
  }
}
