import { JSON_TYPE } from '../http/exchange.js';
import type { Call } from './call.js';

/** docs/reference/openapi.json, put in by scripts/bundle.js. */
declare const DELAYQ_OPENAPI: string;

/** `GET /openapi.json` */
export function openapi({ exchange }: Call): void {
  exchange.answer(200, DELAYQ_OPENAPI, JSON_TYPE);
}
