import { createHash, hash, randomBytes } from 'node:crypto';
import { type Connection, DelayqError, TokenStore } from '../../internal.js';

/** What a token may allow. */
export const RIGHTS = ['publish', 'consume', 'operate'] as const;
export type Right = (typeof RIGHTS)[number];

/** The rights that clients of lmstfy need. */
export const DEFAULT_RIGHTS: readonly Right[] = ['publish', 'consume'];

/** The namespace of a token that is for all namespaces. */
const ALL = '*';

/** The two sides that a token's limit may have, as lmstfy has them: taking jobs, and publishing. */
export const SIDES = ['read', 'write'] as const;
export type Side = (typeof SIDES)[number];

/** How many requests of a side a token may make in an interval; 0: any number. */
export interface Limits extends Readonly<Record<Side, number>> {
  /** s */
  readonly interval: number;
}

/** A token, as it is stored. */
export interface TokenRecord {
  /** The namespace that it is for; `*`: all. */
  readonly ns: string;
  readonly description: string;
  readonly rights: readonly Right[];
  readonly limits?: Limits | undefined;
  /** When it was made, ms. */
  readonly created: number;
}

/** A token without its text, which only its owner has. */
export interface Token extends TokenRecord {
  /** SHA-256 of its text. */
  readonly hash: string;
  /** Names it everywhere: the first digits of the hash. */
  readonly fingerprint: string;
}

export interface NewToken {
  readonly description?: string | undefined;
  readonly rights?: readonly Right[] | undefined;
  readonly limits?: Limits | undefined;
  /** Its text; otherwise it is made. */
  readonly token?: string | undefined;
}

/** The length of a fingerprint: no token is so short. */
const FINGERPRINT = 12;

const NAMESPACE = /^[A-Za-z0-9_-]{1,255}$/;

/** A text that a caller brings. It has no colon, which ends the name of a pool. */
const TEXT = /^[!-9;-~]{20,512}$/;

const MAX_DESCRIPTION = 512;

/** The longest interval of a limit, s: a year. */
const MAX_INTERVAL = 31_536_000;

/** Twice as fast as createHash; only since Node 20.12. Read once, as the bundle loads node:crypto at each use. */
const digest: typeof hash | undefined = hash;

/** The hash of a token's text: Redis stores it, and lookups use it, so that texts are never compared. */
export const hashOf = (text: string): string =>
  digest?.('sha256', text) ?? createHash('sha256').update(text).digest('hex');

/** Whether `token` is for `ns` and has the right. Without `ns`, it must be for all namespaces. */
export function allows({ ns, rights }: TokenRecord, right: Right, asked: string | undefined): boolean {
  return (ns === ALL || ns === asked) && rights.includes(right);
}

/** The tokens in one Redis. */
export class Tokens {
  readonly #store: TokenStore;

  constructor(redis: Connection, prefix: string) {
    this.#store = new TokenStore(redis, prefix);
  }

