import type { Needed } from '../access/gate.js';
import type { Exchange } from '../http/exchange.js';
import { Refusal } from '../http/refusal.js';
import type { Params, Route } from '../http/router.js';
import type { Pool } from '../queues/pool.js';

/** What jobs have that are published without it. Durations are ms. */
export interface Defaults {
  readonly tries: number;
  /** 0: for ever. */
  readonly ttl: number;
}

/** A request about the queues of one namespace, admitted. */
export interface ApiCall {
  readonly exchange: Exchange;
  readonly params: Params;
  readonly pool: Pool;
  readonly defaults: Defaults;
}

/** A route of the API, and what it needs. */
export interface ApiRoute extends Route<ApiCall>, Needed {}

const NAME = /^[A-Za-z0-9_-]{1,255}$/;

/**
 * The name of the delayq queue that the request is about: NAMESPACE.QUEUE. Throws a refusal (400) for an invalid name.
 */
export function queueName({ ns, queue = '' }: Params, name = queue): string {
  if (!NAME.test(ns ?? '')) throw new Refusal(400, 'invalid namespace');
  if (!NAME.test(name) || name.startsWith('_')) throw new Refusal(400, 'invalid queue name');
  return `${ns}.${name}`;
}

/** The receipt that a request carries; null: none. */
export const receiptOf = (exchange: Exchange): string | null =>
  exchange.header('x-receipt') ?? exchange.query.get('receipt');
