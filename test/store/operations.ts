import type { Op } from './one-id.js';

/** Operations of clients, and of a move to another queue. */
export const keep: Op = { do: 'keep', version: 'v1' };
export const replace: Op = { do: 'replace', version: 'v2' };
export const cancel: Op = { do: 'cancel', states: ['pending', 'active', 'dead'] };
export const requeue: Op = { do: 'requeue' };
export const bury: Op = { do: 'bury' };
export const show: Op = { do: 'show' };
export const hold: Op = { do: 'hold', receipt: '', by: 'move' };
export const moved: Op = { do: 'finish', receipt: '', how: 'moved' };
export const putBack: Op = { do: 'finish', receipt: '', how: 'back' };
export const restore: Op = { do: 'restore', version: 'v0', set: 'pending', token: 'M' };
