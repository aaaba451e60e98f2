import { closeSync, writeSync } from 'node:fs';
import { Socket, type SocketConstructorOpts } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import type { Call } from '../../internal.js';
import { attempt } from '../host/attempt.js';
import { carryOut, Lines, parseAnswer, Sieve } from './answers.js';
import { withCause } from './cause.js';
import { memoryOf } from './descriptors.js';
import type { DrainReport } from './drain.js';
import type { ExitPolicy } from './exit-status.js';
import type { OutputRelay } from './output.js';
import { makePipes, OutputPipes, type Pipe } from './pipes.js';
import type { Command, Exit, Processes, Running } from './process.js';

/** How often the memory of a process is looked at, at most, ms. */
const MEMORY_MS = 200;

/** How long a process without a descriptor for answers is given to end, ms: a process that ends closes it, too. */
const CLOSED_MS = 1_000;

/** How much is read of answers at a time, bytes. */
const CHUNK = 16 * 1024;

/** How long a line may be without its end before it is reported, ms. */
const UNENDED_MS = 1_000;

/** What the processes of a pool have in common. */
export interface PoolHost {
  readonly command: Command;
  readonly processes: Processes;
  readonly relay: OutputRelay;
  readonly policy: ExitPolicy;
  readonly report: Pick<DrainReport, 'noAnswer' | 'handlerProblem'>;
  /** How many jobs a process has in hand, at most. */
  readonly ahead: number;
  /** A process is replaced after this many jobs, or when it has more memory, bytes. */
  readonly maxJobs: number;
  readonly maxMemory: number | undefined;
  readonly answersOnStdout: boolean;
  /** How long a process may take to end after its stdin has, ms. */
  readonly patienceMs: number;
  isTicket(word: string): boolean;
  /** There may be room for another job. */
  onRoom(): void;
  /** A process has ended before it began with these jobs. */
  onReturn(jobs: readonly Handed[]): void;
}

/** A job that a process has been given. */
export interface Handed {
  readonly ticket: string;
  readonly call: Call;
  /** Its line, with the line end. */
  readonly line: Buffer;
  /** `result`: what came out of it; empty: nothing. */
  done(result: string): void;
  failed(error: unknown): void;
}

/** How a process has ended. */
export interface PoolEnd extends Exit {
  /** Its last lines on stderr. */
  readonly tail: string;
  /** It was not asked to end. */
  readonly isOwn: boolean;
  readonly hadJob: boolean;
}

interface InHand extends Handed {
  /** Where its line begins in all that the process was sent, bytes. */
  readonly from: number;
  /** Why it is no longer ours, if it is not: nobody waits for its answer. */
  abandoned?: Error;
}

/**
 * A process that handles one job after another: reads them as lines from stdin, and answers with lines. Both are named
 * pipes of its own: what a process that it leaves behind writes answers for no job of another.
 */
export class PoolProcess {
  readonly #host: PoolHost;
  readonly #running: Running;
  readonly #output: OutputPipes;
  readonly #stdin: Socket;
  /** The descriptor of that. */
  readonly #fd: number;
  /** A read end of its stdin: tells, once it has ended, what it has not read. */
  readonly #unread: number;
  readonly #answers: Socket | undefined;
  readonly #lines = new Lines();
  readonly #inHand: InHand[] = [];
  #sent = 0;
  #handed = 0;
  #read = 0;
  /** How many jobs it has answered. */
  answered = 0;
  /** It gets no more jobs. */
  #isRetiring = false;
  #hasExited = false;
  /** Why it was told to end, if it was. */
  #endReason: Error | undefined;
  #memoryAt = Number.NEGATIVE_INFINITY;
  #patience: NodeJS.Timeout | undefined;
  #unended: NodeJS.Timeout | undefined;
  /** Resolves when it has ended, and all of its jobs are settled. */
  readonly ended: Promise<PoolEnd>;

  /** Starts a process. Throws as {@link Processes.start} and {@link makePipes}. */
  static async start(host: PoolHost): Promise<PoolProcess> {
    const kinds = ['input', 'output', 'output', ...(host.answersOnStdout ? [] : (['output'] as const))] as const;
    const pipes = await makePipes(...kinds);
    const [stdin, stdout, stderr, answers] = pipes as [Pipe, Pipe, Pipe, Pipe?];
    try {
      const running = await host.processes.start(
        host.command,
        pipes.map(({ child }) => child),
      );
      closeSync(stdin.child);
      // From now on the process alone has it open for writing: we see when it has closed it.
      if (answers) closeSync(answers.writer);
      return new PoolProcess(host, running, { stdin, output: [stdout, stderr], answers });
    } catch (error) {
      for (const fd of new Set(pipes.flatMap(({ reader, writer, child }) => [reader, writer, child]))) closeSync(fd);
      throw error;
    }
  }

