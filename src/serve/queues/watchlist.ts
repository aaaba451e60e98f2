import { Batcher } from '../../consume/batcher.js';
import type { WaitlistHost } from '../../consume/waitlist.js';
import { isPassing, type JobResult, type Queue } from '../../index.js';
import { type Look, Watch } from '../../internal.js';
import { MAX_CALL } from '../../store/script.js';

/** How long to pause between rounds, ms: at first, and at most. Each pause is half as long again. */
const PAUSE_MS = [10, 500] as const;

/** How long to pause at least for each job of a round, ms: many times as long as Redis takes for it. */
const PAUSE_PER_JOB_MS = 0.1;

/** How often rounds take back expired leases, ms: a job whose last one is over is dead. */
const TAKE_BACK_MS = 1_000;

/** The pause after a round that failed, ms. */
const RETRY_MS = 250;

/** What gets the end of a job, or its state when the wait is over; or an error. Only the first call counts. */
export interface Listener {
  readonly tell: (found: JobResult) => void;
  readonly fail: (error: unknown) => void;
}

/** A request that waits for the end of a job. */
interface Watcher {
  readonly watch: Watch;
  readonly listener: Listener;
  /** How many looks were sent before it came: they may tell of an earlier job. */
  readonly since: number;
  cancelTimer: () => void;
}

/**
 * The requests that wait for the ends of jobs of a queue. A round looks at all these jobs, {@link MAX_CALL} in a call, one
 * call after the other. The pauses between rounds grow with time and with the number of jobs; a new request makes them
 * short again, as its job may end soon.
 */
export class Watchlist {
  readonly #queue: Queue;
  readonly #host: WaitlistHost;
  readonly #takeBack: () => Promise<unknown>;
  readonly #looks: Batcher<string, Look>;
  /** By the ids of their jobs. */
  readonly #watchers = new Map<string, Set<Watcher>>();
  #sent = 0;
  #pauseMs: number = PAUSE_MS[0];
  /** When the next round begins; while one runs, nothing is planned. */
  #at = Number.POSITIVE_INFINITY;
  #isRunning = false;
  #cancelTimer = () => {};
  #takenBack = 0;
  /** While rounds fail: cancels the end of all waits. */
  #cancelFailing: (() => void) | undefined;

  /** `takeBack` takes back expired leases; its calls are shared. */
  constructor(queue: Queue, host: WaitlistHost, takeBack: () => Promise<unknown>) {
    this.#queue = queue;
    this.#host = host;
    this.#takeBack = takeBack;
    this.#looks = Batcher.of((ids) => queue.lookUp(ids));
  }

  get isIdle(): boolean {
    return this.#watchers.size === 0 && !this.#isRunning && this.#looks.isIdle;
  }

