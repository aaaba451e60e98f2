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

/** The findings of doctor about a server, by check, and its exit status. */
export async function doctor(url: string): Promise<{ code: number | null; told: Record<string, Told> }> {
  const { code, stdout, stderr } = await delayq(['doctor', '--json', '--redis', url]);
  expect(stderr).toBe('');
  const { findings } = JSON.parse(stdout) as { findings: Told[] };
  return { code, told: Object.fromEntries(findings.map((finding) => [finding.check, finding])) };
}

/** A server that is in order, unless `args` change that. */
export const serverWith = (...args: string[]) =>
  during(Server.start({ args: ['--appendonly', 'yes', '--appendfsync', 'everysec', ...args] }));
