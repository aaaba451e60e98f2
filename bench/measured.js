// Measures topics one after the other; in a smoke run, which makes no claims, several at once.
import { setTimeout as sleep } from 'node:timers/promises';
import { Rig } from './rig.js';
import { progress } from './rounds.js';
import { lost, unmeasured } from './table.js';

/** How many topics a smoke run measures at once, each with servers of its own: most of them mostly wait. */
const LANES = 8;
/** These begin first, because they wait longest. */
const LONGEST = ['recovery', 'watch', 'idle', 'burst', 'sparse', 'recurring', 'limits', 'http'];
/** A topic of a smoke run that takes longer is stuck. */
const STUCK_MS = 300_000;

/**
 * What became of a topic. `wrong` says why it could not be measured, or what was lost.
 *
 * @typedef {{ topic: string, sections: import('./table.js').Section[], seconds: number, versions: string[], wrong?: string }} Measured
 */

/**
 * @param {string[]} topics
 * @param {{ kind: 'full' | 'quick' | 'smoke', runs?: number }} options
 * @returns {Promise<{ results: Measured[], missing: string[] }>} missing: the names of peers that are not there
 */
export async function measured(topics, { kind, runs }) {
  const first = kind === 'smoke' ? LONGEST.filter((topic) => topics.includes(topic)) : [];
  const left = [...first, ...topics.filter((topic) => !first.includes(topic))];
  /** @type {Record<string, Measured>} */
  const results = {};
  /** @type {string[]} */
  let missing = [];
  const lane = async () => {
    const rig = new Rig({ kind, runs });
    try {
      await rig.open();
      missing = rig.missing;
      for (let topic = left.shift(); topic; topic = left.shift()) results[topic] = await one(topic, rig);
    } finally {
      rig.close();
    }
  };
  const lanes = kind === 'smoke' ? Math.min(LANES, topics.length) : 1;
  await Promise.all(Array.from({ length: lanes }, lane));
  return { results: topics.map((topic) => results[topic]), missing };
}

/** @param {string} topic @param {Rig} rig @returns {Promise<Measured>} */
async function one(topic, rig) {
  progress(`== ${topic}`);
  const begin = performance.now();
  const took = () => (performance.now() - begin) / 1_000;
  const versions = await rig.versions();
  try {
    const { measure } = await import(`./cases/${topic}.js`);
    await rig.flush();
    const sections = await (rig.kind === 'smoke' ? Promise.race([measure(rig), stuck()]) : measure(rig));
    const wrong = [...lost(sections), ...(rig.kind === 'smoke' ? unmeasured(sections) : [])].join('; ') || undefined;
    progress(`== ${topic}: ${wrong ?? 'measured'}, in ${took().toFixed(1)} s`);
    return { topic, sections, seconds: took(), versions, wrong };
  } catch (error) {
    // The other topics are still worth measuring.
    console.error(error);
    progress(`== ${topic} failed, in ${took().toFixed(1)} s`);
    return { topic, sections: [], seconds: took(), versions, wrong: error.message };
  }
}

async function stuck() {
  await sleep(STUCK_MS, undefined, { ref: false });
  throw new Error(`not done within ${STUCK_MS / 1_000} s`);
}