  /** Follows a job from now on. */
  watch(id: string): Watch {
    return new Watch(this.#queue.name, id);
  }

  /** Looks at a job for one request. Returns its end; undefined: it has not ended. */
  async look(watch: Watch): Promise<JobResult | undefined> {
    await this.#takeBack();
    const found = watch.see(await this.#looks.add(watch.id));
    return watch.isInDoubt && !found ? watch.see(await this.#looks.add(watch.id)) : found;
  }

  /** Waits until the job ends, after a look at it, at most `timeoutMs`. `end` tells at once what is known. */
  join(watch: Watch, timeoutMs: number, listener: Listener): { readonly end: () => void; readonly leave: () => void } {
    const watcher: Watcher = { watch, listener, since: this.#sent, cancelTimer: () => {} };
    const leave = () => void this.#leave(watcher);
    const end = () => {
      leave();
      // Also if it has left for its last look: a client that has shut its side must be answered now.
      listener.tell(watch.last);
    };
    const all = this.#watchers.get(watch.id);
    if (all) all.add(watcher);
    else this.#watchers.set(watch.id, new Set([watcher]));
    this.#host.figures.waiting++;
    if (this.#host.signal.aborted) end();
    else {
      watcher.cancelTimer = this.#host.clock.after(timeoutMs, () => this.#expire(watcher));
      this.#pauseMs = PAUSE_MS[0];
      this.#plan(this.#pauseMs);
    }
    return { end, leave };
  }

  /** Ends all waits. */
  stop(): void {
    for (const watcher of this.#all()) if (this.#leave(watcher)) watcher.listener.tell(watcher.watch.last);
  }

  #all(): Watcher[] {
    return [...this.#watchers.values()].flatMap((some) => [...some]);
  }

  /** Returns false if it has left already. */
  #leave(watcher: Watcher): boolean {
    const { id } = watcher.watch;
    const some = this.#watchers.get(id);
    if (!some?.delete(watcher)) return false;
    if (some.size === 0) this.#watchers.delete(id);
    watcher.cancelTimer();
    this.#host.figures.waiting--;
    if (this.#watchers.size > 0) return true;
    this.#works();
    this.#cancelTimer();
    this.#at = Number.POSITIVE_INFINITY;
    return true;
  }

  /** Its time is over: looks once more, since the last round may be a while ago. */
  #expire(watcher: Watcher): void {
    const { watch, listener } = watcher;
    if (this.#leave(watcher)) this.look(watch).then((found) => listener.tell(found ?? watch.last), listener.fail);
  }

  /** Begins a round after `ms`, or when one is planned already. */
  #plan(ms: number): void {
    const { clock } = this.#host;
    const at = clock.now() + Math.max(ms, this.#watchers.size * PAUSE_PER_JOB_MS);
    if (this.#isRunning || at >= this.#at) return;
    this.#at = at;
    this.#cancelTimer();
    this.#cancelTimer = clock.after(at - clock.now(), () => this.#host.underWay.add(this.#round()));
  }

  async #round(): Promise<void> {
    const { clock } = this.#host;
    let pauseMs = this.#pauseMs;
    this.#pauseMs = Math.min(pauseMs * 1.5, PAUSE_MS[1]);
    this.#isRunning = true;
    try {
      if (clock.now() - this.#takenBack >= TAKE_BACK_MS) {
        await this.#takeBack();
        this.#takenBack = clock.now();
      }
      const ids = [...this.#watchers.keys()];
      for (let i = 0; i < ids.length; i += MAX_CALL) await this.#lookAt(ids.slice(i, i + MAX_CALL));
      this.#works();
      pauseMs = this.#pauseMs;
    } catch (error) {
      this.#failed(error);
      pauseMs = RETRY_MS;
    }
    this.#isRunning = false;
    this.#at = Number.POSITIVE_INFINITY;
    if (this.#watchers.size > 0) this.#plan(pauseMs);
  }

  async #lookAt(ids: readonly string[]): Promise<void> {
    const sent = this.#sent++;
    const looks = await this.#queue.lookUp(ids);
    for (const [i, id] of ids.entries()) {
      for (const watcher of this.#watchers.get(id) ?? [])
        if (watcher.since <= sent) this.#see(watcher, looks[i] as Look);
    }
  }

  #see(watcher: Watcher, look: Look): void {
    const { watch, listener } = watcher;
    try {
      const found = watch.see(look);
      if (found && this.#leave(watcher)) listener.tell(found);
    } catch (error) {
      if (this.#leave(watcher)) listener.fail(error);
    }
  }

  /** Rounds do not fail any more. */
  #works(): void {
    this.#cancelFailing?.();
    this.#cancelFailing = undefined;
  }

  /** Fails all requests, after a short hold: thousands would ask again at once. They go on if a round succeeds before. */
  #failed(error: unknown): void {
    const holdMs = this.#host.failed(error);
    if (this.#watchers.size === 0) return;
    this.#cancelFailing ??= this.#host.clock.after(isPassing(error) ? holdMs : 0, () => {
      this.#cancelFailing = undefined;
      for (const watcher of this.#all()) if (this.#leave(watcher)) watcher.listener.fail(error);
    });
  }
}
