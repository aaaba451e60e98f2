import { type Clock, realClock } from '../../internal.js';
import { Recent } from './recent.js';
import type { Token, Tokens } from './tokens.js';

/** How long a token counts after Redis was asked for it, ms: from then on, a removed one is refused. */
const FRESH_MS = 5_000;

/** How long an unknown token is refused without asking Redis, ms: it may have been made in the meantime. */
const UNKNOWN_MS = 1_000;

const MAX_KNOWN = 10_000;
const MAX_UNKNOWN = 1_000;

/** The recently used tokens of one Redis, by their hashes. */
export class TokenCache {
  readonly #tokens: Tokens;
  readonly #clock: Clock;
  readonly #known = new Recent<string, { readonly token: Token; readonly until: number }>(MAX_KNOWN);
  /** Until when they are refused. Apart from the others, so that guesses drive out no token. */
  readonly #unknown = new Recent<string, number>(MAX_UNKNOWN);
  /** Tokens with a call in flight. */
  readonly #asked = new Map<string, Promise<Token | undefined>>();

  constructor(tokens: Tokens, clock: Clock = realClock) {
    this.#tokens = tokens;
    this.#clock = clock;
  }

  /** A token; null: there is none; undefined: Redis must be asked. */
  get(hash: string): Token | null | undefined {
    const now = this.#clock.now();
    const known = this.#known.get(hash);
    if (known && now < known.until) return known.token;
    return now < (this.#unknown.get(hash) ?? 0) ? null : undefined;
  }

  /** Whether there was such a token when Redis was asked last, however long ago. */
  wasKnown(hash: string): boolean {
    return this.#known.get(hash) !== undefined;
  }

  /** Asks Redis for a token. Requests for the same one share a call. Throws what {@link Tokens.get} throws. */
  ask(hash: string): Promise<Token | undefined> {
    const before = this.#asked.get(hash);
    if (before) return before;
    const until = this.#clock.now() + FRESH_MS;
    const asked = this.#tokens
      .get(hash)
      .then((token) => {
        // Forgotten meanwhile: the reply may be outdated.
        if (this.#asked.get(hash) !== asked) return token;
        if (token) this.#known.set(hash, { token, until });
        else {
          this.#known.delete(hash);
          this.#unknown.set(hash, this.#clock.now() + UNKNOWN_MS);
        }
        return token;
      })
      .finally(() => {
        if (this.#asked.get(hash) === asked) this.#asked.delete(hash);
      });
    this.#asked.set(hash, asked);
    return asked;
  }

  /** Asks again at the next use: the token was changed. */
  forget(hash: string): void {
    this.#known.delete(hash);
    this.#unknown.delete(hash);
    this.#asked.delete(hash);
  }
}
