import type { Clock } from '../../internal.js';
import type { RefusalCounter } from '../access/failures.js';
import type { Keyring } from '../access/keyring.js';
import type { Exchange } from '../http/exchange.js';
import type { Figures } from '../http/figures.js';
import type { Listener } from '../http/listener.js';
import type { Memory } from '../http/memory.js';
import { Refusal } from '../http/refusal.js';
import type { Params } from '../http/router.js';

/** What the admin listener knows of the server. */
export interface Admin {
  /** By the names of their pools; the first is the default. */
  readonly rings: ReadonlyMap<string, Keyring>;
  readonly refused: RefusalCounter;
  readonly figures: Figures;
  readonly memory: Memory;
  /** By their names. */
  readonly listeners: ReadonlyMap<string, Listener>;
  /** How many requests have not ended. */
  readonly running: () => number;
  readonly version: string;
  readonly clock: Clock;
}

/** A request to the admin listener, admitted. */
export interface AdminCall {
  readonly exchange: Exchange;
  readonly params: Params;
  readonly admin: Admin;
  /** The only pool that the caller may act on; undefined: all. */
  readonly only: Keyring | undefined;
}

/** The largest body of an admin request, bytes. */
const MAX_BODY = 64 * 1024;

/** The body of a request. Throws a refusal: 413 if it is too long. */
export const bodyOf = async (exchange: Exchange): Promise<string> => (await exchange.body(MAX_BODY)).toString();

/**
 * The pool with this name; without a name, the first. Throws a refusal: 404 if there is none, 403 if the caller's token
 * belongs to another pool.
 */
export function poolNamed({ admin: { rings }, only }: AdminCall, name: string | null): Keyring {
  const ring = name ? rings.get(name) : [...rings.values()][0];
  if (!ring) throw new Refusal(404, 'pool not found');
  if (only && ring !== only) throw new Refusal(403, 'the token is of another pool');
  return ring;
}

/** The pool that the query names, as {@link poolNamed}; otherwise all that the caller may act on. */
export function poolsOf(call: AdminCall): readonly Keyring[] {
  const name = call.exchange.query.get('pool');
  if (name) return [poolNamed(call, name)];
  return call.only ? [call.only] : [...call.admin.rings.values()];
}
