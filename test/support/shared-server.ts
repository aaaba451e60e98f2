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
  return () => server.stop();
}
