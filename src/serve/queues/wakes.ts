import type { Connection } from '../../index.js';

/** The pause before subscribing to added channels, ms; and for how many channels it is 1 ms longer. */
const SETTLE_MS = 20;
const CHANNELS_PER_MS = 10;

/** How often to look whether the subscription is alive, ms. */
const CHECK_MS = 1_000;

/** How long both subscriptions are kept when one takes the place of another, ms. */
const OVERLAP_MS = 250;

/** How long to keep a channel without waiting requests, ms: consumers come again and again. */
const IDLE_MS = 60_000;

/** Called when a job falls due, ms by the clock of the server; NaN for a message that is no time. */
type Heard = (due: number) => void;

interface Channel {
  /** Nearly always one: the name of a queue may have been forgotten while somebody waits for it. */
  readonly heard: Set<Heard>;
  idleSince: number;
}

type Listening = ReturnType<Connection['listen']>;

/**
 * Hears the wake channels of all queues with waiting requests, over one subscription. A subscription has a fixed list
 * of channels, so this makes a new one for added channels, and when the old one is dead. Polls find what it misses.
 */
export class Wakes {
  readonly #redis: Connection;
  readonly #channels = new Map<string, Channel>();
  readonly #old = new Set<Listening>();
  #listening: Listening | undefined;
  #renewal: NodeJS.Timeout | undefined;
  #check: NodeJS.Timeout | undefined;

  constructor(redis: Connection) {
    this.#redis = redis;
  }

  on(channel: string, heard: Heard): void {
    const known = this.#channels.get(channel);
    if (known) known.heard.add(heard);
    else {
      this.#channels.set(channel, { heard: new Set([heard]), idleSince: 0 });
      this.#renewal ??= setTimeout(
        () => this.#renew(),
        this.#listening ? SETTLE_MS + this.#channels.size / CHANNELS_PER_MS : 0,
      );
    }
    this.#check ??= setInterval(() => this.#look(), CHECK_MS);
  }

  off(channel: string, heard: Heard): void {
    const known = this.#channels.get(channel);
    if (known?.heard.delete(heard)) known.idleSince = performance.now();
  }

  close(): void {
    clearTimeout(this.#renewal);
    clearInterval(this.#check);
    for (const listening of [...this.#old, ...(this.#listening ? [this.#listening] : [])]) listening.close();
  }

  #look(): void {
    this.#forgetIdle();
    if (this.#channels.size === 0) {
      this.close();
      this.#listening = this.#renewal = this.#check = undefined;
    } else if (!this.#listening?.alive()) this.#renew();
  }

  #forgetIdle(): void {
    const since = performance.now() - IDLE_MS;
    for (const [channel, { heard, idleSince }] of this.#channels)
      if (heard.size === 0 && idleSince < since) this.#channels.delete(channel);
  }

  #renew(): void {
    clearTimeout(this.#renewal);
    this.#renewal = undefined;
    const old = this.#listening;
    this.#listening = this.#redis.listen([...this.#channels.keys()], (channel, message) => {
      for (const heard of this.#channels.get(channel)?.heard ?? []) heard(Number(message));
    });
    if (!old) return;
    // It hears what is said while the new one begins.
    this.#old.add(old);
    setTimeout(() => {
      this.#old.delete(old);
      old.close();
    }, OVERLAP_MS).unref();
  }
}
