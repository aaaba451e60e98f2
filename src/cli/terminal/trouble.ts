import { type OnTrouble, troubleTeller } from '../../internal.js';
import type { Context } from '../host/context.js';
import { sayInParts } from './output.js';

/** Makes a listener for trouble that reports it on stderr: see {@link troubleTeller}. */
export function troubleReporter(context: Context, how?: { watch: boolean }): OnTrouble {
  return troubleTeller((what, parts = {}) => sayInParts(context, what, parts), how);
}