  /** Makes a token and returns its text. Throws `usage` if something is invalid, or if the text is a token already. */
  async add(ns: string, { description = '', rights = DEFAULT_RIGHTS, limits, token }: NewToken = {}): Promise<string> {
    checkNamespace(ns);
    checkText(token);
    checkRights(rights);
    if (description.length > MAX_DESCRIPTION)
      throw invalid('the description is too long', `use at most ${MAX_DESCRIPTION} characters`);
    if (limits) checkLimits(limits);
    const text = token ?? randomBytes(32).toString('base64url');
    const ordered = RIGHTS.filter((right) => rights.includes(right));
    const record: TokenRecord = { ns, description, rights: ordered, limits, created: await this.#store.now() };
    if (await this.#store.put(hashOf(text), undefined, JSON.stringify(record))) return text;
    throw invalid('the token exists already', 'choose another text, or remove that token first', {
      why: 'a token is for one namespace',
    });
  }

  /** The token with this hash; undefined if there is none. */
  async get(hash: string): Promise<Token | undefined> {
    return tokenOf(hash, await this.#store.get(hash));
  }

  /** All tokens, or those of a namespace, the oldest first. */
  async list(ns?: string): Promise<Token[]> {
    const all = (await this.#store.all()).map(([hash, record]) => tokenOf(hash, record));
    const tokens = all.filter((token) => token !== undefined && (ns === undefined || token.ns === ns)) as Token[];
    return tokens.sort((a, b) => a.created - b.created || (a.hash < b.hash ? -1 : 1));
  }

  count(): Promise<number> {
    return this.#store.count();
  }

  /** The token of `ns` that has this fingerprint, or this text. */
  async find(ns: string, name: string): Promise<Token | undefined> {
    if (name.length === FINGERPRINT) return (await this.list(ns)).find(({ fingerprint }) => fingerprint === name);
    const token = await this.get(hashOf(name));
    return token?.ns === ns ? token : undefined;
  }

  /** Removes a token. Servers refuse it within 10 s. */
  remove({ hash }: Token): Promise<void> {
    return this.#store.remove(hash, SIDES);
  }

  /**
   * Sets the limits of a token, or removes them. Returns false if the token has been removed. Throws `usage` if the
   * limits are invalid.
   */
  async limit({ hash }: Token, limits: Limits | undefined): Promise<boolean> {
    if (limits) checkLimits(limits);
    for (;;) {
      const stored = await this.#store.get(hash);
      const token = tokenOf(hash, stored);
      if (!token) return false;
      const { ns, description, rights, created } = token;
      const record: TokenRecord = { ns, description, rights, limits, created };
      if (await this.#store.put(hash, stored, JSON.stringify(record))) return true;
    }
  }
}

/** Reads a record; undefined if it is not that of a token: other software may have written anything. */
function tokenOf(hash: string, record = ''): Token | undefined {
  try {
    const { ns, description, rights, limits, created } = JSON.parse(record) as Partial<TokenRecord>;
    if (typeof ns !== 'string' || !Array.isArray(rights)) return undefined;
    if (limits) checkLimits(limits);
    return {
      hash,
      fingerprint: hash.slice(0, FINGERPRINT),
      ns,
      description: String(description ?? ''),
      rights: RIGHTS.filter((right) => rights.includes(right)),
      limits: limits ?? undefined,
      created: Number(created) || 0,
    };
  } catch {
    return undefined;
  }
}

function checkNamespace(ns: string): void {
  if (ns === ALL || NAMESPACE.test(ns)) return;
  throw invalid('this cannot be a namespace', 'choose a name such as shop, or * for all namespaces', {
    why: 'a namespace has 1 to 255 of the characters A-Z a-z 0-9 _ -',
  });
}

/** Throws `usage` if a text cannot be a token. The error does not hold the text. */
function checkText(text: string | undefined): void {
  if (text === undefined || TEXT.test(text)) return;
  throw invalid('this text cannot be a token', 'choose another text, or let delayq make one', {
    why: 'a token has 20 to 512 printable ASCII characters, no space and no colon',
  });
}

function checkRights(rights: readonly string[]): void {
  const unknown = rights.some((right) => !RIGHTS.includes(right as Right));
  if (unknown || rights.length === 0)
    throw invalid('these rights are unknown', `name at least one of ${RIGHTS.join(', ')}`);
}

function checkLimits({ read, write, interval }: Limits): void {
  const isCount = (n: unknown, min: number, max: number) =>
    Number.isSafeInteger(n) && Number(n) >= min && Number(n) <= max;
  const max = Number.MAX_SAFE_INTEGER;
  if (isCount(read, 0, max) && isCount(write, 0, max) && isCount(interval, 1, MAX_INTERVAL) && read + write > 0) return;
  throw invalid('these limits are invalid', 'give read or write, and an interval, such as 100, 100 and 1', {
    why: `read and write are whole numbers, not both 0; the interval has 1 to ${MAX_INTERVAL} seconds`,
  });
}

const invalid = (what: string, next: string, more: { why?: string } = {}) =>
  new DelayqError('usage', what, { next, ...more });