  private constructor(
    host: PoolHost,
    running: Running,
    { stdin, output, answers }: { stdin: Pipe; output: readonly [Pipe, Pipe]; answers: Pipe | undefined },
  ) {
    this.#host = host;
    this.#running = running;
    this.#unread = stdin.reader;
    this.#fd = stdin.writer;
    const sieve = answers ? undefined : this.#sieve();
    this.#output = new OutputPipes(host.relay, output, true, sieve);
    this.#output.begin();
    this.#stdin = new Socket({ fd: stdin.writer, readable: false, writable: true });
    this.#stdin.on('error', () => {});
    this.#answers = answers && this.#listen(answers.reader);
    this.ended = this.#run();
  }

  #sieve(): Sieve {
    const isAnswer = (line: string) => parseAnswer(line, this.#host.isTicket)?.ticket !== undefined;
    return new Sieve(isAnswer, (line) => this.#answer(line));
  }

  #listen(fd: number): Socket {
    // One buffer for all that is read: a stream would make one for each answer.
    const buffer = Buffer.allocUnsafe(CHUNK);
    const callback = (length: number) => {
      this.#heard(buffer.subarray(0, length));
      return true;
    };
    const options = { fd, readable: true, writable: false, onread: { buffer, callback } };
    const socket = new Socket(options as SocketConstructorOpts);
    socket.on('error', () => {});
    socket.on('end', () => {
      const closed = () => this.end(new Error('the process closed the descriptor for answers (DELAYQ_ANSWER_FD)'));
      this.#patience ??= setTimeout(closed, CLOSED_MS).unref();
    });
    return socket;
  }

  /** How many more jobs it can be given. */
  get room(): number {
    return this.#isRetiring ? 0 : this.#host.ahead - this.#inHand.length;
  }

  get isIdle(): boolean {
    return this.#inHand.length === 0;
  }

