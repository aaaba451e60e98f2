import { readdirSync, rmSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import type { TestProject } from 'vitest/node';
import { Server } from './server.js';

declare module 'vitest' {
  interface ProvidedContext {
    redisUrl: string;
    redisSocket: string;
  }
}

/** One Redis for all tests that do not affect others; each test uses its own queue. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const server = await Server.start();
  project.provide('redisUrl', server.url);
  project.provide('redisSocket', server.socket);
  return async () => {
    await server.stop();
    removeCaches();
  };
}

/** Removes the compiled code that bin/start.js has cached for the runs of the tests. */
function removeCaches(): void {
  const directory = fileURLToPath(new URL('../../dist/cli/', import.meta.url));
  for (const file of readdirSync(directory)) if (file.includes('.cache')) rmSync(directory + file, { force: true });
}
