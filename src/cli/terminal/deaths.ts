import { Flood, queueWord } from '../../internal.js';
import type { Context } from '../host/context.js';
import { many, say } from './output.js';

/** Why a job is dead, in words. */
export const REASONS: Readonly<Record<string, string>> = {
  failed: 'failed too often',
  refused: 'refused by its handler',
  released: 'released too often',
  lost: 'lease expired too often',
  buried: 'buried by an operator',
  orphaned: 'has no payload',
  'bad id': 'has an invalid id',
  found: 'payload found without an id',
  'bad due': 'has an invalid due time',
};

/** How many dead jobs are reported one by one in a minute. */
const MAX_SHOWN = 20;

/** Reports jobs that die, by their queues. Of a flood it reports the first ones, and how many more there were. */
export const deaths = (context: Context) =>
  new Flood(
    (text) => say(context, text),
    MAX_SHOWN,
    (n, queue) => `${queue}: ${many(n, 'more job')} died; list them: delayq list --dead ${queueWord(queue)}`,
  );
