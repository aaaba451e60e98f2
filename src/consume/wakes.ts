import type { Clock } from '../model/time.js';
import type { Connection } from '../redis/connection.js';
import { POLL_MS } from '../store/keys.js';

/** The pause before subscribing to added channels, ms; and for how many channels it is 1 ms longer. */
const SETTLE_MS = 20;
const CHANNELS_PER_MS = 10;

/** How long both subscriptions are kept when one takes the place of another, ms. */
const OVERLAP_MS = 250;

/** How long to keep a channel that nobody waits for, ms: consumers come again and again. */
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
 * Hears the wake channels of queues on one Redis, over one subscription. A subscription has a fixed list of channels,
 * so this makes a new one for added channels, and when the old one is dead. Polls find what it misses.
 */
export class Wakes {
  readonly #redis: Connection;
  readonly #clock: Clock;
  readonly #channels = new Map<string, Channel>();
  readonly #old = new Set<Listening>();
  #listening: Listening | undefined;
  #cancelRenewal: (() => void) | undefined;
  #cancelCheck: (() => void) | undefined;
  /** From when on all channels are surely heard, by the clock, ms. */
  surelyFrom = Number.POSITIVE_INFINITY;

  constructor(redis: Connection, clock: Clock) {
    this.#redis = redis;
    this.#clock = clock;
  }

  on(channel: string, heard: Heard): void {
    const known = this.#channels.get(channel);
    if (known) known.heard.add(heard);
    else {
      this.#channels.set(channel, { heard: new Set([heard]), idleSince: 0 });
      this.surelyFrom = Number.POSITIVE_INFINITY;
      this.#cancelRenewal ??= this.#renewLater();
    }
    this.#cancelCheck ??= this.#clock.after(POLL_MS, () => this.#check());
  }

  off(channel: string, heard: Heard): void {
    const known = this.#channels.get(channel);
    if (known?.heard.delete(heard)) known.idleSince = this.#clock.now();
  }

  close(): void {
    this.#cancelRenewal?.();
    this.#cancelCheck?.();
    this.#cancelRenewal = this.#cancelCheck = undefined;
    for (const listening of [...this.#old, ...(this.#listening ? [this.#listening] : [])]) listening.close();
    this.#listening = undefined;
  }

  /** Subscribes once a few more channels may have been added; for the first ones after this turn of the event loop. */
  #renewLater(): () => void {
    if (this.#listening) {
      return this.#clock.after(SETTLE_MS + this.#channels.size / CHANNELS_PER_MS, () => this.#renew());
    }
    const immediate = setImmediate(() => this.#renew());
    return () => clearImmediate(immediate);
  }

  #check(): void {
    this.#cancelCheck = undefined;
    const since = this.#clock.now() - IDLE_MS;
    for (const [channel, { heard, idleSince }] of this.#channels)
      if (heard.size === 0 && idleSince < since) this.#channels.delete(channel);
    if (this.#channels.size === 0) {
      this.close();
      return;
    }
    if (!this.#listening?.alive()) this.#renew();
    this.#cancelCheck = this.#clock.after(POLL_MS, () => this.#check());
  }

  #renew(): void {
    this.#cancelRenewal?.();
    this.#cancelRenewal = undefined;
    const old = this.#listening;
    this.#listening = this.#redis.listen([...this.#channels.keys()], (channel, message) => {
      for (const heard of this.#channels.get(channel)?.heard ?? []) heard(Number(message));
    });
    this.surelyFrom = this.#clock.now() + POLL_MS;
    if (!old) return;
    // It hears what is said while the new one begins.
    this.#old.add(old);
    const forget = () => {
      this.#old.delete(old);
      old.close();
    };
    this.#clock.after(OVERLAP_MS, forget, { ref: false });
  }
}
