import { expect } from 'vitest';
import { during } from './afterwards.js';
import { delayq } from './cli.js';
import { Server } from './server.js';

/** A finding, as doctor prints it. */
interface Told {
  level: string;
  check: string;
  what: string;
  why?: string;
  next?: string;
}

/**
 * The findings of doctor about a server, by check, and its exit status. Slow round trips are forgiven: they are those of a
 * busy machine.
 */
export async function doctor(url: string): Promise<{ code: number | null; told: Record<string, Told> }> {
  const { code, stdout, stderr } = await delayq(['doctor', '--json', '--redis', url]);
  expect(stderr).toBe('');
  const { findings } = JSON.parse(stdout) as { findings: Told[] };
  const told = Object.fromEntries(findings.map((finding) => [finding.check, finding]));
  const trip = told['round-trip'];
  if (trip?.level !== 'warn') return { code, told };
  trip.level = 'ok';
  const isOnly = findings.every(({ level }) => level === 'ok' || level === 'skip');
  return { code: isOnly && code === 1 ? 0 : code, told };
}

/** The settings of a server that is in order; what a busy machine makes slow is no fault. */
const SOUND = ['--appendonly', 'yes', '--appendfsync', 'everysec', '--slowlog-log-slower-than', '60000000'];

/** A server that is in order, unless `args` change that. */
export const serverWith = (...args: string[]) => during(Server.start({ args: [...SOUND, ...args] }));
