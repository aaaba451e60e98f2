import type { Route } from '../http/router.js';
import { type AdminCall, poolNamed } from './call.js';
import { metrics } from './metrics.js';
import { addLimit, addToken, listLimits, listTokens, putLimit, removeLimit, removeToken, showLimit } from './tokens.js';

export type { Admin, AdminCall } from './call.js';

/** What operators and their tools ask. */
export const ADMIN_ROUTES: readonly Route<AdminCall>[] = [
  { method: 'POST', path: '/token/:ns', handle: addToken },
  { method: 'GET', path: '/token/:ns', handle: listTokens },
  { method: 'DELETE', path: '/token/:ns/:token', handle: removeToken },
  { method: 'POST', path: '/token/:ns/:token/limit', handle: addLimit },
  { method: 'PUT', path: '/token/:ns/:token/limit', handle: putLimit },
  { method: 'GET', path: '/token/:ns/:token/limit', handle: showLimit },
  { method: 'DELETE', path: '/token/:ns/:token/limit', handle: removeLimit },
  { method: 'GET', path: '/limits', handle: listLimits },
  { method: 'GET', path: '/metrics', handle: metrics },
  { method: 'GET', path: '/info', handle: info },
  {
    method: 'GET',
    path: '/pools',
    handle: ({ exchange, admin }) => exchange.answer(200, [...admin.guard.rings.keys()]),
  },
  {
    method: 'GET',
    path: '/version',
    handle: ({ exchange, admin }) => exchange.answer(200, { name: 'delayq', version: admin.version }),
  },
];

/** `GET /info`: the queues of each namespace of a pool. */
async function info(call: AdminCall): Promise<void> {
  const { exchange } = call;
  const { inspector } = poolNamed(call, exchange.query.get('pool')).pool;
  const namespaces = new Map<string, string[]>();
  for (const name of await inspector.queues()) {
    // Others cannot be reached over HTTP.
    const [, ns, queue] = /^([A-Za-z0-9_-]+)\.([A-Za-z0-9-][A-Za-z0-9_-]*)$/.exec(name) ?? [];
    if (ns && queue) namespaces.set(ns, [...(namespaces.get(ns) ?? []), queue]);
  }
  exchange.answer(200, Object.fromEntries(namespaces));
}
