import { readFileSync } from 'node:fs';
import type { AdminCall } from './admin/call.js';
import { info, pools, version } from './admin/info.js';
import { metrics } from './admin/metrics.js';
import * as tokens from './admin/tokens.js';
import { ack, ackMany } from './api/ack.js';
import type { ApiCall, ApiRoute } from './api/call.js';
import { consume } from './api/consume.js';
import * as dead from './api/deadletter.js';
import * as jobs from './api/jobs.js';
import { publish, publishBulk, republish } from './api/publish.js';
import { result } from './api/result.js';
import { JSON_TYPE } from './http/exchange.js';
import type { Route } from './http/router.js';

const QUEUE = '/api/:ns/:queue';
const JOB = `${QUEUE}/job/:id`;
const DEAD = `${QUEUE}/deadletter`;
const LIMIT = '/token/:ns/:token/limit';

const NEW_JOB = ['delay', 'ttl', 'tries'];
const PUBLISH = { method: 'PUT', right: 'publish', counts: 'write', readsBody: true, query: NEW_JOB } as const;
const TAKE = ['ttr', 'timeout', 'count', 'receipts'];
const NACK = ['receipt', 'mode', 'delay', 'error'];
const POOL = ['pool'];

/**
 * The API of lmstfy's clients, and additions of delayq. No route needs the right `operate`: those clients do everything
 * with one ordinary token.
 */
export const API_ROUTES: readonly ApiRoute[] = [
  { ...PUBLISH, path: QUEUE, query: [...NEW_JOB, 'id', 'if_exists'], handle: publish },
  { ...PUBLISH, path: `${QUEUE}/bulk`, handle: publishBulk },
  { ...PUBLISH, path: JOB, rest: true, handle: republish },
  { method: 'GET', path: QUEUE, right: 'consume', counts: 'read', query: TAKE, handle: consume },
  { method: 'DELETE', path: JOB, rest: true, right: 'consume', query: ['receipt'], handle: ack },
  { method: 'POST', path: `${QUEUE}/ack`, right: 'consume', readsBody: true, handle: ackMany },
  { method: 'GET', path: `${JOB}/result`, right: 'consume', query: ['timeout'], handle: result },
  { method: 'GET', path: JOB, rest: true, right: 'consume', handle: jobs.job },
  { method: 'POST', path: `${JOB}/nack`, right: 'consume', query: NACK, handle: jobs.nack },
  { method: 'POST', path: `${JOB}/renew`, right: 'consume', query: ['receipt', 'ttr'], handle: jobs.renew },
  { method: 'POST', path: `${JOB}/cancel`, right: 'consume', handle: jobs.cancel },
  { method: 'POST', path: `${JOB}/reschedule`, right: 'consume', query: ['delay', 'at'], handle: jobs.reschedule },
  { method: 'GET', path: `${QUEUE}/peek`, right: 'consume', handle: jobs.peek },
  { method: 'GET', path: `${QUEUE}/size`, right: 'consume', handle: jobs.size },
  { method: 'DELETE', path: QUEUE, right: 'consume', handle: jobs.empty },
  { method: 'GET', path: DEAD, right: 'consume', handle: dead.show },
  { method: 'GET', path: `${DEAD}/size`, right: 'consume', handle: dead.size },
  { method: 'PUT', path: DEAD, right: 'consume', query: ['limit', 'ttl'], handle: dead.respawn },
  { method: 'DELETE', path: DEAD, right: 'consume', query: ['limit'], handle: dead.remove },
  { method: 'GET', path: '/openapi.json', handle: openapi },
];

/** What operators and their tools ask. */
export const ADMIN_ROUTES: readonly Route<AdminCall>[] = [
  { method: 'POST', path: '/token/:ns', readsBody: true, query: ['pool', 'description', 'rights'], handle: tokens.add },
  { method: 'GET', path: '/token/:ns', query: POOL, handle: tokens.list },
  { method: 'DELETE', path: '/token/:ns/:token', query: POOL, handle: tokens.remove },
  { method: 'POST', path: LIMIT, readsBody: true, query: POOL, handle: tokens.addLimit },
  { method: 'PUT', path: LIMIT, readsBody: true, query: POOL, handle: tokens.putLimit },
  { method: 'GET', path: LIMIT, query: POOL, handle: tokens.showLimit },
  { method: 'DELETE', path: LIMIT, query: POOL, handle: tokens.removeLimit },
  { method: 'GET', path: '/limits', query: POOL, handle: tokens.listLimits },
  { method: 'GET', path: '/metrics', query: POOL, handle: metrics },
  { method: 'GET', path: '/info', query: POOL, handle: info },
  { method: 'GET', path: '/pools', handle: pools },
  { method: 'GET', path: '/version', handle: version },
];

let openapiText: string | undefined;

/** `GET /openapi.json`: the reference of the API, from the package. */
function openapi({ exchange }: ApiCall): void {
  const file = new URL('../../docs/reference/openapi.json', import.meta.url);
  openapiText ??= JSON.stringify(JSON.parse(readFileSync(file, 'utf8')));
  exchange.answer(200, openapiText, JSON_TYPE);
}
