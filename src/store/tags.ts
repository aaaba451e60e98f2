import { slotOfKey } from '../redis/slots.js';

const SLOTS = 16_384;

/** How far a partition may be from its place, slots: a few hundred numbers contain such a slot. */
const NEAR = 64;

/**
 * Returns the tag of partition `i` of a queue, from 1: `QUEUE/i.k`, with the first `k` whose slot is near its place.
 * The places halve the largest gaps, one after the other (van der Corput's sequence), beginning at the slot of the
 * queue: so the slots are spread evenly over the nodes, however many partitions there are. No queue can have such a
 * name.
 */
export function tagFor(queue: string, i: number): string {
  const start = slotOfKey(`{${queue}}`);
  const place = (start + Math.round(halved(i) * SLOTS)) % SLOTS;
  for (let k = 0; ; k++) {
    const tag = `${queue}/${i}.${k}`;
    const away = Math.abs(slotOfKey(`{${tag}}`) - place);
    if (Math.min(away, SLOTS - away) <= NEAR) return tag;
  }
}

/** The bits of `i` behind the point, in reverse: 1/2, 1/4, 3/4, 1/8 … */
function halved(i: number): number {
  let value = 0;
  for (let rest = i, part = 0.5; rest > 0; rest = Math.floor(rest / 2), part /= 2) if (rest % 2 === 1) value += part;
  return value;
}
