import { setTimeout as sleep } from 'node:timers/promises';
import { type Id, idWord } from '../model/id.js';
import { fixLine, many, printable } from '../model/text.js';
import { rewriteSettings } from '../store/edit.js';
import { laterLayout, otherLayout, otherSettings, strays } from '../store/partition-faults.js';
import type { Store } from '../store/store.js';
import { sweepRemembered } from '../store/sweep-partition.js';
import { bad, type Finding, fine } from './finding.js';
import { SAMPLES } from './id-audit.js';
import { type Mender, mendedFinding } from './mender.js';
import { growthLine } from './problems.js';

/** How long a change of settings takes to be everywhere, ms. */
const GRACE_MS = 100;

/** Checks the growth of a queue, and that its partitions agree on what it is. */
export async function checkPartitions(store: Store, mender: Mender): Promise<Finding[]> {
  await store.look();
  const { count, growsFrom } = store;
  if (count === 1) return checkFirst(store, mender);
  if (growsFrom !== undefined) {
    const what = `a growth from ${growsFrom} to ${count} partitions is not done`;
    const why = 'until it is, calls by id take longer, and old partitions keep jobs that belong to new ones';
    return [bad('fail', 'growth', what, why, growthLine(store.queue, count))];
  }
  const found: Finding[] = [];
  for (let i = 1; i < count; i++) found.push(...(await checkLayout(store, i, mender)));
  found.push(...(await checkSettings(store, mender)));
  return found.length > 0 ? found : [fine('partitions', `${count} partitions, with the same layout and settings`)];
}

/** Checks whether partition 0 has lost its layout: then the others still have theirs. */
async function checkFirst(store: Store, mender: Mender): Promise<Finding[]> {
  const later = await laterLayout(store);
  if (!later) return [];
  const { count, isBegun, restore } = later;
  if (isBegun) {
    const what = `a growth from 1 to ${count} partitions has begun, but is not in effect yet`;
    const why = 'its command has just started, or was killed; until it goes on, the queue works as before';
    return [bad('warn', 'growth', what, why, growthLine(store.queue, count))];
  }
  const what = `partition 0 has lost its layout, which says that there are ${count} partitions`;
  const why = 'new callers take the queue for one without partitions, and see no other jobs';
  const found = bad('fail', 'partition-layout', what, why, fixLine(store.queue));
  return mender.mend(found, 1, 'partition 0 has its layout again', restore);
}

async function checkLayout(store: Store, i: number, mender: Mender): Promise<Finding[]> {
  const other = await otherLayout(store, i);
  if (!other) return [];
  const what = `partition ${i} has the layout ${printable(other.layout)}, not that of partition 0, or other tags`;
  const why = 'calls there are refused until both agree';
  const found = bad('fail', 'partition-layout', what, why, fixLine(store.queue));
  return mender.mend(found, 1, `partition ${i} has its layout again`, other.mend);
}

async function checkSettings(store: Store, mender: Mender): Promise<Finding[]> {
  let different = await otherSettings(store);
  if (different.length === 0) return [];
  // A command may be changing them.
  await sleep(GRACE_MS);
  different = await otherSettings(store);
  if (different.length === 0) return [];
  const one = different.length === 1;
  const which = `${one ? 'partition' : 'partitions'} ${different.join(', ')}`;
  const what = `${which} ${one ? 'has' : 'have'} other settings than partition 0, or another pause`;
  const why = 'a change was interrupted, or made in one partition only';
  const finding = bad('fail', 'partition-settings', what, why, fixLine(store.queue));
  const did = `${which}: given the settings of partition 0`;
  return mender.mend(finding, different.length, did, () => rewriteSettings(store));
}

/**
 * Finds ids in a partition where they do not belong, and transfers them if allowed. In partition 0 they are normal:
 * producers that know no partitions write there. Looks for none while a growth is open, which moves ids itself.
 */
export async function checkStrays(
  store: Store,
  i: number,
  mender: Mender,
  signal: AbortSignal | undefined,
): Promise<Finding[]> {
  const { queue } = store;
  if (store.count === 1 || store.growsFrom !== undefined) return [];
  let [count, moved, active] = [0, 0, 0];
  const samples: Id[] = [];
  for await (const { ids, relocate } of strays(store, i)) {
    count += ids.length;
    samples.push(...ids.slice(0, SAMPLES - samples.length));
    const answers = (await mender.try(relocate)) ?? [];
    moved += answers.filter((one) => !STAYS.includes(one)).length;
    active += answers.filter((one) => one === 'active').length;
    if (signal?.aborted) break;
  }
  if (count === 0) return [];
  const which = `partition ${i}: ${many(count, 'job')} that ${count === 1 ? 'belongs' : 'belong'} to other partitions`;
  const more = { count, samples: samples.map(idWord), mendable: true };
  if (moved === count) return [mendedFinding({ ...fine('stray', ''), ...more }, moved, `${which}: moved there`)];
  if (i === 0) {
    const what = `${which}: producers that know no partitions write here, and drains take them here`;
    return [{ ...fine('stray', what), ...more }];
  }
  const why = 'calls by id do not find them; drains deliver them all the same';
  const left = `${moved > 0 ? `${many(moved, 'job')} moved there; ` : ''}`;
  const fix = fixLine(queue);
  // A repeat would find the same until their leases end.
  const isWaiting = active > 0 && moved + active === count;
  const next = isWaiting ? `when no handler has ${active === 1 ? 'it' : 'them'} any more: ${fix}` : fix;
  return [{ ...bad('fail', 'stray', `${left}${which}`, why, next), ...more }];
}

/** Finds remembered ids where they do not belong: of jobs that other software has put there, or left by a failover. */
export async function checkRemembered(store: Store, i: number, mender: Mender): Promise<Finding[]> {
  const { queue } = store;
  if (store.count === 1 || store.growsFrom !== undefined) return [];
  const count = await sweepRemembered(store, i, { dry: true });
  if (count === 0) return [];
  const what = `partition ${i}: ${many(count, 'remembered id')} of other partitions`;
  const finding = bad('warn', 'stray-id', what, 'enqueuing them again makes jobs', fixLine(queue));
  return mender.mend({ ...finding, count }, count, `${what}: moved there`, () => sweepRemembered(store, i));
}

/** Of these, it leaves the job where it was: with a consumer, without a payload, or for another job of its id. */
const STAYS: readonly string[] = ['active', 'orphaned', 'missing', 'differs', 'kept-dead', 'held'];
