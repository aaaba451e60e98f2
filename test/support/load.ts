import { setTimeout as sleep } from 'node:timers/promises';
import { type Connection, DelayqError, Queue } from '../../src/index.js';
import type { Server } from './server.js';
import { until } from './until.js';

/** What a producer or a consumer saw. */
export class Seen {
  /** Codes of errors, and how often. */
  readonly errors: Record<string, number> = {};
  readonly reasons: string[] = [];
  /** The longest time between two calls that succeeded, ms. */
  longestPauseMs = 0;
  calls = 0;
  #last = performance.now();

  succeeded(): void {
    const now = performance.now();
    this.longestPauseMs = Math.max(this.longestPauseMs, now - this.#last);
    this.#last = now;
    this.calls += 1;
  }

  failed(error: unknown): void {
    if (!(error instanceof DelayqError)) throw error;
    this.reasons.push(error.why ?? error.message);
    this.errors[error.code] = (this.errors[error.code] ?? 0) + 1;
  }
}

/** A producer and a consumer of one queue, one call after the other, and what became of each job. */
export class Load {
  readonly queue: Queue;
  readonly producer = new Seen();
  readonly consumer = new Seen();
  /** Ids that Redis has confirmed, and those whose outcome is unknown. */
  readonly confirmed = new Set<string>();
  readonly unknown = new Set<string>();
  readonly handled = new Map<string, number>();
  readonly #leaseMs: number;
  readonly #producing: Promise<void>;
  readonly #consuming: Promise<void>;
  #isProducing = true;
  #isConsuming = true;

  constructor(
    redis: Connection,
    name: string,
    { replicas, leaseMs = 3_000, pauseMs = 2 }: { replicas?: number; leaseMs?: number; pauseMs?: number } = {},
  ) {
    this.queue = new Queue(redis, name);
    this.#leaseMs = leaseMs;
    this.#producing = this.#produce(replicas, pauseMs);
    this.#consuming = this.#consume();
  }

  async #produce(replicas: number | undefined, pauseMs: number): Promise<void> {
    for (let n = 0; this.#isProducing; n++) {
      const id = `${this.queue.name}-${n}`;
      try {
        await this.queue.enqueue({ id, payload: n }, replicas === undefined ? {} : { replicas });
        this.confirmed.add(id);
        this.producer.succeeded();
      } catch (error) {
        this.producer.failed(error);
        if ((error as DelayqError).code === 'unknown') this.unknown.add(id);
        await sleep(20);
      }
      await sleep(pauseMs);
    }
  }

  async #consume(): Promise<void> {
    while (this.#isConsuming) {
      try {
        const { jobs } = await this.queue.drain({ limit: 50, leaseMs: this.#leaseMs });
        for (const { id } of jobs) this.handled.set(id, (this.handled.get(id) ?? 0) + 1);
        if (jobs.length > 0) await this.queue.ack(jobs);
        this.consumer.succeeded();
        await sleep(5);
      } catch (error) {
        this.consumer.failed(error);
        await sleep(20);
      }
    }
  }

  /** Resolves when both have succeeded `n` more times. */
  async goesOn(n = 30): Promise<void> {
    const [producer, consumer] = [this.producer.calls + n, this.consumer.calls + n];
    await until(() => this.producer.calls >= producer && this.consumer.calls >= consumer);
  }

  /** The jobs that are confirmed by now, as soon as all `replicas` of their server have them. */
  async copied(server: Server, replicas: number): Promise<ReadonlySet<string>> {
    const confirmed = new Set(this.confirmed);
    await server.copied(replicas, `{${this.queue.name}}mark`);
    return confirmed;
  }

  /** Ends the producer, then the consumer when nothing is left. Returns the confirmed jobs that nobody has seen. */
  async end(): Promise<string[]> {
    this.#isProducing = false;
    await this.#producing;
    await until(async () => {
      const counts = await this.queue.counts().catch(() => undefined);
      return counts !== undefined && counts.pending + counts.active === 0;
    });
    this.#isConsuming = false;
    await this.#consuming;
    return [...this.confirmed].filter((id) => !this.handled.has(id));
  }

  async stop(): Promise<void> {
    this.#isProducing = false;
    this.#isConsuming = false;
    await Promise.all([this.#producing, this.#consuming]);
  }

  /** Jobs that were handled more than once. */
  get twice(): string[] {
    return [...this.handled].filter(([, times]) => times > 1).map(([id]) => id);
  }
}