  /** Gives it a job. */
  hand(job: Handed): void {
    const inHand: InHand = { ...job, from: this.#sent };
    this.#sent += job.line.length;
    this.#handed += 1;
    this.#inHand.push(inHand);
    if (this.#inHand.length > 1) job.call.postpone();
    job.call.onAbort = (reason) => this.#aborted(inHand, reason);
    if (this.#host.ahead > 1) {
      // Jobs that come together are written together.
      this.#stdin.cork();
      process.nextTick(() => this.#stdin.uncork());
    }
    this.#write(job.line);
    if (this.#handed >= this.#host.maxJobs) this.#isRetiring = true;
  }

  /** A stream costs half as much as the call of the system: it gets only what the pipe does not take now. */
  #write(line: Buffer): void {
    const isWaiting = this.#stdin.writableLength > 0 || this.#stdin.writableCorked > 0;
    const written = isWaiting ? 0 : (attempt(() => writeSync(this.#fd, line)) ?? 0);
    if (written < line.length) this.#stdin.write(line.subarray(written));
  }

  #heard(data: Buffer): void {
    this.#read += data.length;
    for (const line of this.#lines.take(data)) this.#answer(line);
    clearTimeout(this.#unended);
    const { begun } = this.#lines;
    if (begun === '') return;
    const why = 'the line has no end: an answer counts with its line feed';
    this.#unended = setTimeout(() => this.#host.report.noAnswer(begun, why), UNENDED_MS).unref();
  }

  #answer(line: string): void {
    const { host, inHand } = { host: this.#host, inHand: this.#inHand };
    const answer = parseAnswer(line, host.isTicket);
    if (!answer) {
      host.report.noAnswer(line);
      return;
    }
    const { ticket } = answer;
    if (ticket === undefined && host.ahead > 1) {
      host.report.noAnswer(line, 'with --ahead, the ticket of the job must follow the first word');
      return;
    }
    const at = ticket === undefined ? 0 : inHand.findIndex((job) => job.ticket === ticket);
    // Too late: the process is being ended because of it.
    if (at === 0 && inHand[0]?.abandoned) return;
    const [job] = at < 0 ? [] : inHand.splice(at, 1);
    if (!job) {
      const why = ticket === undefined ? 'it has no job in hand' : 'it has no job with this ticket in hand';
      host.report.noAnswer(line, why);
      return;
    }
    this.answered += 1;
    if (job.abandoned) return;
    settle(job, () => carryOut(answer, this.#output.tail));
    this.#output.begin();
    if (at === 0) this.#beginNext();
    if (this.#isTooLarge()) this.#isRetiring = true;
    if (this.#isRetiring) this.retire();
    host.onRoom();
  }

  /** The process begins with the first job that it has in hand. */
  #beginNext(): void {
    const [next] = this.#inHand;
    if (next?.abandoned) this.end(next.abandoned);
    else next?.call.begin();
  }

  #isTooLarge(): boolean {
    const { maxMemory } = this.#host;
    const now = performance.now();
    if (maxMemory === undefined || now - this.#memoryAt < MEMORY_MS) return false;
    this.#memoryAt = now;
    return (memoryOf(this.#running.pid) ?? 0) > maxMemory;
  }

  /** The worker does not wait for a job any longer. */
  #aborted(job: InHand, reason: Error): void {
    job.abandoned = reason;
    // A job that it has not begun is only noted: those before it have done nothing wrong.
    if (job === this.#inHand[0]) this.end(reason);
    else job.failed(reason);
  }

  /** Gives it no more jobs. Once its last is answered, its stdin ends, and then so should the process. */
  retire(): void {
    this.#isRetiring = true;
    if (!this.isIdle || this.#stdin.writableEnded) return;
    this.#stdin.end();
    this.#patience ??= setTimeout(() => this.#running.end(), this.#host.patienceMs);
  }

  /** Ends it at once, by a signal. */
  end(reason: Error): void {
    this.#isRetiring = true;
    if (this.#hasExited) return;
    this.#endReason ??= reason;
    this.#running.end();
  }

  async #run(): Promise<PoolEnd> {
    const exit = await this.#running.exited;
    this.#hasExited = true;
    this.#isRetiring = true;
    clearTimeout(this.#patience);
    // Its last answers may still be in the pipe.
    for (let before = -1; before !== this.#read; ) {
      before = this.#read;
      await turn();
      await turn();
    }
    clearTimeout(this.#unended);
    const tail = await this.#output.rest();
    if (this.#endReason) await this.#running.gone();
    // The last line of a stream needs no end, if nothing has cut it.
    const { begun } = this.#lines;
    if (begun !== '' && exit.signal === null && !this.#endReason) this.#answer(begun);
    const [job] = this.#inHand;
    const unread = await this.#countUnread();
    const hasBegun = job !== undefined && job.from < this.#sent - unread;
    this.#close();
    const inHand = this.#inHand.splice(0);
    // It was well, and ended between two jobs. One that never answered fails its job: otherwise a handler that cannot
    // start would look healthy.
    const isUntouched = !hasBegun && this.answered > 0 && !this.#endReason;
    this.#host.onReturn(inHand.filter((one) => !one.abandoned && (one !== job || isUntouched)));
    if (job && !isUntouched) await this.#failed(job, { ...exit, tail });
    return { ...exit, tail, isOwn: !this.#endReason && !this.#stdin.writableEnded, hadJob: job !== undefined };
  }

  /** The process has ended with a job in hand. */
  async #failed(job: InHand, { status, signal, tail }: Exit & { tail: string }): Promise<void> {
    const reason = this.#endReason;
    if (reason) {
      job.failed(new Error(withCause(reason.message, tail)));
      return;
    }
    try {
      await this.#host.policy.check({ status, signal, aborted: false, tail }, job.call.signal);
      job.failed(new Error(withCause('the process ended (exit 0) without an answer', tail)));
    } catch (error) {
      job.failed(error);
    }
  }

  /** How much of what the process was sent it has not read, bytes. */
  async #countUnread(): Promise<number> {
    let unread = 0;
    let before = -1;
    const reader = new Socket({ fd: this.#unread, readable: true, writable: false });
    reader.on('error', () => {});
    reader.on('data', (data: Buffer) => {
      unread += data.length;
    });
    // What did not fit into the pipe is written now.
    while (before !== unread || this.#stdin.writableLength > 0) {
      before = unread;
      await turn();
      await turn();
    }
    reader.destroy();
    return unread;
  }

  #close(): void {
    this.#stdin.destroy();
    this.#answers?.destroy();
    this.#output.end();
    if (this.#running.hasGroup) this.#output.leave();
    else this.#output.close();
  }
}

function settle(job: Handed, outcome: () => string): void {
  try {
    job.done(outcome());
  } catch (error) {
    job.failed(error);
  }
}
