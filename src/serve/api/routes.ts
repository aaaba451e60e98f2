import { JSON_TYPE } from '../http/exchange.js';
import { ack, ackMany } from './ack.js';
import type { ApiRoute } from './call.js';
import { consume } from './consume.js';
import * as dead from './deadletter.js';
import * as jobs from './jobs.js';
import { publish, publishBulk, republish } from './publish.js';

/** docs/reference/openapi.json, put in by scripts/bundle.js. */
declare const DELAYQ_OPENAPI: string;

const JOB = '/api/:ns/:queue/job/:id';
const DEAD = '/api/:ns/:queue/deadletter';

/**
 * The API of lmstfy's clients, and additions of delayq. No route needs the right `operate`: those clients do everything
 * with one ordinary token.
 */
export const API_ROUTES: readonly ApiRoute[] = [
  { method: 'PUT', path: '/api/:ns/:queue', right: 'publish', counts: 'write', handle: publish },
  { method: 'PUT', path: '/api/:ns/:queue/bulk', right: 'publish', counts: 'write', handle: publishBulk },
  { method: 'PUT', path: JOB, rest: true, right: 'publish', counts: 'write', handle: republish },
  { method: 'GET', path: '/api/:ns/:queue', right: 'consume', counts: 'read', handle: consume },
  { method: 'DELETE', path: JOB, rest: true, right: 'consume', handle: ack },
  { method: 'POST', path: '/api/:ns/:queue/ack', right: 'consume', handle: ackMany },
  { method: 'GET', path: JOB, rest: true, right: 'consume', handle: jobs.job },
  { method: 'POST', path: `${JOB}/nack`, right: 'consume', handle: jobs.nack },
  { method: 'POST', path: `${JOB}/renew`, right: 'consume', handle: jobs.renew },
  { method: 'POST', path: `${JOB}/cancel`, right: 'consume', handle: jobs.cancel },
  { method: 'POST', path: `${JOB}/reschedule`, right: 'consume', handle: jobs.reschedule },
  { method: 'GET', path: '/api/:ns/:queue/peek', right: 'consume', handle: jobs.peek },
  { method: 'GET', path: '/api/:ns/:queue/size', right: 'consume', handle: jobs.size },
  { method: 'DELETE', path: '/api/:ns/:queue', right: 'consume', handle: jobs.empty },
  { method: 'GET', path: DEAD, right: 'consume', handle: dead.show },
  { method: 'GET', path: `${DEAD}/size`, right: 'consume', handle: dead.size },
  { method: 'PUT', path: DEAD, right: 'consume', handle: dead.respawn },
  { method: 'DELETE', path: DEAD, right: 'consume', handle: dead.remove },
  { method: 'GET', path: '/openapi.json', handle: ({ exchange }) => exchange.answer(200, DELAYQ_OPENAPI, JSON_TYPE) },
];
